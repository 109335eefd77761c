"""Colours that everyone can tell apart."""

from __future__ import annotations

from itertools import combinations

import pytest

from pyrometer_dashboards import palette

# Machado, Oliveira, Fernandes 2009: matrices on linear RGB for full severity.
_BLINDNESS = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
BLINDNESS = tuple(_BLINDNESS)

_TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
_WHITE = (0.95047, 1.0, 1.08883)

Vector = tuple[float, float, float]


def _times(matrix: tuple[Vector, Vector, Vector], vector: Vector) -> Vector:
    rows = [sum(cell * value for cell, value in zip(row, vector, strict=True)) for row in matrix]
    return rows[0], rows[1], rows[2]


def _linear(colour: str) -> Vector:
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    rows = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]
    return rows[0], rows[1], rows[2]


def _lab(linear: Vector) -> Vector:
    clipped = tuple(min(1.0, max(0.0, value)) for value in linear)
    xyz = _times(_TO_XYZ, (clipped[0], clipped[1], clipped[2]))
    scaled = [value / white for value, white in zip(xyz, _WHITE, strict=True)]
    x, y, z = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in scaled)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def distance(one: str, other: str, eye: str = "normal") -> float:
    """Return how different two colours (``#rrggbb``) look (CIE76: 2 is just visible); ``eye`` is one of BLINDNESS."""
    left, right = (_lab(_times(_BLINDNESS[eye], _linear(colour))) for colour in (one, other))
    return float(sum((a - b) ** 2 for a, b in zip(left, right, strict=True)) ** 0.5)


def closest(colours: tuple[str, ...], eye: str) -> float:
    """Return the smallest distance between any two of the colours."""
    return min(distance(one, other, eye) for one, other in combinations(colours, 2))


@pytest.mark.parametrize("eye", BLINDNESS)
def test_states_and_no_data_keep_their_distance(eye: str) -> None:
    # 2 is just visible. More apart would cost the worst its lead: see below.
    assert closest((*palette.STATES, palette.NO_DATA), eye) >= 13


@pytest.mark.parametrize("theme", palette.THEMES)
@pytest.mark.parametrize("eye", BLINDNESS)
def test_the_worst_stands_out_most(eye: str, theme: str) -> None:
    *others, worst = (distance(colour, theme, eye) for colour in palette.STATES)
    assert worst >= max(others) + 3


@pytest.mark.parametrize("theme", palette.THEMES)
def test_each_state_stands_out_more_than_the_better_one(theme: str) -> None:
    order = [distance(colour, theme) for colour in palette.STATES]
    assert order == sorted(order)


def test_a_dark_red_beside_a_signal_yellow_would_fail() -> None:
    dark = palette.THEMES[0]
    assert distance("#b0121f", dark) < distance("#f2cc0c", dark)
    assert distance("#b0121f", dark, "protan") < distance(palette.HEALTHY, dark, "protan")


@pytest.mark.parametrize("eye", BLINDNESS)
@pytest.mark.parametrize("colours", [palette.PARTS, palette.LEDGER], ids=["parts", "ledger"])
def test_parts_of_a_whole_can_be_told_apart(colours: dict[str, str], eye: str) -> None:
    assert closest(tuple(colours.values()), eye) >= 9


def test_grafanas_own_traffic_light_would_fail() -> None:
    assert closest(("#73BF69", "#FADE2A", "#FF9830", "#F2495C"), "deutan") < 10


@pytest.mark.parametrize("eye", BLINDNESS)
def test_lines_of_eight_can_be_told_apart(eye: str) -> None:
    assert closest(palette.NUMBERED, eye) >= 20


@pytest.mark.parametrize("eye", BLINDNESS)
def test_runs_can_be_told_apart_and_from_states(eye: str) -> None:
    assert closest(palette.RUNS, eye) >= 25
    states = (palette.WATCH, palette.BAD, palette.WORST)
    assert min(distance(run, state, eye) for run in palette.RUNS for state in states) >= 23
