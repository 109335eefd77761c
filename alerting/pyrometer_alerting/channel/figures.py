"""Draw figures: the incident's drop and bar charts, on one paper, with untrusted text made harmless.

Matplotlib's objects without pyplot, which keeps figures for ever and wants the main thread. Opaque, so that they read
the same in Slack's dark and light themes; Okabe and Ito's colours, which colour-blind readers can distinguish, and
never colour alone: what is wrong is also named, dashed or shaded. Import this late: Matplotlib is slow to import and
large.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any
from unicodedata import category

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font

from pyrometer_alerting.channel.drop_data import DropPicture, drop_picture_of
from pyrometer_alerting.model import text
from pyrometer_alerting.model.incident import Incident
from pyrometer_kit.prometheus import Prometheus

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


MOST_POINTS = 20_000
UTC = timezone.utc


def draw_incident(prometheus: Prometheus, incident: Incident, now: float) -> bytes | None:
    """Return the picture of an incident as PNG; None if there is nothing to draw.

    Raises:
        PrometheusError: a query failed.
    """
    drop = drop_picture_of(prometheus, incident, now)
    return draw(drop) if drop is not None else None


def draw(drop: DropPicture) -> bytes:
    """Return the picture as PNG."""
    figure = new_figure()
    rows = 2 if drop.lines or drop.downs else 1
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False, height_ratios=[2.1, 1][:rows])[:, 0]
    figure.subplots_adjust(left=0.075, right=0.835, top=0.86, bottom=0.085, hspace=0.3)
    heading(figure, 0.945, drop.title, color=INK, fontsize=12.5, fontweight="bold")
    heading(figure, 0.895, drop.subtitle, color=DIM, fontsize=9.5)
    _batches(axes[0], drop)
    if rows == 2:
        _culprit(figure, axes[1], drop)
    for axis in axes:
        _window(axis, drop, named=axis is axes[0])
        style_axis(axis)
    _times(axes[-1], drop)
    return to_png(figure)


def _batches(axis: Axes, drop: DropPicture) -> None:
    at, mfu = _dates(drop.at), 100 * np.asarray(drop.mfu)
    tagged = np.asarray(drop.tagged, dtype=bool)
    low, high = 100 * drop.band[0], 100 * drop.band[1]
    axis.axhspan(low, high, color=GREEN, alpha=0.16, lw=0)
    axis.axhline(100 * drop.expected, color=GREEN, lw=1.2, ls=(0, (6, 4)))
    size = float(np.clip(3000 / max(len(at), 1), 3, 16))
    thinned = slice(None, None, max(len(at) // MOST_POINTS, 1))
    axis.scatter(at[~tagged][thinned], mfu[~tagged][thinned], s=size, color=BLUE, alpha=0.75, lw=0, zorder=3)
    if tagged.any():
        axis.scatter(at[tagged], mfu[tagged], s=size + 12, facecolors="none", edgecolors=GREY, lw=0.9, zorder=2)
        axis.text(1.012, 0.03, "\u25cb checkpoint, eval", transform=axis.transAxes, color=DIM, fontsize=8.5)
    top = max(float(mfu.max(initial=0.0)), high) * 1.12
    axis.set_ylim(0, top)
    axis.set_ylabel("MFU of each batch, %", color=DIM, fontsize=9.5)
    labels = [(100 * drop.expected, f"expected {100 * drop.expected:.1f} %", GREEN)]
    if (~tagged).any():
        newest = float(np.median(mfu[~tagged][-10:]))
        labels.append((newest, f"now {newest:.1f} %" if drop.end is None else f"last {newest:.1f} %", BLUE))
    _labels(axis, labels, top)


def _culprit(figure: Figure, axis: Axes, drop: DropPicture) -> None:
    top = 1.0
    labels = []
    for line, colour, style in zip(drop.lines[:2], (VERMILLION, GREY), ("-", (0, (4, 3))), strict=False):
        axis.plot(_dates(line.at), line.values, color=colour, ls=style, lw=1.6, drawstyle="steps-post")
        top = max(top, 1.15 * max(line.values, default=0.0))
        labels.append((line.values[-1] if line.values else 0.0, line.name, colour))
    axis.set_ylim(0, top)
    unit = drop.lines[0].unit if drop.lines else ""
    axis.set_ylabel(drawable(unit, 24), color=DIM, fontsize=9)
    for begin, end in drop.throttled:
        left, right = _dates([begin, end])
        axis.axvspan(left, right, ymin=0, ymax=0.09, color=VERMILLION, lw=0, zorder=3)
    if drop.downs:
        axis.scatter(_dates(drop.downs), [0.5 * top] * len(drop.downs), marker="v", s=46, color=VERMILLION, zorder=3)
        labels.append((0.5 * top, "link down", VERMILLION))
    if drop.throttled:
        labels.append((0.05 * top, "throttled", VERMILLION))
    if not drop.lines:
        axis.set_yticks([])
    _labels(axis, labels, top)
    place = axis.get_position().y1 + 0.022
    heading(figure, place, drop.culprit, color=VERMILLION, fontsize=10, fontweight="bold")


def _window(axis: Axes, drop: DropPicture, *, named: bool) -> None:
    """Shade the time of the event and mark its start."""
    end = drop.end if drop.end is not None else drop.until
    axis.axvspan(*_dates([drop.begin, end]), color=VERMILLION, alpha=0.08, lw=0, zorder=0)
    axis.axvline(_dates([drop.begin])[0], color=VERMILLION, lw=1.1, zorder=1)
    if named:
        label = datetime.fromtimestamp(drop.begin, tz=UTC).strftime(" dropped %H:%M:%S")
        right = drop.begin > drop.at[0] + 0.75 * (drop.until - drop.at[0]) if len(drop.at) else False
        axis.annotate(
            label + (" " if right else ""),
            (_dates([drop.begin])[0], 0.04),
            xycoords=("data", "axes fraction"),
            ha="right" if right else "left",
            color=VERMILLION,
            fontsize=9.5,
        )


def _labels(axis: Axes, labels: Sequence[tuple[float, str, str]], top: float) -> None:
    """Label the lines at their right ends, moved apart so that none overlap."""
    last = -1.0
    for value, name, colour in sorted(labels, key=lambda label: label[0]):
        height = axis.get_position().height * HEIGHT * 72
        last = max(value / max(top, 1e-9), last + 12.5 / height)
        axis.text(1.012, last, drawable(name, 24), transform=axis.transAxes, color=colour, fontsize=9.5, va="center")


def _times(axis: Axes, drop: DropPicture) -> None:
    locator = AutoDateLocator(minticks=4, maxticks=8, tz=UTC)
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC, show_offset=False))
    first = drop.at[0] if len(drop.at) else drop.begin
    axis.set_xlim(*_dates([first, max(drop.until, first + 1)]))
    axis.text(1.012, -0.02, "UTC", transform=axis.transAxes, color=DIM, fontsize=9, va="top")


def _dates(times: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray([date2num(datetime.fromtimestamp(time, tz=UTC)) for time in times], dtype=np.float64)
