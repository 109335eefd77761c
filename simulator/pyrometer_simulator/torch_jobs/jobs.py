"""Jobs under monitoring: start them, wait for their first steps, play faults on their processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from signal import Signals

from pyrometer import ring
from pyrometer_exporters.node.train.rings import RingFile
from pyrometer_simulator.demo.processes import DemoError
from pyrometer_simulator.torch_jobs.monitoring import Monitoring
from pyrometer_simulator.torch_jobs.spec import RANKS_PER_NODE, JobSpec, node_name, to_json

LOOK_SECONDS = 1.0
PART_LOOK_SECONDS = 0.001
END_SECONDS = 30.0


class Jobs:
    """Running jobs; the processes of their ranks are known by their ids."""

    def __init__(self, specs: Sequence[JobSpec], monitoring: Monitoring, pids: Mapping[tuple[str, int], int]) -> None:
        self.specs = specs
        self.monitoring = monitoring
        self.pids = pids
        self.began: dict[str, float] = {}

    def watch(self, seconds: float, done: Callable[[], bool] = lambda: False) -> None:
        """Look at the alerts every second for so long, or until ``done``."""
        end = time.time() + seconds
        while time.time() < end and not done():
            self.monitoring.look()
            self._note_first_steps()
            time.sleep(LOOK_SECONDS)

    def wait_for_steps(self, steps: int, seconds: float = 300.0) -> None:
        """Wait until every rank of every job has made so many steps. Raises DemoError."""
        runs = "|".join(spec.run for spec in self.specs)
        ready = f'count(pyrometer_train_steps_total{{run=~"{runs}"}} >= {steps})'
        ranks = sum(spec.ranks for spec in self.specs if spec.client)
        self.watch(seconds, lambda: (self.monitoring.prometheus.value(ready) or 0) >= ranks)
        if (self.monitoring.prometheus.value(ready) or 0) < ranks:
            msg = f"not every rank made {steps} steps in {seconds:.0f} s: see the logs in {self.monitoring.folder}"
            raise DemoError(msg)

    def signal(self, run: str, rank: int, number: Signals) -> None:
        """Send a signal to a rank."""
        os.kill(self.pids[run, rank], number)

    def signal_in(self, run: str, rank: int, number: Signals, part: str, seconds: float = 60.0) -> None:
        """Send a signal to a rank as soon as it is in this part of a step. Raises DemoError."""
        file, end = self._ring(run, rank), time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                if file.header().part == 1 + ring.PARTS.index(part):
                    self.signal(run, rank, number)
                    return
                time.sleep(PART_LOOK_SECONDS)
        finally:
            file.close()
        msg = f"rank {rank} of {run} was not seen in {part} in {seconds:.0f} s"
        raise DemoError(msg)

    def _ring(self, run: str, rank: int) -> RingFile:
        for path in (self.monitoring.folder / node_name(rank // RANKS_PER_NODE) / "rings").glob(f"*{ring.SUFFIX}"):
            file = RingFile(str(path))
            if (file.meta.run, file.meta.rank) == (run, str(rank)):
                return file
            file.close()
        msg = f"rank {rank} of {run} has no ring"
        raise DemoError(msg)

    def _note_first_steps(self) -> None:
        for spec in self.specs:
            if spec.client and spec.run not in self.began:
                found = self.monitoring.prometheus.values(f'pyrometer_train_steps_total{{run="{spec.run}"}} > 0')
                if found:
                    self.began[spec.run] = time.time()


@contextlib.contextmanager
def running(specs: Sequence[JobSpec], monitoring: Monitoring) -> Iterator[Jobs]:
    """Run jobs under monitoring for the length of the block."""
    with launched(specs, monitoring.folder) as pids:
        yield Jobs(specs, monitoring, pids)


@contextlib.contextmanager
def launched(specs: Sequence[JobSpec], folder: Path) -> Iterator[dict[tuple[str, int], int]]:
    """Run jobs for the length of the block, and yield the process ids by run and rank; all are ended after it."""
    pids: dict[tuple[str, int], int] = {}
    command = [sys.executable, "-m", "pyrometer_simulator.torch_jobs.launch", str(folder)]
    log = (folder / "launch.log").open("w", encoding="utf-8")
    with log, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
    ) as launcher:  # fmt: skip
        assert launcher.stdin is not None  # noqa: S101  asked for with PIPE
        assert launcher.stdout is not None  # noqa: S101  asked for with PIPE
        try:
            launcher.stdin.write(to_json(specs) + "\n")
            launcher.stdin.flush()
            for line in launcher.stdout:
                found = json.loads(line)
                if not found:
                    break
                pids[found["run"], found["rank"]] = found["pid"]
            yield pids
        finally:
            launcher.terminate()
            launcher.wait(END_SECONDS)
