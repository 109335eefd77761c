"""Node: what is different about this node? Its GPUs against the band of all working ones, its links, its ranks."""

from __future__ import annotations

from dataclasses import replace

from pyrometer_dashboards import log_panels, node_panels, palette, panels
from pyrometer_dashboards.common import (
    CLUSTERS,
    DEPLOYS,
    GPUS,
    NODE,
    NODE_IS,
    NODES,
    RESTARTS,
    RUN_OF_SERIES,
    fired,
    gpu_of_this_node,
    leading_to,
)
from pyrometer_dashboards.grafana_defaults import NO_DATA_MAPPING
from pyrometer_dashboards.model import Annotation, Board, Override, Panel, Query, Reading, Row
from pyrometer_dashboards.proof import Healthy

_GPU_IS = f'{NODE_IS}, gpu=~"$gpu"'
_GPU = "GPU {{gpu}}"
# Counters of the last minutes outlive their node: they don't describe a node that is gone.
_GONE = f'(up{{job="node", {NODE_IS}}} == 0)'
_PORT = "{{device}}/{{port}}"
_HERE = Annotation(
    "Alerts",
    fired(NODE_IS),
    "{{alertname}}",
    "GPU {{gpu}} {{device}}",
    palette.BAD,
    at_value=True,
)


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=NODE,
        title="Pyrometer / Node",
        question="What is different about this node: its GPUs against all working ones, its links, its ranks?",
        needs="the node exporter on this node",
        tags=["start", "on-call"],
        refresh="30s",
        variables=[CLUSTERS, NODES, GPUS],
        annotations=[_HERE, *(replace(mark, switch=False) for mark in (RESTARTS, DEPLOYS))],
        rows=[
            Row([_answers(), node_panels.gpus(), _alerts(), _straggler()], height=3),
            Row([_throttled_time(), _losses(), _memory(), node_panels.missing()], height=4),
            Row([_deviations(), _against_band("temperature")], height=17),
            Row(panels.tiles(_against_band("clock"), _against_band("power"), _against_band("tensor"))),
            Row(panels.tiles(_throttling(), _flaps(), _traffic())),
            Row(panels.tiles(_waits(), _errors(), node_panels.kernel())),
            Row(panels.tiles(node_panels.xids(), node_panels.unread())),
            Row([node_panels.memory_used(), node_panels.memory_temperature(), node_panels.link_errors()]),
            Row(
                [node_panels.nvlink(), node_panels.pcie(), node_panels.energy()],
                title="NVLink, PCIe and energy of the GPUs",
                collapsed=True,
            ),
            Row(
                [node_panels.correction(), node_panels.module_temperature(), node_panels.roce()],
                title="Ports: error correction, temperature, RoCE",
                collapsed=True,
            ),
            log_panels.of_node(),
        ],
    )


def _answers() -> Panel:
    return panels.stat(
        "Answers",
        Reading(
            "Whether its exporter answered the last scrape.",
            "yes.",
            "No: everything below is missing, not healthy. Is it the exporter or the node?",
            "NodeExporterDown",
        ),
        f'min(up{{job="node", {NODE_IS}}})',
        unit="none",
        steps=[(None, palette.WORST), (1, palette.QUIET)],
        mappings=panels.ANSWERS,
    )


def _alerts() -> Panel:
    return panels.stat(
        "Alerts",
        Reading("Alerts that fire and name this node.", "0.", "The message in Slack has the evidence."),
        # The heartbeat has no node, which matches a board whose choice of nodes is empty.
        f'count(ALERTS{{alertstate="firing", alertname!="Watchdog", {NODE_IS}}}) '
        f'or 0 * count(up{{job="node", {NODE_IS}}})',
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.BAD), (3, palette.WORST)],
        span=6,
    )


def _throttled_time() -> Panel:
    return panels.stat(
        "Worst GPU, throttled",
        Reading(
            "Share of the last minute in which heat, power brake or hardware slowed the worst GPU of this node.",
            "0 %.",
            "See the reason below; heat: fans, cold plates, dust.",
            "GpuThrottledThermal",
        ),
        panels.worst(f'gpu:pyrometer_gpu_quantity:now{{{NODE_IS}, what="throttled"}}', 0.01, "GPU $1", "gpu"),
        unit="percentunit",
        decimals=0,
        steps=panels.LOST_TIME,
        name="{{who}}",
        span=6,
    )


def _straggler() -> Panel:
    rank = panels.worst(f"rank:pyrometer_train_spare_gap:with_gpu{{{NODE_IS}}}", 0.02, "rank $1, GPU $2", "rank", "gpu")
    # The node that fell silent first in a run that is stopped, or where a run died first.
    stuck = f'label_replace(run:pyrometer_train_last_step:culprit{{{NODE_IS}}}, "who", "$1 is stopped", "run", "(.+)")'
    died = f'label_replace(run:pyrometer_train_rank_end:first{{{NODE_IS}}}, "who", "$1 died here", "run", "(.+)")'
    whole = f"0 * topk(1, {died} or on (run, job_id) {stuck}) + 1"
    # A node that is gone has no data about its ranks.
    idle = f'label_replace(0 * max(up{{job="node", {NODE_IS}}} == 1) - 1, "who", "no training here", "", "")'
    paused = f'label_replace(0 * max(node:pyrometer_train_run:member{{{NODE_IS}}}) - 1, "who", "no step now", "", "")'
    return panels.stat(
        "The others wait for",
        Reading(
            "The rank of this node that waits least for the others, compared with its stage: the share of the time "
            "that the others wait for it; 100 % where a run is stopped or died and this node fell silent first.",
            "nobody, or below 5 %.",
            "Is its GPU slow (see below), or the host (CPU, memory, storage)? The last row has it over time.",
            "TrainStraggler",
        ),
        f"{whole} or on () ({rank}) or on () {paused} or on () {idle}",
        unit="percentunit",
        decimals=0,
        steps=panels.LOST_TIME,
        mappings=[NO_DATA_MAPPING, panels.state("-1", "-", palette.QUIET, 1)],
        name="{{who}}",
        link=RUN_OF_SERIES,
        span=8,
    )


def _losses() -> Panel:
    worst = panels.worst(f"port:pyrometer_nic_link_down_events:increase10m{{{NODE_IS}}}", 0, "$1", "device")
    return panels.stat(
        "Links lost",
        Reading(
            "The port of this node that lost its link most often in the last 10 minutes, from counters, and how often.",
            "nobody, 0.",
            "See the port below; three losses of one port are a flapping link.",
            "NicLinkFlapping",
        ),
        f"({worst}) unless on () {_GONE}",
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.WATCH), (3, palette.BAD), (10, palette.WORST)],
        name="{{who}}",
        span=5,
    )


def _memory() -> Panel:
    return panels.stat(
        "Memory errors",
        Reading(
            "Uncorrected memory errors since the driver was loaded and rows remapped in the GPUs' lives, of the "
            "worst GPU.",
            "0; a few remapped rows are normal wear.",
            "A pending remap wants a reset, a failed one a new board.",
            "GpuEccUncorrected",
        ),
        panels.worst(f'gpu:pyrometer_gpu_quantity:now{{{NODE_IS}, what="ecc"}}', 0, "GPU $1", "gpu"),
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.WATCH), (8, palette.BAD)],
        name="{{who}}",
        span=5,
    )


def _deviations() -> Panel:
    return Panel(
        "Steps from the rail's median",
        "table",
        Reading(
            "Each GPU of this node in each quantity against the median of the same GPU number on all working nodes: 1 "
            "is worth a look, 2 bad, 3 the worst.",
            "all below 1.",
            "A column of colour is the node (cooling, power); a row is the GPU.",
            "GpuThrottledThermal",
        ),
        [Query(f"gpu:pyrometer_gpu_deviation:steps{{{_GPU_IS}}}", instant=True, table=True)],
        steps=panels.DEVIATION,
        decimals=1,
        mappings=[NO_DATA_MAPPING],
        custom=panels.CELLS,
        transformations=panels.matrix(
            "gpu",
            "what",
            {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "gpu\\what"}]}},
            renamed={"gpu\\what": "GPU", "temperature": "heat", "ecc": "ECC", "pcie": "PCIe"},
            first=["temperature", "clock", "power", "tensor", "throttled", "ecc", "pcie", "links"],
        ),
        overrides=[
            Override("GPU", leading_to(gpu_of_this_node("GPU"), **panels.ROW_NAME, **{"custom.width": 50})),
            *(Override(name, {"custom.minWidth": 18 + 8 * len(name)}) for name in ("power", "tensor", "throttled")),
        ],
        span=16,
    )


_OVER_BAND = "Each GPU of the node; the blue band is the 5th to the 95th percentile of all working GPUs."
_WORKED = "Share of time in which the tensor cores worked, of each GPU of the node, over the band of all working GPUs."
_COOLING = "One line above it: that GPU's cooling. All: the node's or the rack's air."
_SLOW = "One line below the others is a GPU that slows its whole run down."
_FED_LATE = "All GPUs low: the node feeds them late. One low: that rank does less work."
# Quantities of the node's GPUs: title, how to read it, unit, ends of the scale.
_BANDS = {
    "temperature": (
        "Temperature",
        Reading(_OVER_BAND, "in the band.", _COOLING, "GpuThrottledThermal"),
        "celsius",
        (20, 95),
    ),
    "clock": (
        "SM clock",
        Reading(_OVER_BAND, "in the band, which is thin.", _SLOW, "GpuThrottledHardware"),
        "rotmhz",
        (0, 2200),
    ),
    "power": (
        "Power",
        Reading(_OVER_BAND, "in the band.", "Below it at full load: it starves or is capped."),
        "watt",
        (0, 800),
    ),
    "tensor": ("Tensor cores", Reading(_WORKED, "in the band.", _FED_LATE), "percentunit", (0, 1)),
}


def _against_band(what: str) -> Panel:
    """Return the node's GPUs as lines over the band of all working GPUs."""
    title, reading, unit, limits = _BANDS[what]
    fleet = f'cluster:pyrometer_gpu_quantity:quantile{{cluster="$cluster", what="{what}", quantile="%s"}}'
    edge: dict[str, object] = {"lineWidth": 0, "hideFrom": panels.UNNAMED}
    return panels.lines(
        f"{title}, all GPUs as a band",
        reading,
        [
            Query(fleet % "0.05", "all: p5"),
            Query(fleet % "0.95", "all: p95"),
            Query(f'gpu:pyrometer_gpu_quantity:now{{{_GPU_IS}, what="{what}"}}', _GPU),
        ],
        unit=unit,
        limits=limits,
        overrides=[
            panels.fixed("all: p5", palette.BAND, **edge),
            panels.fixed("all: p95", palette.BAND, fillBelowTo="all: p5", fillOpacity=25, **edge),
            *panels.numbered("^GPU %s$"),
        ],
    )


def _throttling() -> Panel:
    return panels.lines(
        "Time under each reason",
        Reading(
            "Share of the time under each reason that slows clocks, from counters: nothing between two scrapes is "
            "missed.",
            "only power_cap, which is normal at full load.",
            "hw_thermal, sw_thermal: heat. hw_power_brake: the supply. hw_slowdown: hardware.",
            "GpuThrottledThermal",
        ),
        [
            Query(
                f'gpu:pyrometer_gpu_clock_event_seconds:rate1m{{{_GPU_IS}, reason!="power_cap"}}',
                f"{_GPU} {{{{reason}}}}",
            ),
            Query(
                f'avg by (reason) (gpu:pyrometer_gpu_clock_event_seconds:rate1m{{{_GPU_IS}, reason="power_cap"}})',
                "power_cap, mean",
            ),
        ],
        unit="percentunit",
        limits=(0, 1),
        watched=f"pyrometer_gpu_up{{{_GPU_IS}}} == 1",
        overrides=[*panels.reasons(), panels.fixed("power_cap, mean", palette.HEALTHY)],
    )


def _flaps() -> Panel:
    return panels.bars(
        "Link losses",
        Reading(
            "Losses of each port's link, from counters: a flap between two scrapes counts.",
            "none.",
            "One port: its cable or its switch port. All ports at once: the node or the switch.",
            "NicLinkFlapping",
        ),
        panels.counted(f"pyrometer_nic_link_down_events_total{{{NODE_IS}}}", _PORT),
        unit="locale",
        decimals=0,
        watched=f"increase(pyrometer_nic_link_down_events_total{{{NODE_IS}}}[$__rate_interval])",
    )


def _traffic() -> Panel:
    return panels.lines(
        "Traffic of each port, sent",
        Reading(
            "Bits per second sent by each port, RDMA included.",
            "all rails alike.",
            "A port below the others carries less of the collectives: look at its rate and its errors.",
        ),
        Query(f"8 * rate(pyrometer_nic_port_data_transmitted_bytes_total{{{NODE_IS}}}[$__rate_interval])", _PORT),
        unit="bps",
        limits=(0, None),
        overrides=panels.numbered(r"_%s\/"),
    )


def _errors() -> Panel:
    return panels.table(
        "Link errors of the last 5 minutes",
        Reading(
            "Errors of each port by kind; only ports that have some.",
            "'none reported'.",
            "Symbol errors and recoveries: the cable. Retries exhausted: a connection died, NCCL says error 12.",
            "NicLinkFlapping",
        ),
        f"port:pyrometer_nic_errors:increase5m{{{NODE_IS}}}",
        {"device": "device", "port": "port", "kind": "kind", "Value": "errors"},
        fields={name: {"custom.width": width} for name, width in (("device", 90), ("port", 55), ("errors", 80))},
        unit="locale",
        decimals=0,
        sort="errors",
        healthy=Healthy("none reported", f"pyrometer_nic_link_up{{{NODE_IS}}}"),
    )


def _waits() -> Panel:
    return panels.lines(
        "What the node's ranks cost the others",
        Reading(
            "How much less each rank waits than the median of its stage: the share of the time that the others wait "
            "for it.",
            "around 0; below 5 %.",
            "All ranks of the node: the host (CPU, memory, storage). One rank: its GPU.",
        ),
        Query(f"rank:pyrometer_train_spare_gap:with_gpu{{{NODE_IS}}}", "rank {{rank}}"),
        unit="percentunit",
        limits=(-0.1, 0.5),
        colour=panels.BY_WORST,
        steps=[(None, palette.HEALTHY), *panels.LOST_TIME[1:]],
        no_value="no ranks with data here",
        links=[RUN_OF_SERIES],
    )
