"""The colours of all boards.

Healthy is quiet, so that one bad cell stands out; unknown values are never drawn as healthy. The state colours keep a
distance that people with each of the three kinds of colour blindness can see; a test checks it.
"""

from __future__ import annotations

HEALTHY = "#5b7cb5"
# Ochre, rust, red: on both themes, and for every eye, the worst stands out most. A signal yellow would shout louder
# than any red on a dark board.
WATCH = "#9f7940"
BAD = "#c03c1f"
WORST = "#ff1f00"
STATES = (HEALTHY, WATCH, BAD, WORST)

NO_DATA = "#808080"
# The tile of a number that is not there: greyer than a healthy one, and quieter than any that is not.
ABSENT = "rgba(128, 128, 128, 0.4)"
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
