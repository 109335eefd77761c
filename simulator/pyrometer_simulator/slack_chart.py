"""The chart block on the fake Slack's page: lines as SVG, roughly as Slack draws them."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 220, 44, 12, 12, 40
_COLOURS = ("#1264a3", "#e8912d", "#2eb67d", "#e01e5a", "#7c5cff", "#36c5f0")


def chart(block: Mapping[str, Any]) -> str:
    """A data_visualization block as HTML."""
    drawn = block["chart"]
    series, axis = drawn["series"], drawn.get("axis_config") or {}
    values = [point["value"] for line in series for point in line["data"]]
    top = max([*values, 1e-9]) * 1.08
    draw = _bars if drawn["type"] == "bar" else _line
    lines = "".join(draw(line["data"], top, index, len(series)) for index, line in enumerate(series))
    legend = "".join(
        f'<span style="color:{_COLOURS[index]}">\u25cf</span> {html.escape(line["name"])} &nbsp;'
        for index, line in enumerate(series)
    )
    return (
        f'<figure class="chart"><figcaption>{html.escape(block["title"])}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{_axes(axis, top)}{lines}</svg>'
        f'<p class="t">{legend}</p></figure>'
    )


def _axes(axis: Mapping[str, Any], top: float) -> str:
    floor = _HEIGHT - _BOTTOM
    grid = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{_y(top * part, top)}" y2="{_y(top * part, top)}"/>'
        f'<text x="{_LEFT - 6}" y="{_y(top * part, top) + 4}" text-anchor="end">{top * part:.3g}</text>'
        for part in (0, 0.25, 0.5, 0.75, 1)
    )
    categories = axis.get("categories") or []
    every = max(len(categories) // 5, 1)
    labels = "".join(
        f'<text x="{_x(index, len(categories))}" y="{floor + 16}" text-anchor="middle">{html.escape(label)}</text>'
        for index, label in enumerate(categories)
        if index % every == 0
    )
    names = (
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 4}" text-anchor="middle">{html.escape(axis.get("x_label", ""))}</text>'
    )
    return grid + labels + names


def _bars(points: Sequence[Mapping[str, Any]], top: float, index: int, count: int) -> str:
    width = 0.7 * (_WIDTH - _LEFT - _RIGHT) / max(len(points), 1) / count
    return "".join(
        f'<rect x="{_x(place, len(points)) + (index - count / 2) * width:.1f}" y="{_y(point["value"], top):.1f}" '
        f'width="{width:.1f}" height="{_HEIGHT - _BOTTOM - _y(point["value"], top):.1f}" fill="{_COLOURS[index]}"/>'
        for place, point in enumerate(points)
    )


def _line(points: Sequence[Mapping[str, Any]], top: float, index: int, _count: int) -> str:
    colour = _COLOURS[index]
    path = " ".join(f"{_x(i, len(points)):.1f},{_y(point['value'], top):.1f}" for i, point in enumerate(points))
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _x(index: int, count: int) -> float:
    return _LEFT + (index + 0.5) * (_WIDTH - _LEFT - _RIGHT) / max(count, 1)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)
