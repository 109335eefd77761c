"""Colours that everyone can tell apart."""

from __future__ import annotations

import pytest

from pyrometer_dashboards import palette


@pytest.mark.parametrize("eye", palette.BLINDNESS)
def test_states_and_no_data_keep_their_distance(eye: str) -> None:
    # 2 is just visible. More apart would cost the worst its lead: see below.
    assert palette.closest((*palette.STATES, palette.NO_DATA), eye) >= 13


@pytest.mark.parametrize("theme", palette.THEMES)
@pytest.mark.parametrize("eye", palette.BLINDNESS)
def test_the_worst_stands_out_most(eye: str, theme: str) -> None:
    *others, worst = (palette.salience(colour, theme, eye) for colour in palette.STATES)
    assert worst >= max(others) + 3


@pytest.mark.parametrize("theme", palette.THEMES)
def test_each_state_stands_out_more_than_the_better_one(theme: str) -> None:
    order = [palette.salience(colour, theme) for colour in palette.STATES]
    assert order == sorted(order)


def test_a_dark_red_beside_a_signal_yellow_would_fail() -> None:
    dark = palette.THEMES[0]
    assert palette.salience("#b0121f", dark) < palette.salience("#f2cc0c", dark)
    assert palette.salience("#b0121f", dark, "protan") < palette.salience(palette.HEALTHY, dark, "protan")


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
    assert min(palette.distance(run, state, eye) for run in palette.RUNS for state in states) >= 23
