"""Common parts of figures: paper, colours, headings, untrusted text, and bar charts.

Matplotlib's objects without pyplot, which keeps figures for ever and wants the main thread. Opaque, so that they read
the same in Slack's dark and light themes; Okabe and Ito's colours, which colour-blind readers can distinguish, and
never colour alone: what is wrong is also named, dashed or shaded. Import this late: Matplotlib is slow to import and
large.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import category

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font

from pyrometer_alerting.model import text

WIDTH, HEIGHT, DPI = 8.0, 4.5, 160  # 1280 x 720 pixels: Slack shows at most 360 points of height
INK, DIM, GRID, PAPER = "#1d1f24", "#5f6670", "#e3e6ea", "#ffffff"
BLUE, VERMILLION, GREY, GREEN = "#0072B2", "#D55E00", "#8a9099", "#009E73"  # Okabe and Ito


def new_figure(height: float = HEIGHT) -> Figure:
    """Return an empty figure of that height in inches."""
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor=PAPER)
    FigureCanvasAgg(figure)
    return figure


def heading(figure: Figure, height: float, content: str, **style: Any) -> None:  # noqa: ANN401 - Matplotlib's
    """Draw a line of text, cut until it fits."""
    limit = 160
    line = figure.text(0.075, height, drawable(content, limit), va="center", **style)
    while line.get_window_extent().x1 > 0.985 * WIDTH * DPI and limit > 10:
        limit -= 6
        line.set_text(drawable(content, limit))


def to_png(figure: Figure) -> bytes:
    """Return the picture; the figure is empty afterwards."""
    written = io.BytesIO()
    figure.savefig(written, format="png", facecolor=PAPER)
    figure.clear()
    return written.getvalue()


def style_axis(axis: Axes) -> None:
    """Remove everything from the axis that is not data."""
    for name, spine in axis.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(GRID)
    axis.grid(axis="y", color=GRID, lw=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(colors=DIM, labelsize=9, length=0)


def drawable(value: str, limit: int) -> str:
    """Make untrusted text drawable: clean, cut, only glyphs of the font, no Matplotlib mathematics."""
    glyphs = get_font(findfont("DejaVu Sans")).get_charmap()
    drawable = "".join(char if ord(char) in glyphs else "" if category(char) == "So" else "\u25a1" for char in value)
    return text.plain(drawable, limit).replace("$", r"\$")


ROW = 0.42  # inches for a horizontal bar


def draw_bars(block: Mapping[str, Any]) -> bytes:
    """Draw a chart block of bars as PNG: one series horizontally, several side by side.

    Each series has an axis of its own: 400 link flaps would make 12 Xids invisible. Every bar is labelled with its
    number.
    """
    series = block["chart"]["series"]
    lying = len(series) == 1
    height = 0.85 + ROW * len(series[0]["data"]) if lying else 0.75 * HEIGHT
    left, above, below = (0.24, 0.6, 0.15) if lying else (0.05, 0.9, 0.65)  # above and below in inches
    figure = new_figure(height)
    axes = figure.subplots(1, len(series), squeeze=False)[0]
    figure.subplots_adjust(left=left, right=0.96, top=1 - above / height, bottom=below / height, wspace=0.2)
    heading(figure, 1 - 0.3 / height, _title(block), color=INK, fontsize=12.5, fontweight="bold")
    for axis, line in zip(axes, series, strict=True):
        if lying:
            _lying(axis, line["data"])
        else:
            _standing(axis, str(line["name"]), line["data"])
    return to_png(figure)


def _title(block: Mapping[str, Any]) -> str:
    title, unit = str(block["title"]), str(block["chart"]["axis_config"]["y_label"])
    return title if unit in title.lower() else f"{title}, {unit}"


def _lying(axis: Axes, points: Sequence[Mapping[str, Any]]) -> None:
    values = [float(point["value"]) for point in points]
    places = range(len(points))
    axis.barh(places, values, color=BLUE, height=0.6)
    axis.invert_yaxis()
    axis.set_yticks(places, [drawable(str(point["label"]), 30) for point in points])
    axis.set_xlim(0, 1.12 * max([*values, 1e-9]))
    for place, value in zip(places, values, strict=True):
        axis.annotate(f" {value:,.0f}", (value, place), va="center", color=INK, fontsize=10)
    style_axis(axis)
    axis.grid(visible=False)
    axis.spines["bottom"].set_visible(False)
    axis.set_xticks([])
    axis.tick_params(axis="y", labelsize=10, colors=INK)


def _standing(axis: Axes, name: str, points: Sequence[Mapping[str, Any]]) -> None:
    values = [float(point["value"]) for point in points]
    places = range(len(points))
    axis.bar(places, values, color=BLUE, width=0.6)
    labels = [drawable(str(point["label"]), 12) for point in points]
    axis.set_xticks(places, labels, rotation=45 if len(points) > 3 else 0, ha="right" if len(points) > 3 else "center")
    axis.set_ylim(0, 1.15 * max([*values, 1.0]))
    for place, value in zip(places, values, strict=True):
        axis.annotate(f"{value:,.0f}", (place, value), ha="center", va="bottom", color=INK, fontsize=10)
    axis.margins(x=0.04)
    axis.set_title(drawable(name, 24), fontsize=10.5, color=DIM, loc="left")
    style_axis(axis)
    axis.set_yticks([])
