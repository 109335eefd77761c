"""Colours that everyone can tell apart."""

from __future__ import annotations

import pytest

from pyrometer_dashboards import palette


@pytest.mark.parametrize("eye", palette.BLINDNESS)
def test_states_and_no_data_keep_their_distance(eye: str) -> None:
    assert palette.closest((*palette.STATES, palette.NO_DATA), eye) >= 15


@pytest.mark.parametrize("eye", palette.BLINDNESS)
@pytest.mark.parametrize("colours", [palette.PARTS, palette.LEDGER], ids=["parts", "ledger"])
def test_parts_of_a_whole_can_be_told_apart(colours: dict[str, str], eye: str) -> None:
    assert palette.closest(tuple(colours.values()), eye) >= 9


def test_grafanas_own_traffic_light_would_fail() -> None:
    assert palette.closest(("#73BF69", "#FADE2A", "#FF9830", "#F2495C"), "deutan") < 10


@pytest.mark.parametrize("eye", palette.BLINDNESS)
def test_lines_of_eight_can_be_told_apart(eye: str) -> None:
    assert palette.closest(palette.NUMBERED, eye) >= 20


@pytest.mark.parametrize("eye", palette.BLINDNESS)
def test_runs_can_be_told_apart_and_from_states(eye: str) -> None:
    assert palette.closest(palette.RUNS, eye) >= 25
    states = (palette.WATCH, palette.BAD, palette.WORST)
    assert min(palette.distance(run, state, eye) for run in palette.RUNS for state in states) >= 25
