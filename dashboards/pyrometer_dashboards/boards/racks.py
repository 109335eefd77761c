"""Racks and switches: which rack is hot, which leaf switch loses links together, which NVLink domain is not whole."""

from __future__ import annotations

from pyrometer_dashboards import alert_panels, palette, panels, proof
from pyrometer_dashboards.common import CLUSTER, CLUSTERS, CRITICAL, NODE_OF_ROW, RACK_OF_ROW, RACKS
from pyrometer_dashboards.model import Board, Panel, Query, Reading, Row, Variable
from pyrometer_dashboards.proof import Healthy

_RACK = Variable("rack", "Rack", 'label_values(node:pyrometer_node:rack{cluster="$cluster"}, rack)')
_SWITCH = Variable(
    "switch", "Switch", 'label_values(switch:pyrometer_nic:ports{cluster="$cluster"}, switch)', all_value=".+"
)
_HOTTEST = f"rack:pyrometer_gpu_temperature:max{{{CLUSTER}}}"
_LOSSES = f"switch:pyrometer_nic_link_down_events:increase10m{{{CLUSTER}}}"
_PORTS = f"switch:pyrometer_nic:ports{{{CLUSTER}}}"
_HERE = f'node:pyrometer_node:rack{{{CLUSTER}, rack="$rack"}}'
_HEAT = [(None, palette.QUIET), (80, palette.WATCH), (85, palette.BAD), (90, palette.WORST)]


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=RACKS,
        title="Pyrometer / Racks and switches",
        question="Which rack is hot, which leaf switch loses links together, which NVLink domain is not whole?",
        needs="the node exporter on each GPU node",
        tags=["hardware"],
        time_from="now-6h",
        variables=[CLUSTERS, _RACK, _SWITCH],
        annotations=[CRITICAL],
        rows=[
            Row(panels.tiles(_hot(), _throttled(), _flapping(), _unfit()), height=3),
            Row([_racks(), _switches()], height=11),
            Row(panels.tiles(_heat(), _together()), height=11),
            Row([_nodes(), _ports()]),
            Row([_domains(), _alerts()]),
        ],
    )


def _hot() -> Panel:
    return panels.stat(
        "Hottest rack",
        Reading(
            "The rack with the hottest working GPU, and its temperature.",
            "below 80 °C.",
            "Many GPUs of the rack: its air or its coolant. One: that GPU.",
            "GpuThrottledThermal",
        ),
        f"topk(1, {_HOTTEST})",
        unit="celsius",
        decimals=0,
        steps=_HEAT,
        name="{{rack}}",
        no_value="no racks known",
    )


def _throttled() -> Panel:
    return panels.stat(
        "Throttled in a rack",
        Reading(
            "The rack with the most GPUs that heat, power brake or hardware slow, and their number.",
            "0.",
            "Half of a rack or more: its supply or its cooling, not its GPUs.",
            "GpuThrottledThermal",
        ),
        f"topk(1, rack:pyrometer_gpu_throttled:gpus{{{CLUSTER}}}) or on () "
        f'label_replace(0 * max({_HOTTEST} and on () {proof.CLOCK_EVENTS}), "rack", "nowhere", "", "")',
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.BAD), (8, palette.WORST)],
        name="{{rack}}",
        no_value="no racks known",
    )


def _flapping() -> Panel:
    return panels.stat(
        "Losses at a switch",
        Reading(
            "The leaf switch whose links were lost most often in the last 10 minutes, and how often.",
            "0.",
            "Many of its links at once: the switch, its supply, its firmware. One: that cable.",
            "FabricMassEvent",
        ),
        f"topk(1, sum by (switch) ({_LOSSES})) or on () "
        f'label_replace(0 * max({_PORTS} and on () {proof.PORTS}), "switch", "nowhere", "", "")',
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.WATCH), (3, palette.BAD), (30, palette.WORST)],
        name="{{switch}}",
        no_value="no switches known",
    )


def _unfit() -> Panel:
    return panels.stat(
        "Unfit in a rack",
        Reading(
            "The rack with the most nodes that are silent, out of service, or fail a check or a test.",
            "0.",
            "All of a rack silent: power or the switch of its management network.",
            "NodeExporterDown",
        ),
        f"topk(1, rack:pyrometer_node:unfit{{{CLUSTER}}}) or on () "
        f'label_replace(0 * max({_HOTTEST} and on () {proof.NODES}), "rack", "nowhere", "", "")',
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.WATCH), (3, palette.WORST)],
        name="{{rack}}",
        no_value="no racks known",
    )


def _racks() -> Panel:
    return panels.table(
        "Racks, the hottest first",
        Reading(
            "Each rack: its hottest working GPU, its GPUs that are slowed, its nodes that are unfit or out of service, "
            "and the power of its GPUs.",
            "alike.",
            "Click a rack for its nodes below.",
            "GpuThrottledThermal",
        ),
        [
            f"max by (rack) ({_HOTTEST})",
            f"max by (rack) (rack:pyrometer_gpu_throttled:gpus{{{CLUSTER}}})",
            f"max by (rack) (rack:pyrometer_node:unfit{{{CLUSTER}}})",
            f"max by (rack) (rack:pyrometer_gpu_power:sum{{{CLUSTER}}})",
        ],
        {
            "rack": "rack",
            "Value #A": "hottest",
            "Value #B": "slowed",
            "Value #C": "unfit",
            "Value #D": "power",
        },
        decimals=0,
        sort="hottest",
        link=RACK_OF_ROW,
        fields={
            "hottest": panels.coloured(_HEAT) | {"unit": "celsius"},
            "slowed": _COUNT,
            "unfit": _COUNT,
            "power": {"unit": "watt"},
        },
        no_value="no racks known: give the targets the label rack",
        span=13,
    )


# A cell without a number has none of what it counts, in a row that exists.
_COUNT = {"mappings": [panels.BLANK], "custom.width": 80}


def _switches() -> Panel:
    return panels.table(
        "Leaf switches that lost links",
        Reading(
            "Leaf switches with lost links in the last 10 minutes: how many of their links, and how often.",
            "'none lost'.",
            "Choose the switch above: the lines below show whether its links are lost together.",
            "FabricMassEvent",
        ),
        [
            f"sum by (switch) ({_LOSSES})",
            f"sum by (switch) (switch:pyrometer_nic_link_down_events:ports10m{{{CLUSTER}}})",
            f"sum by (switch) ({_PORTS}) and on (switch) {_LOSSES}",
        ],
        {"switch": "switch", "Value #A": "losses", "Value #B": "links", "Value #C": "of"},
        unit="locale",
        steps=[(None, palette.WATCH), (3, palette.BAD), (30, palette.WORST)],
        sort="losses",
        fields={"losses": panels.coloured()},
        healthy=Healthy("none lost", f"{_PORTS} and on () {proof.PORTS}"),
        span=11,
    )


def _heat() -> Panel:
    return panels.lines(
        "Hottest GPU of the five hottest racks",
        Reading(
            "The hottest working GPU of each of the five racks that were hottest in the range.",
            "constant lines.",
            "Lines that rise together: the room. One: that rack.",
            "GpuThrottledThermal",
        ),
        Query(
            f"{_HOTTEST} and on (rack) topk(5, max by (rack) (max_over_time({_HOTTEST}[$__range] @ end())))",
            "{{rack}}",
        ),
        unit="celsius",
        colour=panels.BY_WORST,
        steps=[(None, palette.HEALTHY), *_HEAT[1:]],
        no_value="no racks known",
    )


def _together() -> Panel:
    lost = f'switch:pyrometer_nic_link_down_events:ports10m{{{CLUSTER}, switch=~"$switch"}}'
    return panels.lines(
        "Links lost together, by switch",
        Reading(
            "How many links of each chosen leaf switch were lost within the same 10 minutes.",
            "none.",
            "Many links of one switch at one time: the switch, its supply, its firmware. One all day: a cable.",
            "FabricMassEvent",
        ),
        Query(f"sum by (switch) ({lost})", "{{switch}}"),
        unit="locale",
        limits=(0, None),
        decimals=0,
        colour=panels.BY_WORST,
        steps=[(None, palette.WATCH), (3, palette.BAD), (8, palette.WORST)],
        watched=f"{_PORTS} and on () {proof.PORTS}",
    )


def _nodes() -> Panel:
    now = f'gpu:pyrometer_gpu_quantity:now{{{CLUSTER}, what="%s"}} and on (node) {_HERE}'
    words = ("fit", "test overdue", "test failed", "check failed", "out on purpose", "silent")
    return panels.table(
        "Nodes of the chosen rack",
        Reading(
            "Each node of the chosen rack: whether it is fit, its hottest GPU, and the time that its worst GPU was "
            "throttled.",
            "alike.",
            "One node differs: its fans or cold plates. All: the rack's door, its manifold, its supply.",
            "GpuThrottledThermal",
        ),
        [
            f"max by (node) (node:pyrometer_node:state{{{CLUSTER}}} and on (node) {_HERE})",
            f"max by (node) ({now % 'temperature'})",
            f"max by (node) ({now % 'throttled'})",
        ],
        {"node": "node", "Value #A": "state", "Value #B": "hottest", "Value #C": "throttled"},
        decimals=0,
        sort="hottest",
        link=NODE_OF_ROW,
        fields={
            "state": {
                "mappings": [panels.state(str(at), word, palette.QUIET, at + 1) for at, word in enumerate(words)]
            },
            "hottest": panels.coloured(_HEAT) | {"unit": "celsius"},
            "throttled": panels.coloured(panels.LOST_TIME) | {"unit": "percentunit"},
        },
        no_value="no racks known",
        span=12,
    )


def _ports() -> Panel:
    lost = f"port:pyrometer_nic_link_down_events:increase10m{{{CLUSTER}}} > 0"
    return panels.table(
        "Links lost at the chosen switches",
        Reading(
            "Ports of the chosen switches that lost their link in the last 10 minutes, the most often first.",
            "'none lost'.",
            "Several at one switch: the switch. One: swap the cable at the switch's end first.",
            "NicLinkFlapping",
        ),
        f"topk(15, ({lost}) * on (node, device, port) group_left (switch, rail) "
        f'port:pyrometer_nic:rail{{{CLUSTER}, switch=~"$switch"}})',
        {"switch": "switch", "node": "node", "device": "device", "Value": "losses"},
        unit="locale",
        steps=[(None, palette.WATCH), (3, palette.BAD), (10, palette.WORST)],
        sort="losses",
        link=NODE_OF_ROW,
        fields={"losses": panels.coloured()},
        healthy=Healthy("none lost", f"{_PORTS} and on () {proof.PORTS}"),
        span=12,
    )


def _domains() -> Panel:
    return panels.table(
        "NVLink domains",
        Reading(
            "NVLink domains of more than one node (NVL72 and the like) by their cluster UUID and clique: their GPUs "
            "that answer, and the hottest.",
            "72 GPUs each, or as many as the machine has.",
            "Fewer: a GPU or a tray is missing; a job over the whole domain can't start.",
            "NvlinkDown",
        ),
        [
            f"max by (cluster_uuid, clique) (domain:pyrometer_gpu_fabric:gpus{{{CLUSTER}}})",
            f"max by (cluster_uuid, clique) (domain:pyrometer_gpu_temperature:max{{{CLUSTER}}})",
        ],
        {"cluster_uuid": "domain", "clique": "clique", "Value #A": "GPUs", "Value #B": "hottest"},
        decimals=0,
        sort="GPUs",
        falling=False,
        fields={
            "clique": {"custom.width": 60},
            "GPUs": {"custom.width": 80},
            "hottest": panels.coloured(_HEAT) | {"unit": "celsius", "custom.width": 90},
        },
        no_value="no NVLink domain of several nodes",
        span=12,
    )


def _alerts() -> Panel:
    return alert_panels.firing(
        "Alerts of the fabric and of limits",
        "Fabric.*|Nic.*|NodeExporterNic.*|Nv.*|Gpu(Throttled|Limit|Thermal).*",
        {"node": "node", "switch": "switch"},
        runbook="FabricMassEvent",
        span=12,
    )
