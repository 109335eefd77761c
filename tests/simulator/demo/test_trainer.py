"""The demo's training run: its MFU, and a pace that a busy machine does not change."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrometer_exporters.node.train.peaks import peak_flops
from pyrometer_simulator.demo import trainer
from pyrometer_simulator.demo.scenario import HOT_CLOCK_MHZ
from pyrometer_simulator.demo.topology import GPUS_PER_NODE, TRAINING_NODES
from pyrometer_simulator.demo.trainer import Settings, Trainer
from pyrometer_simulator.vocabulary import MODEL


class Clock:
    """The module `time` of the trainer: each sleep ends later than asked, as on a busy machine."""

    def __init__(self, late: float) -> None:
        self.now = 1000.0
        self._late = late

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + (self._late if seconds else 0.0)


class Hardware:
    """Healthy, for so many steps."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def uuid(self, node: str, gpu: int) -> str:
        return f"{node}-{gpu}"

    def slowest(self) -> tuple[None, float]:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1
        return None, 1.0

    def links_up(self) -> bool:
        return True


def test_the_run_makes_41_percent_of_its_gpus_peak_and_25_with_a_hot_one() -> None:
    peak = peak_flops(MODEL, "bf16")
    assert peak is not None
    flops = trainer.FLOPS_PER_TOKEN * trainer.SEQUENCE * trainer.SEQUENCES
    mfu = flops / (trainer.STEP_SECONDS * len(TRAINING_NODES) * GPUS_PER_NODE * peak)
    assert mfu == pytest.approx(0.41, abs=0.005)
    assert mfu * HOT_CLOCK_MHZ / 1980 == pytest.approx(0.25, abs=0.005)


@pytest.mark.parametrize("late", [0.0, 0.01, 0.02])
def test_steps_that_end_late_leave_the_pace_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, late: float
) -> None:
    clock = Clock(late)
    monkeypatch.setattr(trainer, "time", clock)
    run = Trainer(Settings("r", str(tmp_path), ("n",), 1), Hardware(40))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        run.train()
    run.close()
    assert clock.now - 1000 == pytest.approx(40 * trainer.STEP_SECONDS, abs=trainer.STEP_SECONDS / 2)
