"""What all pictures have in common: paper, colours, a heading that fits, text that cannot break them.

Matplotlib's objects without pyplot, which keeps figures for ever and wants the main thread. Opaque, so that it reads
the same in Slack's dark and light themes; Okabe and Ito's colours, which colour-blind readers can tell apart, and never
by colour alone: what is wrong is also named, dashed or shaded. Imported late: 0.6 to 1.1 s and some 70 MB.
"""

from __future__ import annotations

import io
from typing import Any
from unicodedata import category

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font

from pyrometer_alerting.model import text

WIDTH, HEIGHT, DPI = 8.0, 4.5, 160  # 1280 x 720 pixels: Slack shows 360 points of height at most
INK, DIM, GRID, PAPER = "#1d1f24", "#5f6670", "#e3e6ea", "#ffffff"
BLUE, VERMILLION, GREY, GREEN = "#0072B2", "#D55E00", "#8a9099", "#009E73"  # Okabe and Ito


def figure_of(height: float = HEIGHT) -> Figure:
    """An empty sheet of that many inches."""
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor=PAPER)
    FigureCanvasAgg(figure)
    return figure


def heading(figure: Figure, height: float, content: str, **style: Any) -> None:  # noqa: ANN401 - Matplotlib's
    """A line of its own, cut until it fits."""
    limit = 160
    said = figure.text(0.075, height, shown(content, limit), va="center", **style)
    while said.get_window_extent().x1 > 0.985 * WIDTH * DPI and limit > 10:
        limit -= 6
        said.set_text(shown(content, limit))


def png(figure: Figure) -> bytes:
    """The picture; the figure is empty afterwards."""
    written = io.BytesIO()
    figure.savefig(written, format="png", facecolor=PAPER)
    figure.clear()
    return written.getvalue()


def plain_axis(axis: Axes) -> None:
    """Nothing that is not data."""
    for name, spine in axis.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(GRID)
    axis.grid(axis="y", color=GRID, lw=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(colors=DIM, labelsize=9, length=0)


def shown(value: str, limit: int) -> str:
    """Untrusted text: clean, cut, only what the font has, and none of Matplotlib's mathematics between dollar signs."""
    glyphs = get_font(findfont("DejaVu Sans")).get_charmap()
    drawable = "".join(char if ord(char) in glyphs else "" if category(char) == "So" else "\u25a1" for char in value)
    return text.plain(drawable, limit).replace("$", r"\$")
