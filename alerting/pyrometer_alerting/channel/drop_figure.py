"""Draw a drop: every batch's MFU over the expected band, and the culprit's clock or link below it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure

from pyrometer_alerting.channel.drop_data import DropPicture, drop_picture_of
from pyrometer_alerting.channel.figures import (
    BLUE,
    DIM,
    GREEN,
    GREY,
    HEIGHT,
    INK,
    VERMILLION,
    drawable,
    heading,
    new_figure,
    style_axis,
    to_png,
)
from pyrometer_alerting.model.incident import Incident
from pyrometer_kit.prometheus import Prometheus

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
