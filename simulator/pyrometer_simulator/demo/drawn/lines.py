"""Lines and states over time, as SVG."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Callable, Sequence

from pyrometer_kit.prometheus import Series
from pyrometer_simulator.demo.drawn.query import Window

LEFT, NAMES, BOTTOM, ROW = 62, 160, 18, 18
_COLOURS = (
    "#5794f2",
    "#ff9830",
    "#73bf69",
    "#f2495c",
    "#b877d9",
    "#fade2a",
    "#8ab8ff",
    "#ffcb7d",
    "#96d98d",
    "#ff7383",
)
# Beyond this the lines of a small picture can't be told apart; the legend says how many there are.
MOST_LINES = 40
MOST_NAMES = 8

Named = Sequence[tuple[str, Series]]


def colour(number: int) -> str:
    """Return the colour of the line of this number."""
    return _COLOURS[number % len(_COLOURS)]


def lines(
    named: Named,
    window: Window,
    size: tuple[int, int],
    text: Callable[[float], str],
    limits: tuple[float | None, float | None],
) -> str:
    """Return a picture of series over the window, with the values at both ends of its scale."""
    width, height = size
    values = [value for _, series in named for _, value in series.points if math.isfinite(value)]
    if not values:
        return ""
    low = min(values) if limits[0] is None else limits[0]
    high = max(*values, low) if limits[1] is None else limits[1]
    high = high if high > low else low + (abs(low) or 1.0)

    def share(value: float) -> float:
        return (min(max(value, low), high) - low) / (high - low)

    def across(at: float) -> float:
        return LEFT + (width - LEFT - 4) * (at - window.start) / (window.end - window.start)

    drawn = []
    for number, (_, series) in enumerate(named[:MOST_LINES]):
        points = " ".join(
            f"{across(at):.1f},{(height - BOTTOM) * (1 - share(value)) + 2:.1f}"
            for at, value in series.points
            if math.isfinite(value)
        )
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{colour(number)}" stroke-width="1.3"/>')
    scale = _label(4, 12, text(high)) + _label(4, height - BOTTOM, text(low))
    return _picture(size, scale + "".join(drawn) + _times(window, size))


def states(named: Named, window: Window, width: int, shown: Callable[[float], tuple[str, str]]) -> str:
    """Return a picture with a row for each series, coloured by its state; ``shown`` gives its text and colour."""
    height = ROW * len(named) + BOTTOM
    drawn = []
    for number, (name, series) in enumerate(named):
        top = ROW * number
        drawn.append(_label(4, top + 12, name))
        for at, value in series.points:
            if math.isfinite(value):
                wide = max(1.0, (width - NAMES) * window.step / (window.end - window.start))
                left = NAMES + (width - NAMES) * (at - window.start) / (window.end - window.start)
                words, tint = shown(value)
                drawn.append(
                    f'<rect x="{left:.1f}" y="{top + 2}" width="{wide:.1f}" height="{ROW - 4}" '
                    f'fill="{html.escape(tint or "#7887a0")}"><title>{html.escape(words)}</title></rect>'
                )
    return _picture((width, height), "".join(drawn) + _times(window, (width, height), NAMES))


def _picture(size: tuple[int, int], content: str) -> str:
    return f'<svg viewBox="0 0 {size[0]} {size[1]}" width="100%" font-size="11">{content}</svg>'


def _times(window: Window, size: tuple[int, int], left: int = LEFT) -> str:
    first, last = (time.strftime("%H:%M:%S", time.localtime(at)) for at in (window.start, window.end))
    return _label(left, size[1] - 4, first) + _label(size[0] - 4, size[1] - 4, last, "end")


def _label(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" fill="currentColor" text-anchor="{anchor}">{html.escape(text)}</text>'
