"""One panel of a board as HTML, from the answers to its queries."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyrometer_kit.prometheus import PrometheusError, Series
from pyrometer_simulator.demo.drawn import lines
from pyrometer_simulator.demo.drawn.cells import Cell, Options
from pyrometer_simulator.demo.drawn.query import Asker, Window, newest
from pyrometer_simulator.demo.drawn.tables import rows_of

_PLACEHOLDER = re.compile(r"{{\s*(\w+)\s*}}")
_MOST_ROWS = 40
_OVER_TIME = {"timeseries", "state-timeline", "heatmap"}
NO_DATA = "no data"


def content(panel: Mapping[str, Any], asker: Asker, window: Window, size: tuple[int, int]) -> str:
    """Return the inside of a panel of this width and height. A query that fails is said in it."""
    kind = str(panel["type"])
    if kind not in (*_OVER_TIME, "stat", "table"):
        return _words("drawn only in a real Grafana")
    try:
        answers = {str(target["refId"]): _answer(target, asker, window) for target in panel.get("targets", [])}
    except PrometheusError as error:
        return _words(str(error))
    options = Options(panel.get("fieldConfig", {}))
    if kind == "table":
        return _table(rows_of(answers, panel.get("transformations", [])), options)
    named = [
        (_legend(target, series), series) for target in panel["targets"] for series in answers[str(target["refId"])]
    ]
    if kind == "stat":
        return _stats(named, options)
    return _over_time(kind, named, options, window, size)


def _answer(target: Mapping[str, Any], asker: Asker, window: Window) -> list[Series]:
    ask = asker.instant if target.get("instant") else asker.lines
    return [series for series in ask(str(target["expr"]), window) if series.points]


def _legend(target: Mapping[str, Any], series: Series) -> str:
    form = str(target.get("legendFormat", ""))
    if form in ("", "__auto"):
        return ", ".join(value for name, value in sorted(series.labels.items()) if name not in ("__name__", "cluster"))
    return _PLACEHOLDER.sub(lambda found: series.labels.get(found[1], ""), form)


def _stats(named: Sequence[tuple[str, Series]], options: Options) -> str:
    shown = [(name, options.cell(name, newest(series), always_coloured=True)) for name, series in named[:4]]
    shown = shown or [("", options.cell("", None))]
    return '<div class="stats">' + "".join(
        f'<div class="stat"{_tint(cell)}><b>{html.escape(cell.text)}</b> <span>{html.escape(name)}</span></div>'
        for name, cell in shown
    ) + "</div>"  # fmt: skip


def _table(rows: Sequence[Mapping[str, float | str]], options: Options) -> str:
    if not rows:
        return _words(options.cell("", None).text)
    columns = [
        name for name in dict.fromkeys(name for row in rows for name in row) if not options.of(name).get("hideFrom.viz")
    ]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(_cell(options.cell(name, row.get(name))) for name in columns)}</tr>" for row in rows[:_MOST_ROWS]
    )
    more = _words(f"and {len(rows) - _MOST_ROWS} more rows") if len(rows) > _MOST_ROWS else ""
    return f"<table><tr>{head}</tr>{body}</table>{more}"


def _cell(cell: Cell) -> str:
    return f"<td{_tint(cell)}>{html.escape(cell.text)}</td>"


def _over_time(
    kind: str, named: Sequence[tuple[str, Series]], options: Options, window: Window, size: tuple[int, int]
) -> str:
    if not named:
        return _words(options.cell("", None).text)
    if kind == "state-timeline":

        def state(value: float) -> tuple[str, str]:
            cell = options.cell(named[0][0], value, always_coloured=True)
            return cell.text, cell.colour

        return lines.states(named, window, size[0], state)
    own = options.of(named[0][0])
    picture = lines.lines(
        named, window, size, lambda value: options.cell(named[0][0], value).text, (own.get("min"), own.get("max"))
    )
    names = "".join(
        f'<i style="background:{lines.colour(number)}"></i>{html.escape(name)} '
        f"<b>{html.escape(options.cell(name, newest(series)).text)}</b> "
        for number, (name, series) in enumerate(named[: lines.MOST_NAMES])
    )
    more = f"and {len(named) - lines.MOST_NAMES} more" if len(named) > lines.MOST_NAMES else ""
    return f'{picture or _words(NO_DATA)}<p class="legend">{names}{more}</p>'


def _tint(cell: Cell) -> str:
    return f' style="background:{html.escape(cell.colour)}"' if cell.colour else ""


def _words(text: str) -> str:
    return f'<p class="words">{html.escape(text)}</p>'
