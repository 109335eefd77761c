"""A chart block of bars as a picture: one series lies, with its names before it; several stand side by side.

Each series has an axis of its own: 400 link flaps would make 12 Xids invisible. Every bar has its number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from pyrometer_alerting.render.canvas import BLUE, DIM, HEIGHT, INK, figure_of, heading, plain_axis, png, shown

ROW = 0.42  # inches for a lying bar


def draw_bars(block: Mapping[str, Any]) -> bytes:
    """The picture as PNG."""
    series = block["chart"]["series"]
    lying = len(series) == 1
    height = 0.85 + ROW * len(series[0]["data"]) if lying else 0.75 * HEIGHT
    left, above, below = (0.24, 0.6, 0.15) if lying else (0.05, 0.9, 0.65)  # above and below in inches
    figure = figure_of(height)
    axes = figure.subplots(1, len(series), squeeze=False)[0]
    figure.subplots_adjust(left=left, right=0.96, top=1 - above / height, bottom=below / height, wspace=0.2)
    heading(figure, 1 - 0.3 / height, _title(block), color=INK, fontsize=12.5, fontweight="bold")
    for axis, line in zip(axes, series, strict=True):
        if lying:
            _lying(axis, line["data"])
        else:
            _standing(axis, str(line["name"]), line["data"])
    return png(figure)


def _title(block: Mapping[str, Any]) -> str:
    title, unit = str(block["title"]), str(block["chart"]["axis_config"]["y_label"])
    return title if unit in title.lower() else f"{title}, {unit}"


def _lying(axis: Axes, points: Sequence[Mapping[str, Any]]) -> None:
    values = [float(point["value"]) for point in points]
    places = range(len(points))
    axis.barh(places, values, color=BLUE, height=0.6)
    axis.invert_yaxis()
    axis.set_yticks(places, [shown(str(point["label"]), 30) for point in points])
    axis.set_xlim(0, 1.12 * max([*values, 1e-9]))
    for place, value in zip(places, values, strict=True):
        axis.annotate(f" {value:,.0f}", (value, place), va="center", color=INK, fontsize=10)
    plain_axis(axis)
    axis.grid(visible=False)
    axis.spines["bottom"].set_visible(False)
    axis.set_xticks([])
    axis.tick_params(axis="y", labelsize=10, colors=INK)


def _standing(axis: Axes, name: str, points: Sequence[Mapping[str, Any]]) -> None:
    values = [float(point["value"]) for point in points]
    places = range(len(points))
    axis.bar(places, values, color=BLUE, width=0.6)
    labels = [shown(str(point["label"]), 12) for point in points]
    axis.set_xticks(places, labels, rotation=45 if len(points) > 3 else 0, ha="right" if len(points) > 3 else "center")
    axis.set_ylim(0, 1.15 * max([*values, 1.0]))
    for place, value in zip(places, values, strict=True):
        axis.annotate(f"{value:,.0f}", (place, value), ha="center", va="bottom", color=INK, fontsize=10)
    axis.margins(x=0.04)
    axis.set_title(shown(name, 24), fontsize=10.5, color=DIM, loc="left")
    plain_axis(axis)
    axis.set_yticks([])
