from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyrometer_simulator.incidents.sentences import loss_began
from pyrometer_simulator.incidents.training import Attempt

FAULT, STEP = 1000.0, 5.0


@dataclass(frozen=True)
class Layout:
    mfu: float = 0.4


@dataclass
class CurveWorld:
    """A run of one attempt with low MFU in these spells."""

    spells: tuple[tuple[float, float], ...]
    at: float = FAULT
    layout: Layout = Layout()

    @property
    def attempts(self) -> list[Attempt]:
        ends = np.arange(0.0, 3000.0, STEP)
        mfu = np.full(len(ends), 0.4)
        for begin, end in self.spells:
            mfu[(ends > begin) & (ends <= end)] = 0.2
        tags, parts = [""] * len(ends), np.zeros((len(ends), 1, 1), dtype=np.float32)
        return [Attempt(0, 0.0, [0], ends, parts, tags, mfu, 0)]


def began(*spells: tuple[float, float], fired: float) -> float:
    return loss_began(CurveWorld(spells), fired)  # type: ignore[arg-type]


def test_a_loss_that_goes_on_began_with_the_fault() -> None:
    assert began((FAULT, 3000.0), fired=1500.0) == FAULT


def test_stalls_with_short_pauses_are_one_loss() -> None:
    assert began(*((FAULT + 40.0 * n, FAULT + 40.0 * n + 10.0) for n in range(20)), fired=1700.0) == FAULT


def test_a_spell_that_no_rule_reported_is_no_part_of_the_next_one() -> None:
    assert began((FAULT, FAULT + 60), (FAULT + 300, FAULT + 400), fired=FAULT + 320) == FAULT + 300 + STEP


def test_what_follows_the_alert_does_not_move_the_beginning() -> None:
    assert began((FAULT, FAULT + 60), (FAULT + 300, FAULT + 400), fired=FAULT + 60) == FAULT
