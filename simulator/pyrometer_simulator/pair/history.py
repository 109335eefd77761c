"""Hours-old blocks of batches, as two replicas have them of which one was away for ten minutes for good."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyrometer_simulator.training_nodes import STEPS

RUN = "old-run"
# Apart from each other: Prometheus merges blocks that overlap, and a sidecar uploads none that was merged.
AGO_SECONDS = 5 * 3600, 9 * 3600
SECONDS = 1800
# Replica a has nothing of this time.
GAP = (600, 1200)


@dataclass(frozen=True)
class History:
    """Batches in pairs that are a millisecond apart.

    Attributes:
        begin: Unix time of the first.
        every: seconds from one pair to the next.
    """

    begin: float
    every: float

    @property
    def count(self) -> int:
        """How many batches there are."""
        return 2 * int(SECONDS / self.every)

    @property
    def run(self) -> str:
        """The name of their run."""
        return f"{RUN}-{self.every:g}s"

    @property
    def end(self) -> float:
        """A Unix time after the last."""
        return self.begin + SECONDS + 1.0

    def write(self, promtool: Path, folder: Path, gap: bool) -> None:
        """Write them as blocks into a Prometheus' folder of data, with or without the gap."""
        text = folder.with_name(f"{self.run}.txt")
        text.write_text("\n".join((*self._lines(gap), "# EOF", "")))
        command = [str(promtool), "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder)]
        subprocess.run(command, check=True, capture_output=True)

    def _lines(self, gap: bool) -> Iterator[str]:
        yield f"# TYPE {STEPS} gauge"
        labels = f'cluster="simulated",node="gpu-009",job="batches",run="{self.run}"'
        for number in range(self.count):
            at = number // 2 * self.every + number % 2 * 0.001
            if not (gap and GAP[0] <= at < GAP[1]):
                yield f"{STEPS}{{{labels}}} {number} {self.begin + at:.3f}"


def histories() -> list[History]:
    """Return one of fast steps of five hours ago, and one of slow steps of nine hours ago."""
    now = float(int(time.time()))
    return [History(now - ago, every) for ago, every in zip(AGO_SECONDS, (0.2, 10.0), strict=True)]
