"""Slack's own chart block, drawn by Slack itself, and the same chart as SVG and as a line of characters.

Limits (docs.slack.dev, data visualization block): title 50, 1-6 series with unique names of at most 20 characters, 1-20
points each with labels of at most 20, which must be the axis' categories; two charts a message. It draws no band and no
marker, so the expected MFU is a series of its own.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from pyrometer_alerting.model import text
from pyrometer_alerting.model.incident import ChartCurve

MAX_POINTS = 20
TITLE = 50
LABEL = 20


def chart_block(curve: ChartCurve, run: str) -> dict[str, Any] | None:
    """Return the chart of a run's MFU; None if there are too few points for a line."""
    labels = _labels(curve.at[-MAX_POINTS:])
    if len(labels) < 2:
        return None
    lines = {
        "median batch": curve.median[-MAX_POINTS:],
        "lowest batch": curve.lowest[-MAX_POINTS:],
        "expected": (curve.expected,) * len(labels),
    }
    return {
        "type": "data_visualization",
        "title": text.plain(f"MFU of run {run}" if text.clean(run) else "MFU", TITLE),
        "chart": {
            "type": "line",
            "series": [
                {"name": name, "data": [_point(label, ratio) for label, ratio in zip(labels, ratios, strict=True)]}
                for name, ratios in lines.items()
            ],
            "axis_config": {"categories": labels, "x_label": "UTC", "y_label": "MFU, %"},
        },
    }


def _labels(times: tuple[float, ...]) -> list[str]:
    """Format times of day, with seconds if two points share a minute, with the date if two share the second."""
    for style in ("%H:%M", "%H:%M:%S", "%m-%d %H:%M:%S"):
        labels = [datetime.fromtimestamp(time, tz=timezone.utc).strftime(style) for time in times]
        if len(set(labels)) == len(labels):
            return labels
    return [str(index) for index, _ in enumerate(times, start=1)]


def _point(label: str, ratio: float) -> dict[str, Any]:
    return {"label": label, "value": round(100 * ratio, 1)}


def bar_block(title: str, series: Mapping[str, Sequence[tuple[str, float]]], unit: str) -> dict[str, Any] | None:
    """Return bars by category, the same categories for every series; None without data."""
    lines = {name: list(points)[:MAX_POINTS] for name, points in series.items() if points}
    if not lines:
        return None
    categories = _distinct([label for label, _ in next(iter(lines.values()))])
    return {
        "type": "data_visualization",
        "title": text.plain(title, TITLE),
        "chart": {
            "type": "bar",
            "series": [
                {
                    "name": text.plain(name, LABEL),
                    "data": [
                        {"label": label, "value": value} for label, (_, value) in zip(categories, points, strict=True)
                    ],
                }
                for name, points in lines.items()
            ],
            "axis_config": {"categories": categories, "x_label": "", "y_label": text.plain(unit, TITLE)},
        },
    }


def _distinct(labels: Sequence[str]) -> list[str]:
    """Cut labels to LABEL characters and number those that would be equal."""
    distinct: list[str] = []
    for label in labels:
        short = text.words(label, LABEL) or "?"
        number = 2
        while short in distinct:
            short = f"{text.plain(label, LABEL - 3)} {number}"
            number += 1
        distinct.append(short)
    return distinct


WIDTH, HEIGHT = 720, 190
LEFT, RIGHT, TOP, BOTTOM = 40, 150, 12, 24
_BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"


def svg(block: Mapping[str, Any]) -> str:
    """Draw the lines of a chart block as SVG; colours are classes of page.css, so that they suit both themes."""
    series, labels = block["chart"]["series"], block["chart"]["axis_config"]["categories"]
    top = 1.1 * max([point["value"] for line in series for point in line["data"]] + [1e-9])
    lines = "".join(_line(line, index, top) for index, line in enumerate(series))
    label = html.escape(f"{block['title']}: {sparkline(block)}", quote=True)
    return (
        f'<figure class="chart"><figcaption>{html.escape(block["title"])}, %</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{_grid(top)}{_times(labels)}{lines}'
        f"{_names(series, top)}</svg></figure>"
    )


def sparkline(block: Mapping[str, Any]) -> str:
    """Draw the first line of a chart block as `45.1 ▇▇▇▃▃ 33.0 %, expected 45.0 %`."""
    lines = {line["name"]: [point["value"] for point in line["data"]] for line in block["chart"]["series"]}
    values = next(iter(lines.values()))
    top = max(max(points) for points in lines.values()) or 1.0
    bars = "".join(_BARS[min(int(value / top * len(_BARS)), len(_BARS) - 1)] for value in values)
    expected = f", expected {lines['expected'][-1]:.1f} %" if "expected" in lines else ""
    return f"{values[0]:.1f} {bars} {values[-1]:.1f} %{expected}"


def _line(line: Mapping[str, Any], index: int, top: float) -> str:
    points = line["data"]
    path = " ".join(f"{_x(i, len(points)):.1f},{_y(point['value'], top):.1f}" for i, point in enumerate(points))
    return f'<polyline class="line{index}" points="{path}"/>'


def _grid(top: float) -> str:
    step = next(step for step in (1, 2, 5, 10, 20, 25, 50, 100, 1e9) if top / step <= 5)
    levels = [level * step for level in range(int(top / step) + 1)]
    return "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{_y(level, top):.1f}" y2="{_y(level, top):.1f}"/>'
        f'<text x="{LEFT - 8}" y="{_y(level, top) + 4:.1f}" text-anchor="end">{level:g}</text>'
        for level in levels
    )


def _times(labels: Sequence[str]) -> str:
    every = max(len(labels) // 5, 1)
    return "".join(
        f'<text x="{_x(index, len(labels)):.1f}" y="{HEIGHT - 6}" text-anchor="middle">{html.escape(label)}</text>'
        for index, label in enumerate(labels)
        if index % every == 0
    )


def _names(series: Sequence[Mapping[str, Any]], top: float) -> str:
    """Label each line at its end, moving labels apart, so that no legend and no colour is needed."""
    ends = sorted((_y(line["data"][-1]["value"], top), index) for index, line in enumerate(series))
    labels, last = [], -100.0
    for height, index in ends:
        last = max(height, last + 15)
        name = html.escape(f"{series[index]['name']} {series[index]['data'][-1]['value']:.1f}")
        labels.append(f'<text class="name{index}" x="{WIDTH - RIGHT + 8}" y="{last + 4:.1f}">{name}</text>')
    return "".join(labels)


def _x(index: int, count: int) -> float:
    return LEFT + index * (WIDTH - LEFT - RIGHT) / max(count - 1, 1)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)
