"""The colours of all boards, and their perceived distance.

Healthy is quiet, so that one bad cell stands out; unknown values are never drawn as healthy. The state colours keep a
distance that people with each of the three kinds of colour blindness can see; a test checks it.
"""

from __future__ import annotations

from itertools import combinations

HEALTHY = "#5b7cb5"
# Ochre, rust, red: on both themes, and for every eye, the worst stands out most. A signal yellow would shout louder
# than any red on a dark board.
WATCH = "#9f7940"
BAD = "#c03c1f"
WORST = "#ff1f00"
STATES = (HEALTHY, WATCH, BAD, WORST)

NO_DATA = "#808080"
# On maps and in tables: a quiet tint that lets the theme's background through, in both themes.
QUIET = "rgba(120, 130, 150, 0.22)"
# A GPU without work, on the map.
IDLE = "rgba(120, 130, 150, 0.6)"
# The backgrounds of panels in Grafana's dark and light theme.
THEMES = ("#181b1f", "#ffffff")
# Grafana's name for the colour of text: white on dark, near-black on light. It marks absent values on a map.
TEXT = "text"

BAND = "#5794f2"
# A second line beside that of a band.
BESIDE = "#6e9fa5"
REFERENCE = "#8ab8ff"

# The parts of a step in stacking order: computation below, overhead above.
PARTS = {
    "forward": "#3274d9",
    "backward": "#5794f2",
    "optimizer": "#8ab8ff",
    "data": "#f2cc0c",
    "wait": "#ff780a",
    "gc": "#8f3bb8",
    "checkpoint": "#705da0",
    "eval": BESIDE,
}

# GPUs, ports or rails of one node, by number: visible on dark and on light.
NUMBERED = ("#7ea6ce", "#e98f63", "#bc63e9", "#c9ac1d", "#316781", "#9c4316", "#7036e2", "#8e8e8e")

# Runs and other names that are not known beforehand: no colour that means a state.
RUNS = ("#8693c4", "#ad59f1", "#7e238e", "#3e2aed", "#0da57f")

# Reasons that slow clocks: heat in the colours of heat, power in violet, the normal cap quiet.
REASONS = {
    "hw_thermal": "#b0121f",
    "sw_thermal": "#ff780a",
    "hw_slowdown": "#f2cc0c",
    "hw_power_brake": "#8f3bb8",
    "power_cap": HEALTHY,
    "sync_boost": BESIDE,
    "clocks_setting": "#8ab8ff",
    "display_clocks": "#808080",
    "board_limit": "#c4a0e0",
    "reliability": "#3f6833",
}

# The states of the goodput ledger: useful in quiet blue, losses in the colours of loss.
LEDGER = {
    "useful": HEALTHY,
    "checkpoint": "#e0c8f5",
    "eval": "#8ab8ff",
    "init": "#f2cc0c",
    "rework": "#ff780a",
    "down": "#b0121f",
    "other": NO_DATA,
}

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


def salience(colour: str, theme: str, eye: str = "normal") -> float:
    """Return how much a colour stands out from the background of a theme, one of THEMES, in the unit of `distance`."""
    return distance(colour, theme, eye)


def closest(colours: tuple[str, ...], eye: str) -> float:
    """Return the smallest distance between any two of the colours."""
    return min(distance(one, other, eye) for one, other in combinations(colours, 2))
