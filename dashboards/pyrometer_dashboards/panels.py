"""The kinds of panel that all boards are made of, so that they look and behave alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyrometer_dashboards import common, palette, proof
from pyrometer_dashboards.grafana_defaults import NO_DATA_MAPPING, absent_mapping
from pyrometer_dashboards.model import Json, Override, Panel, Query, Reading

if TYPE_CHECKING:
    from typing_extensions import TypedDict, Unpack

    class More(TypedDict, total=False):
        """Further fields of a Panel."""

        decimals: int | None
        steps: Steps
        limits: tuple[float | None, float | None]
        colour: Json | None
        custom: Json
        options: Json
        overrides: Sequence[Override]
        mappings: Sequence[Json]
        links: Sequence[tuple[str, str]]
        no_value: str
        step: str
        max_points: int | None
        time_from: str
        span: int
        height: int


Steps = Sequence[tuple[float | None, str]]
# The bounds of a band are drawn and have values, but no place in the legend.
UNNAMED: Json = {"legend": True, "tooltip": False, "viz": False}
# A share of lost time: 5 % of one GPU is worth a look, a fifth of a synchronous run's time is the worst.
LOST_TIME: Steps = ((None, palette.QUIET), (0.05, palette.WATCH), (0.1, palette.BAD), (0.2, palette.WORST))
# A run's MFU relative to its best: below 85 % TrainMfuDropped pages.
KEPT: Steps = ((None, palette.WORST), (0.7, palette.BAD), (0.85, palette.WATCH), (0.95, palette.QUIET))
# Steps from the median of a rail: 1 is worth a look.
DEVIATION: Steps = ((None, palette.QUIET), (1, palette.WATCH), (2, palette.BAD), (3, palette.WORST))
# Tables of rows times columns, each cell in the colour of its state; and their first column, which names the row.
CELLS: Json = {
    "align": "center",
    "minWidth": 50,
    "cellOptions": {"type": "color-background", "mode": "basic", "applyToRow": False},
}
# Lines whose names are not known beforehand, each in the colour of its worst value: Grafana's own palette would give
# the colours of trouble to healthy lines.
BY_WORST: Json = {"mode": "thresholds", "seriesBy": "max"}
# A column that only links use; Grafana 11 knows the second by another name.
HIDDEN: Json = {"custom.hideFrom.viz": True, "custom.hidden": True}
ROW_NAME: Json = {"custom.cellOptions": {"type": "auto"}, "unit": "string"}


def stat(
    title: str,
    reading: Reading,
    expr: str,
    *,
    unit: str,
    steps: Steps = ((None, palette.QUIET),),
    name: str = "",
    link: tuple[str, str] | None = None,
    span: int = 4,
    decimals: int | None = None,
    mappings: Sequence[Json] = (),
    no_value: str = "no data",
    healthy: proof.Healthy | None = None,
) -> Panel:
    """Return one number on the colour of its state; ``name`` (a legend) says whose number it is.

    ``healthy`` has the words for an empty answer whose coverage is proven.
    """
    if healthy:
        expr, mappings = proof.or_nothing(expr, healthy.proof), [NO_DATA_MAPPING, proof.mapping(healthy.words)]
    return Panel(
        title,
        "stat",
        reading,
        [Query(expr, name or title, instant=True)],
        unit=unit,
        steps=steps,
        decimals=decimals,
        options={"textMode": "value_and_name" if name else "value"},
        mappings=mappings,
        no_value=no_value,
        links=[link] if link else [],
        span=span,
    )


def tiles(*row: Panel) -> list[Panel]:
    """Return panels that share the width of a board: at most four, or a laptop's screen cuts their titles."""
    return [replace(panel, span=24 // len(row)) for panel in row]


def lines(
    title: str, reading: Reading, asked: Query | Sequence[Query], *, unit: str, watched: str = "", **more: Unpack[More]
) -> Panel:
    """Return lines over time; with ``watched``, the proof that somebody looks, no line at all is an empty chart."""
    queries = [asked] if isinstance(asked, Query) else asked
    panel = Panel(title, "timeseries", reading, queries, unit=unit, **more)
    if not watched:
        return panel
    seen = [*queries, proof.watched(watched, queries[0].step)]
    return replace(panel, queries=seen, overrides=[*panel.overrides, proof.UNSEEN])


def bars(
    title: str, reading: Reading, asked: Query | Sequence[Query], *, unit: str, watched: str = "", **more: Unpack[More]
) -> Panel:
    """Return stacked bars of events per interval, whose sum can be read; never in the colours of healthy."""
    custom: Json = {
        "drawStyle": "bars",
        "fillOpacity": 80,
        "lineWidth": 0,
        "barAlignment": -1,
        "stacking": {"mode": "normal", "group": "A"},
    }
    shades = {"mode": "shades", "fixedColor": palette.BAD}
    drawn = lines(title, reading, asked, unit=unit, watched=watched, **more)
    return replace(drawn, custom=custom, limits=(0, None), colour=shades)


def counted(counter: str, legend: str, by: str = "") -> Query:
    """Return a query for a counter's growth in each interval, so that each event is in exactly one bar.

    A window of rate() reaches over several bars, and would draw each event in all of them.
    """
    grown = f"{counter} - {counter} offset $__interval"
    return Query(f"sum by ({by}) ({grown}) > 0" if by else f"({grown}) > 0", legend, step="1m")


def stacked(
    title: str, reading: Reading, asked: Query | Sequence[Query], *, unit: str, watched: str = "", **more: Unpack[More]
) -> Panel:
    """Return stacked areas: parts of a whole."""
    custom: Json = {"fillOpacity": 70, "lineWidth": 0, "stacking": {"mode": "normal", "group": "A"}}
    return replace(lines(title, reading, asked, unit=unit, watched=watched, **more), custom=custom)


def table(
    title: str,
    reading: Reading,
    asked: str | Sequence[str],
    columns: Mapping[str, str],
    *,
    unit: str = "none",
    steps: Steps = ((None, palette.QUIET),),
    decimals: int | None = None,
    sort: str = "",
    falling: bool = True,
    link: tuple[str, str] | None = None,
    fields: Mapping[str, Mapping[str, Any]] | None = None,
    no_value: str = "no data",
    healthy: proof.Healthy | None = None,
    span: int = 8,
    height: int = 0,
) -> Panel:
    """Return a table of labels and values, the worst row first, of the answers to one expression or to several.

    ``columns`` maps names in Prometheus' answer (a label, ``Value``, with several queries ``Value #A``) to headings, in
    order. ``unit``, ``steps`` and ``decimals`` apply to values: labels are text, even if they look like numbers, and a
    GPU, job, run, rack or switch leads to its own board. Rows are sorted by the column with the heading ``sort``,
    highest first if ``falling``; ``link`` is the title and address of every cell; ``fields`` are further settings of
    columns, by heading. ``healthy`` has the words that the first column of values shows for an empty answer whose
    coverage is proven.
    """
    asked = [asked] if isinstance(asked, str) else asked
    fields = dict(fields or {})
    if healthy:
        (first, *rest), value_name = asked, next(name for name in columns if name.startswith("Value"))
        label = next(name for name in columns if not name.startswith("Value")) if rest else ""
        asked = [proof.or_nothing(first, healthy.proof, *rest, label=label), *rest]
        fields[columns[value_name]] = _saying(healthy.words, fields.get(columns[value_name], {}))
    merge = _merged(columns) if len(asked) > 1 else []
    named = {f"{name} (lastNotNull)" if merge and name.startswith("Value") else name: columns[name] for name in columns}
    keep = {"id": "filterFieldsByName", "options": {"include": {"names": list(named)}}}
    order = {name: at for at, name in enumerate(named)}
    renamed = {name: heading for name, heading in named.items() if name != heading}
    shape = {"id": "organize", "options": {"excludeByName": {}, "indexByName": order, "renameByName": renamed}}
    value: dict[str, Any] = {"unit": unit} | ({} if decimals is None else {"decimals": decimals})
    # A cell without its label is not an empty answer, which is what noValue describes.
    blank = {"noValue": NO_NAME, "mappings": [BLANK]}
    numbers = [
        Override(
            heading,
            {"custom.minWidth": _narrowest(name, heading, sort)}
            | (value if name.startswith("Value") else blank | common.of_column(name, columns)),
        )
        for name, heading in columns.items()
    ]
    return Panel(
        title,
        "table",
        reading,
        [Query(expr, instant=True, table=True) for expr in asked],
        unit="string",
        steps=steps,
        custom={"minWidth": 50},
        transformations=[*merge, keep, shape],
        options={"sortBy": [{"desc": falling, "displayName": sort}]} if sort else {},
        links=[link] if link else [],
        overrides=[*numbers, *(Override(name, settings) for name, settings in fields.items())],
        no_value=no_value,
        span=span,
        height=height,
    )


# Pixels for a usual name in a cell, with its margins: on a phone the table scrolls before it cuts a name.
_NAMES = {
    "node": 88, "run": 108, "switch": 100, "rack": 72, "alertname": 180, "cause": 180, "reason": 230, "test": 165,
    "size_class": 115, "kind": 165, "counter": 130, "event": 90, "serial": 135, "part": 100, "cluster_uuid": 345,
}  # fmt: skip
_MARGINS, _LETTER, _ARROW = 18, 8, 22


def _narrowest(name: str, heading: str, sort: str) -> int:
    """Return the pixels below which a column would cut its heading, with the arrow of the sorted one, or its names."""
    wanted = _MARGINS + _LETTER * len(heading) + (_ARROW if heading == sort else 0)
    return max(50, wanted, _NAMES.get(name, 0))


# A cell without its label: a word would look like a part, and lead nowhere.
NO_NAME = "\u00a0"
BLANK = absent_mapping(NO_NAME)


def _saying(words: str, settings: Mapping[str, Any]) -> Json:
    """Return the settings of a column that says ``words`` for NOTHING: it has room for them, and no link."""
    width = {"custom.width": max(settings["custom.width"], 20 + 7 * len(words))} if "custom.width" in settings else {}
    others = [mapping for mapping in settings.get("mappings", []) if mapping.get("type") != "special"]
    return {**settings, **width, "mappings": [NO_DATA_MAPPING, proof.mapping(words), *others], "links": []}


def coloured(steps: Steps = (), mode: str = "basic") -> Json:
    """Return a table column whose cells are coloured by their state, by steps of its own where it has some."""
    cell = {"custom.cellOptions": {"type": "color-background", "mode": mode, "applyToRow": False}}
    return cell | (thresholds(steps) if steps else {})


def matrix(row: str, column: str, *between: Json, renamed: Json | None = None, first: Sequence[str] = ()) -> list[Json]:
    """Return a table with a row for each value of one label and a column for each value of another.

    ``between`` are further transformations before the columns are named, ``renamed`` the headings that differ (default:
    the corner is named like ``row``), ``first`` the columns next to the row's name, in this order.
    """
    corner = f"{row}\\{column}"
    cells = {"columnField": column, "rowField": row, "valueField": "Value", "emptyValue": "null"}
    order = {name: at for at, name in enumerate([corner, *first])}
    named = {"renameByName": renamed or {corner: row}, "excludeByName": {}, "indexByName": order}
    return [{"id": "groupingToMatrix", "options": cells}, *between, {"id": "organize", "options": named}]


def _merged(columns: Mapping[str, str]) -> list[Json]:
    """Return the transformations that join the answers of several queries into one table.

    Grouping by all labels joins no rows; but if all answers are empty it leaves no table, so that the panel shows
    its text for no value instead of headings over nothing.
    """
    labels = {"operation": "groupby", "aggregations": []}
    values = {"operation": "aggregate", "aggregations": ["lastNotNull"]}
    fields = {name: values if name.startswith("Value") else labels for name in columns}
    return [{"id": "merge", "options": {}}, {"id": "groupBy", "options": {"fields": fields}}]


def thresholds(steps: Steps) -> Json:
    """Return the colour steps of one column or series that differ from its panel's."""
    return {"thresholds": {"mode": "absolute", "steps": [{"color": colour, "value": at} for at, colour in steps]}}


def gauge(limit: float) -> Json:
    """Return a table column with a bar beside each number."""
    cell = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
    return {"custom.cellOptions": cell, "min": 0, "max": limit}


def _painted(colour: str) -> Json:
    return {"color": {"mode": "fixed", "fixedColor": colour}}


def fixed(name: str, colour: str, **custom: object) -> Override:
    """Return a series of a fixed name in its own colour."""
    return Override(name, _painted(colour) | {f"custom.{key}": value for key, value in custom.items()})


def begins(name: str, colour: str) -> Override:
    """Return series whose names begin so, in their colour."""
    return Override(f"/^{name}/", _painted(colour), "byRegexp")


def reasons() -> list[Override]:
    """Return series named after a throttle reason, each in its colour, also with a GPU before the reason."""
    return [Override(f"/{name}$/", _painted(colour), "byRegexp") for name, colour in palette.REASONS.items()]


def named() -> list[Override]:
    """Return series with arbitrary names (runs), each in one of five colours by its last letter or digit.

    A name thus has the same colour on all boards. Grafana's own palettes begin with green, yellow and red, which are
    states here.
    """
    letters = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    ends = ["".join(alphabet[at :: len(palette.RUNS)] for alphabet in letters) for at in range(len(palette.RUNS))]
    return [
        Override(f"/[{end}]$/", _painted(colour), "byRegexp") for end, colour in zip(ends, palette.RUNS, strict=True)
    ]


def numbered(pattern: str) -> list[Override]:
    """Return series of GPUs, ports or rails, a colour for each number; ``pattern`` has ``%s`` for the number.

    From 8 on the colours repeat.
    """
    return [
        Override(f"/{pattern % f'({number}|{number + 8}|{number + 16})'}/", _painted(colour), "byRegexp")
        for number, colour in enumerate(palette.NUMBERED)
    ]


def worst(expr: str, beyond: float, who: str, *labels: str) -> str:
    """Return the name of the worst part if it exceeds ``beyond``, else nobody: only a culprit is named.

    The name is in the label ``who`` of the answer: the argument ``who`` with $1, $2... for the ``labels``.
    """
    at = ", ".join(f'"{label}"' for label in labels)
    pattern = "/".join("(.*)" for _ in labels)
    return (
        f'label_replace(label_join(topk(1, {expr} > {beyond}), "at", "/", {at}), "who", "{who}", "at", "{pattern}") '
        f'or on () label_replace(0 * max({expr}), "who", "nobody", "", "")'
    )


def band(low: str, middle: str, high: str, *, colour: str = palette.BAND, fill: int = 18) -> list[Override]:
    """Return a line in its band; the band's ends have neither lines of their own nor a place in the legend."""
    return [
        fixed(low, colour, lineWidth=0, hideFrom=UNNAMED),
        fixed(high, colour, lineWidth=0, fillBelowTo=low, fillOpacity=fill, hideFrom=UNNAMED),
        fixed(middle, colour, lineWidth=2),
    ]


def heatmap(
    title: str,
    reading: Reading,
    query: Query,
    *,
    unit: str,
    limits: tuple[float, float],
    max_points: int = 240,
    span: int = 12,
) -> Panel:
    """Return rows over time, each cell a colour on a fixed scale; a cell without data is empty."""
    colour = {"min": limits[0], "max": limits[1]}
    options = {"color": colour, "cellValues": {"unit": unit}, "legend": {"show": True}}
    # Grafana has only an error for a heatmap without rows; it draws no cell for what filterValues leaves out.
    empty = 'label_replace(vector(-2), "rack", "no data", "", "")'
    asked = [replace(query, expr=f"{query.expr} or on () {empty}")]
    return Panel(title, "heatmap", reading, asked, options=options, unit=unit, max_points=max_points, span=span)


# The state of a timeline without data.
_NO_STATE = -2


def _row_without_data(value: int, queries: Sequence[Query]) -> Query:
    """Return a query for one row where the others find nothing: Grafana has only an error for a chart without rows."""
    unless_answered = "".join(f" unless on () ({query.expr})" for query in queries)
    return Query(f"vector({value}){unless_answered}", "no data", step=queries[0].step)


def timeline(
    title: str, reading: Reading, queries: Sequence[Query], states: Sequence[Json], **more: Unpack[More]
) -> Panel:
    """Return states over time in rows. The colour mode must stay *fixed*, or Grafana drops the mappings."""
    absent = state(str(_NO_STATE), "no data", palette.NO_DATA, len(states) + 1)
    asked = [*queries, _row_without_data(_NO_STATE, queries)]
    panel = Panel(title, "state-timeline", reading, asked, **more)
    return replace(panel, mappings=[*states, absent], step=panel.step or "15s")


def state(value: str, text: str, colour: str, index: int) -> Json:
    """Return the text and colour of a value, for timelines and tables."""
    return {"type": "value", "options": {value: {"text": text, "color": colour, "index": index}}}


def note(title: str, reading: Reading, markdown: str, *, span: int = 8) -> Panel:
    """Return a text panel."""
    return Panel(title, "text", reading, options={"content": markdown}, span=span)


# Words for an answer, 1, and for none, 0.
ANSWERS = (NO_DATA_MAPPING, state("0", "no", palette.WORST, 1), state("1", "yes", palette.QUIET, 2))
