"""GPU matrix: the whole cluster on one screen, each GPU a square, coloured by its deviation from its rail."""

from __future__ import annotations

from typing import Any

from pyrometer_dashboards import palette, panels, proof
from pyrometer_dashboards.common import (
    CLUSTER,
    CLUSTERS,
    GPU_MATRIX,
    GPU_OF_ROW,
    MARKS,
    NODE,
    NODE_OF_ROW,
    leading_to,
    link,
)
from pyrometer_dashboards.grafana_defaults import NO_DATA_MAPPING
from pyrometer_dashboards.map_places import LEAST_INTERVAL, SIZES, places
from pyrometer_dashboards.model import Board, Json, Override, Panel, Query, Reading, Row, Variable
from pyrometer_dashboards.proof import Healthy

# The value of an idle GPU, for which quantities that depend on work mean nothing. Far below any real value.
_IDLE = -1e6
# The value of a GPU without data, which puts it above all others. Far above any real value.
_GONE = 1e6

_WHAT = Variable(
    "what",
    "Map",
    values=[
        ("temperature", "temperature"),
        ("SM clock", "clock"),
        ("power", "power"),
        ("throttled time", "throttled"),
        ("memory errors", "ecc"),
        ("PCIe width", "pcie"),
        ("link errors", "links"),
    ],
)
_ARRANGE = Variable("arrange", "By", values=[("node number", "number"), ("rack", "rack")])
_WORST = f'gpu:pyrometer_gpu_deviation:worst{{{CLUSTER}, what="$what"}}'
_EXPECTED = f"gpu:pyrometer_gpu:expected{{{CLUSTER}}}"
_GPU_IDLE = f"gpu:pyrometer_gpu:idle{{{CLUSTER}}}"
_ON = "on (cluster, node, gpu)"
_DEVIATION = f'gpu:pyrometer_gpu_deviation:steps{{{CLUSTER}, what="$what"}}'


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=GPU_MATRIX,
        title="Pyrometer / GPU matrix",
        question="Which GPUs of the whole cluster differ from their rail, and which are missing?",
        needs="the node exporter on each GPU node",
        tags=["on-call"],
        variables=[CLUSTERS, _WHAT, _ARRANGE],
        annotations=MARKS[:1],
        rows=[
            # Names first: a laptop shows them and the map's upper half.
            Row(panels.tiles(_worst(), _missing()), height=6),
            Row([_key()], height=4),
            Row([_map()], height=14),
            Row([_matrix(), _seated()], height=18),
        ],
    )


def _with_missing() -> str:
    """Return the deviation of each expected GPU: idle ones as _IDLE, those without data as _GONE.

    Both are numbers, as VictoriaMetrics leaves NaN out of its answers, and with it the GPUs that are lost.
    """
    return f"{_DEVIATION} or {_ON} {_GPU_IDLE} * 0 - {-_IDLE:.0f} or {_ON} {_EXPECTED} + {_GONE:.0f}"


def _key() -> Panel:
    """Return the legend of the map's colours with the number of GPUs in each."""
    places = {
        "0": "below 1",
        "1": "1 to 2",
        "2": "2 to 3",
        "3": "from 3",
        "no data": "no data",
        "idle": "idle",
    }
    counts = {
        "no data": f"count({_EXPECTED} unless {_ON} {_DEVIATION} unless {_ON} {_GPU_IDLE})",
        "idle": f"count({_GPU_IDLE} unless {_ON} {_DEVIATION})",
    }
    # The legend includes colours that no GPU has, if any GPU answers.
    named = [*counts.items(), *((name, f"0 * cluster:pyrometer_gpu_up:count{{{CLUSTER}}}") for name in places)]
    parts = [f'label_replace({expr}, "class", "{name}", "", "")' for name, expr in named]
    expr = " or on (class) ".join([f'count_values("class", clamp(floor({_DEVIATION}), 0, 3))', *parts])
    as_fields = [
        {"fieldName": "class", "handlerKey": "field.name"},
        {"fieldName": "Value", "handlerKey": "field.value"},
    ]
    order = {name: number for number, name in enumerate(places)}
    shape = {
        "excludeByName": {},
        "indexByName": order,
        "renameByName": {name: heading for name, heading in places.items() if name != heading},
    }
    colours = (palette.HEALTHY, palette.WATCH, palette.BAD, palette.WORST, palette.TEXT, palette.IDLE)
    return Panel(
        "Key: GPUs by steps from the rail",
        "table",
        Reading(
            "What the colours of the map mean, and how many GPUs have each. A step is 8 °C, 100 MHz, 70 W, 5 % of the "
            "time throttled, one memory error or remapped row, 4 PCIe lanes, or one link event in 10 minutes.",
            "all below 1 step, but for idle ones.",
            "The list above names the worst ones.",
            "GpuThrottledThermal",
        ),
        [Query(expr, instant=True, table=True)],
        unit="prefix:\u25a0 ",
        decimals=0,
        custom={"align": "left", "minWidth": 50, "cellOptions": {"type": "color-text"}},
        transformations=[
            {"id": "filterFieldsByName", "options": {"include": {"names": ["class", "Value"]}}},
            {"id": "rowsToFields", "options": {"mappings": as_fields}},
            {"id": "organize", "options": shape},
        ],
        overrides=[
            # Room for the heading and three digits: on a phone the least of them, the idle ones, are scrolled to.
            Override(
                name, {"color": {"mode": "fixed", "fixedColor": colour}, "custom.minWidth": max(62, 18 + 8 * len(name))}
            )
            for name, colour in zip(places.values(), colours, strict=True)
        ],
        span=24,
    )


def _ranges() -> list[Json]:
    """Return the colours of a chart of points as mappings: given any mapping, Grafana ignores thresholds.

    Absent values come first (to JavaScript null is not less than 0), in the theme's colour of text.
    """
    absent = {"match": "null+nan", "result": {"text": "no data", "color": palette.TEXT, "index": 0}}
    gone = {"from": _GONE, "result": {"text": "no data", "color": palette.TEXT, "index": 1}}
    idle = {"to": _IDLE, "result": {"text": "idle", "color": palette.IDLE, "index": 2}}
    ranges = [
        {"from": 3, "result": {"color": palette.WORST, "index": 3}},
        {"from": 2, "result": {"color": palette.BAD, "index": 4}},
        {"from": 1, "result": {"color": palette.WATCH, "index": 5}},
        {"to": 1, "result": {"color": palette.HEALTHY, "index": 6}},
    ]
    mappings: list[Json] = [{"type": "special", "options": absent}]
    return [*mappings, *({"type": "range", "options": options} for options in (gone, idle, *ranges))]


def _map() -> Panel:
    numbers = ["x", "size", *(f"y_{size}" for size in SIZES)]
    conversions = [{"targetField": field, "destinationType": "number"} for field in numbers]
    natural = {
        "mode": "binary",
        "alias": "from the rail's median",
        "binary": {
            "left": {"matcher": {"id": "byName", "options": "Value"}},
            "operator": "*",
            "right": {"matcher": {"id": "byName", "options": "size"}},
        },
    }
    hidden = ("Time", "cluster", "arrange", "size", "index")
    organize = {
        "excludeByName": dict.fromkeys(hidden, True),
        "indexByName": {},
        "renameByName": {"Value": "steps off"},
    }
    return Panel(
        "GPU map: every GPU against its rail",
        "xychart",
        Reading(
            "Every GPU of the cluster as a square: a node is a column of its GPUs, placed by the number in its name "
            "or by rack; nodes without a number of their own come last. The colour is how far the chosen quantity is "
            "from the median of the same GPU number on all working nodes, in steps towards harm: ochre from 1, "
            "rust from 2, red from 3. White (dark in the light theme) has no data, dim is idle.",
            "all blue. Dim columns are spare nodes.",
            "Click the square, then the link to its node. A column is a node, a block of columns a rack, a row a rail.",
            "GpuThrottledThermal",
        ),
        [
            # The last is drawn on top: where there is no room for all squares, missing GPUs and the worst ones stay.
            Query(
                f"sort({places()} * {_ON} group_left (unit, size) ({_with_missing()}) or on () {_empty_place()})",
                instant=True,
                table=True,
                step=LEAST_INTERVAL,
            )
        ],
        options={"series": [_series(size) for size in SIZES]},
        transformations=[
            {"id": "convertFieldType", "options": {"fields": {}, "conversions": conversions}},
            {"id": "calculateField", "options": natural},
            {"id": "organize", "options": organize},
        ],
        mappings=_ranges(),
        overrides=[
            _hidden("x", 0, 10_000),
            *(_hidden(f"y_{size}", -10_000, 0, **{"custom.pointSize.fixed": size}) for size in SIZES),
            *_plain(),
        ],
        links=[GPU_OF_ROW],
        decimals=1,
        span=24,
    )


def _empty_place() -> str:
    """Return a square without data, for a cluster without GPUs: a chart without points would say "Err"."""
    square = f"vector({_GONE:.0f})"
    labels = {"node": "no GPU known yet", "gpu": "GPU", "x": "0", f"y_{SIZES[0]}": "0", "size": "1"}
    for label, value in labels.items():
        square = f'label_replace({square}, "{label}", "{value}", "", "")'
    return square


def _series(size: int) -> Json:
    def named(name: str) -> Json:
        return {"matcher": {"id": "byName", "options": name}}

    return {
        "name": {"fixed": "GPU"},
        "frame": {"matcher": {"id": "byIndex", "options": 0}},
        "x": named("x"),
        "y": named(f"y_{size}"),
        "color": named("steps off"),
    }


def _hidden(name: str, low: int, high: int, **more: int) -> Override:
    """Return a coordinate without visible numbers, on the fixed scale of the sheet that the rules fill.

    It keeps the panel's links, as a point has the links of its y.
    """
    properties: dict[str, Any] = {
        "mappings": [],
        "custom.hideFrom": {"legend": False, "tooltip": True, "viz": False},
        "min": low,
        "max": high,
    }
    return Override(name, properties | more)


def _plain() -> list[Override]:
    """Return the same in natural units, which have no colours, and where _GONE and _IDLE are no deviations."""
    marks = [
        {"type": "range", "options": {"from": _GONE / 100, "result": {"text": "not compared", "index": 0}}},
        {"type": "range", "options": {"to": _IDLE / 100, "result": {"text": "not compared", "index": 1}}},
    ]
    return [Override("from the rail's median", {"mappings": marks})]


def _worst() -> Panel:
    return panels.table(
        "Worst 12",
        Reading(
            "The twelve GPUs furthest from their rail in the chosen quantity: in steps, and how far off in "
            "its own unit.",
            "'none' (by half a step), or all below 1 step.",
            "Open the row's node.",
            "GpuThrottledThermal",
        ),
        [
            _WORST,
            (
                f"{_WORST} * on (what) group_left () group without (unit, size) "
                f"(what:pyrometer_gpu_deviation:step)"
                ' * on (what) group_left () max by (what) (what:pyrometer_gpu_deviation:step{what="$what"})'
            ),
        ],
        {"node": "node", "gpu": "gpu", "Value #A": "steps", "Value #B": "off by"},
        steps=panels.DEVIATION,
        sort="steps",
        link=GPU_OF_ROW,
        fields={
            "gpu": {"custom.width": 50},
            "steps": panels.coloured() | {"decimals": 1, "custom.width": 76},
            "off by": {"decimals": 1, "custom.width": 66},
        },
        healthy=Healthy("none", proof.compared('what="$what"')),
    )


def _missing() -> Panel:
    missing, silent = f"gpu:pyrometer_gpu_up:missing{{{CLUSTER}}}", f'up{{job="node", {CLUSTER}}} == 0'
    return panels.table(
        "GPUs without data",
        Reading(
            "GPUs that should be there and don't answer, and nodes of which none answers, with how many they have. "
            "GPUs are remembered as long as their node is a target.",
            "'none missing'.",
            "One GPU: it fell off the bus, drain the node. All of a node: is its exporter down, or the node?",
            "GpuLost",
        ),
        f"max by (node, gpu) ({missing} unless on (node) {silent}) or "
        f'label_replace(count by (node) ({missing} and on (node) {silent}), "gpu", "all", "", "")',
        {"node": "node", "gpu": "gpu", "Value": "missing"},
        unit="locale",
        sort="node",
        falling=False,
        link=NODE_OF_ROW,
        # All GPUs of a node are no GPU.
        fields={"gpu": leading_to(NODE_OF_ROW)},
        healthy=Healthy("none missing", proof.GPUS),
    )


def _seated() -> Panel:
    return panels.table(
        "Nodes at the end of the map",
        Reading(
            "Nodes whose name has no number, or another's: they have seats below the last of the others, in the order "
            "in which they came, and how many GPUs they have. One that has just come waits a minute for its seat.",
            "'none': all have places by number.",
            "Give them places of your choice with a rule: docs/dashboards.md says how.",
        ),
        f"count by (node) (gpu:pyrometer_map:unplaced{{{CLUSTER}}})",
        {"node": "node", "Value": "GPUs"},
        unit="locale",
        link=NODE_OF_ROW,
        healthy=Healthy("none", proof.GPUS),
        span=7,
    )


def _matrix() -> Panel:
    worst = {"mode": "reduceRow", "alias": "worst", "reduce": {"reducer": "max"}}
    node = ("Open ${__value.text}", link(NODE, node="${__value.text}"))
    cell = (
        "Open ${__data.fields.node} GPU ${__field.name}",
        link(NODE, node="${__data.fields.node}", gpu="${__field.name}"),
    )
    gone = {"from": _GONE, "result": {"text": "no data", "color": palette.NO_DATA, "index": 1}}
    idle = {"to": _IDLE, "result": {"text": "idle", "color": palette.QUIET, "index": 2}}
    return Panel(
        "Node x GPU: steps from the rail's median",
        "table",
        Reading(
            "The same as the map, as numbers: a row per node, a column per GPU; nodes with GPUs without data on top, "
            "then the one with the worst GPU.",
            "quiet cells; 'no data' is a GPU that doesn't answer, 'idle' one that works for nobody.",
            "Click a cell for the GPU, a name for the node.",
            "GpuThrottledThermal",
        ),
        [
            Query(
                f"max by (node, gpu) (({_with_missing()}) and {_ON} {_EXPECTED} or on () {_empty_place()})",
                instant=True,
                table=True,
            )
        ],
        steps=panels.DEVIATION,
        decimals=1,
        mappings=[NO_DATA_MAPPING, *({"type": "range", "options": range_} for range_ in (gone, idle))],
        options={"frozenColumns": {"left": 1}},
        custom={**panels.CELLS, "minWidth": 70},
        transformations=panels.matrix(
            "node",
            "gpu",
            {"id": "calculateField", "options": worst},
            {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "worst", "desc": True}]}},
            first=["worst"],
        ),
        links=[cell],
        overrides=[
            Override(
                "node",
                {
                    **panels.ROW_NAME,
                    "custom.width": 140,
                    "links": [{"title": node[0], "url": node[1]}],
                },
            ),
            Override("worst", {"links": [], "custom.width": 90}),
        ],
        span=17,
    )
