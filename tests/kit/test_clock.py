"""A wall clock that is set makes no time pass, and takes none away."""

from __future__ import annotations

import pytest

from pyrometer_kit.clock import FileAge, Jumps

HOURS = 3600.0


class SetClock:
    """A manual clock whose wall time a test sets apart from the monotonic one."""

    def __init__(self) -> None:
        self.seconds, self.ahead = 1_800_000_000.0, 0.0

    def wall(self) -> float:
        return self.seconds + self.ahead

    def monotonic(self) -> float:
        return self.seconds


@pytest.mark.parametrize("jump", [5 * HOURS, -5 * HOURS])
def test_a_jump_is_noticed_once_and_a_correction_is_none(jump: float) -> None:
    clock = SetClock()
    jumps = Jumps(clock)
    clock.seconds += 7 * 86_400
    clock.ahead += 0.5
    assert not jumps.happened()
    clock.ahead += jump
    assert jumps.happened()
    assert not jumps.happened()


@pytest.mark.parametrize("jump", [5 * HOURS, 0.0, -5 * HOURS])
def test_a_file_ages_as_time_passes_whatever_the_clock_says(jump: float) -> None:
    clock = SetClock()
    age = FileAge(clock)
    touched = clock.wall() - 60
    assert age.of(touched) == 60
    clock.ahead += jump
    clock.seconds += 10
    assert age.of(touched) == 70
    assert age.of(clock.wall()) == 0, "touched again"
    clock.seconds += 10
    assert age.of(clock.wall() - 10) == 10
    assert age.of(clock.wall() + 5 * HOURS) == 0, "of the future"
