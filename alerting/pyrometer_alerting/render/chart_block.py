"""Slack's own chart block, lines and bars that Slack draws: no picture to make or to upload.

Limits (docs.slack.dev, data visualization block): title 50, 1-6 series with unique names of at most 20 characters, 1-20
points each with labels of at most 20, which must be the axis' categories; two charts a message. It draws no band and no
marker, so the expected MFU is a series of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from pyrometer_alerting.model import text
from pyrometer_alerting.model.incident import Curve

MAX_POINTS = 20
TITLE = 50
LABEL = 20


def chart_block(curve: Curve, run: str) -> dict[str, Any] | None:
    """The block, or None where there are too few points for a line."""
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
    """Times of the day; with seconds where two points share a minute, with the date where two share the second."""
    for style in ("%H:%M", "%H:%M:%S", "%m-%d %H:%M:%S"):
        labels = [datetime.fromtimestamp(time, tz=timezone.utc).strftime(style) for time in times]
        if len(set(labels)) == len(labels):
            return labels
    return [str(index) for index, _ in enumerate(times, start=1)]


def _point(label: str, ratio: float) -> dict[str, Any]:
    return {"label": label, "value": round(100 * ratio, 1)}


def bar_block(title: str, series: Mapping[str, Sequence[tuple[str, float]]], unit: str) -> dict[str, Any] | None:
    """Bars by category; every series has the same categories. None where there is nothing to draw."""
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
    """Labels of at most LABEL characters, none twice: a number tells cut ones apart."""
    found: list[str] = []
    for label in labels:
        short = text.words(label, LABEL) or "?"
        number = 2
        while short in found:
            short = f"{text.plain(label, LABEL - 3)} {number}"
            number += 1
        found.append(short)
    return found
