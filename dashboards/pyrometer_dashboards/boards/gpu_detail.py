"""GPU detail: one GPU by node and number: what slows it, what failed, who works on it, where it was before."""

from __future__ import annotations

from pyrometer_dashboards import alert_panels, gpu_panels, palette, panels, proof
from pyrometer_dashboards.common import (
    CLUSTERS,
    GPU_DETAIL,
    JOB_OF_ROW,
    NODE,
    NODES,
    TRAINING_RUN,
    fired,
    leading_to,
    link,
)
from pyrometer_dashboards.gpu_panels import GPU_IS
from pyrometer_dashboards.model import Annotation, Board, Panel, Reading, Row, Variable
from pyrometer_dashboards.proof import Healthy

# Not named gpu: on the board of a node that is a choice of several, which the menu would bring along.
_INDEX = Variable("index", "GPU", 'label_values(pyrometer_gpu_up{cluster="$cluster", node="$node"}, gpu)', numeric=True)
_SERIAL = Variable(
    "serial",
    query='label_values(pyrometer_gpu_info{cluster="$cluster", node="$node", gpu="$index"}, serial)',
    hidden=True,
)
_HERE = Annotation("Alerts", fired(GPU_IS), "{{alertname}}", "{{node}} GPU {{gpu}}", palette.BAD, at_value=True)
_NODE_BOARD = ("Open the node", link(NODE, node="$node"))


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=GPU_DETAIL,
        title="Pyrometer / GPU detail",
        question="One GPU: what slows it, what failed in it, who works on it, and where was this part before?",
        needs="the node exporter on this GPU's node",
        tags=["hardware"],
        time_from="now-3h",
        refresh="30s",
        variables=[CLUSTERS, NODES, _INDEX, _SERIAL],
        annotations=[_HERE],
        rows=[
            Row(panels.tiles(_answers(), _throttled(), _left(), _furthest()), height=3),
            Row([_alerts(), _users()], height=7),
            Row(panels.tiles(gpu_panels.throttling(), gpu_panels.clocks()), height=16),
            Row([_identity()], height=4),
            Row(panels.tiles(gpu_panels.power(), gpu_panels.temperatures()), height=7),
            Row(panels.tiles(gpu_panels.memory(), gpu_panels.activity()), height=7),
            Row(panels.tiles(gpu_panels.traffic(), gpu_panels.link_errors(), _xids()), height=7),
            Row(panels.tiles(gpu_panels.memory_errors(), _deviations())),
            Row(panels.tiles(_places()), height=7, title="Where this part was, by its serial number", collapsed=True),
        ],
    )


def _answers() -> Panel:
    return panels.stat(
        "Answers",
        Reading(
            "Whether the GPU answered within its deadline and with plausible values.",
            "yes.",
            "No: drain the node. It fell off the bus, or hangs; the Xids below say which.",
            "GpuLost",
        ),
        f"max(pyrometer_gpu_up{{{GPU_IS}}} and on () {proof.NODE})",
        unit="none",
        steps=[(None, palette.WORST), (1, palette.QUIET)],
        mappings=panels.ANSWERS,
        link=_NODE_BOARD,
    )


def _throttled() -> Panel:
    share = f'gpu:pyrometer_gpu_quantity:now{{{GPU_IS}, what="throttled"}}'
    seconds = f"gpu:pyrometer_gpu_clock_event_seconds:rate1m{{{GPU_IS}, reason"
    # The driver counts hw_slowdown along with the two that say why.
    slowed = (
        f'({seconds}=~"hw_thermal|sw_thermal|hw_power_brake"}} or ({seconds}="hw_slowdown"}} '
        f'unless on (cluster, node, gpu) {seconds}=~"hw_thermal|hw_power_brake"}} > 0.01))'
    )
    return panels.stat(
        "Throttled",
        Reading(
            "Share of the last minute in which heat, power brake or hardware slowed it, and the first of the reasons.",
            "0 %, no reason.",
            "hw_thermal, sw_thermal: its cooling. hw_power_brake: the supply. hw_slowdown: the hardware itself. "
            "The panel below has all over time.",
            "GpuThrottledThermal",
        ),
        f'label_replace(topk(1, {slowed} > 0.01), "why", "$1", "reason", "(.+)") '
        f'or on () label_replace(0 * max({share}), "why", "no reason", "", "")',
        unit="percentunit",
        decimals=0,
        steps=panels.LOST_TIME,
        name="{{why}}",
    )


def _left() -> Panel:
    return panels.stat(
        "Until it slows down",
        Reading(
            "Degrees Celsius that are left until the GPU slows down (driver 570 and newer).",
            "above 10 °C.",
            "Below 0 it is too hot now: cooling of this GPU, or of the node if its neighbours are hot, too.",
            "GpuThermalMarginGone",
        ),
        f"min(DCGM_FI_DEV_GPU_TEMP_LIMIT{{{GPU_IS}}})",
        unit="celsius",
        decimals=0,
        steps=[(None, palette.WORST), (1, palette.BAD), (5, palette.WATCH), (10, palette.QUIET)],
    )


def _furthest() -> Panel:
    return panels.stat(
        "Furthest from its rail",
        Reading(
            "The quantity in which it is furthest from the median of the same GPU number on all working nodes, in "
            "steps towards harm.",
            "below 1 step.",
            "The table below has all quantities.",
            "GpuClockOutlier",
        ),
        f"topk(1, gpu:pyrometer_gpu_deviation:steps{{{GPU_IS}}})",
        unit="none",
        decimals=1,
        steps=panels.DEVIATION,
        name="{{what}}",
    )


_RUN = "${__data.fields.run}"


def _users() -> Panel:
    ranks = f"max by (run, job_id, rank, gpu) (pyrometer_train_rank_info{{{GPU_IS}}})"
    # The job of the GPU's processes may have another id than the run's.
    rank = f'label_replace({ranks}, "of", "$1", "job_id", "(.*)")'
    return panels.table(
        "Who works on it",
        Reading(
            "The job with a process on this GPU and its user, and the rank of the run that trains on it.",
            "one job.",
            "Ask the job's owner before a reset. Nobody: it is idle, or its processes are in no job.",
        ),
        f"group by (job_id, user, run, rank, of) ({rank} * on (gpu) group_left (job_id, user) "
        f"max by (gpu, job_id, user) (topk(1, pyrometer_gpu_job_info{{{GPU_IS}}})) "
        f"or on () pyrometer_gpu_job_info{{{GPU_IS}}} or on () {rank})",
        {"job_id": "job", "user": "user", "run": "run", "rank": "rank", "of": "of"},
        fields={
            "job": leading_to(JOB_OF_ROW),
            "run": leading_to((f"Open run {_RUN}", link(TRAINING_RUN, run=_RUN, job_id="${__data.fields.of}"))),
            "rank": {"custom.width": 60},
            "of": panels.HIDDEN,
        },
        no_value="no job is known here",
        span=12,
    )


def _alerts() -> Panel:
    return alert_panels.firing("Alerts of this GPU", ".+", {}, runbook="GpuXidCritical", matchers=GPU_IS, span=12)


def _identity() -> Panel:
    return panels.table(
        "What it is",
        Reading(
            "Serial number, firmware, driver, address and UUID, as the GPU said when it was first opened.",
            "firmware and driver as on all nodes.",
            "Quote the serial number to the vendor. Reliability has the parts that fail again.",
            "GpuReplacementDue",
        ),
        "group by (serial, vbios, driver, pci_bus_id, uuid, model) "
        f"(last_over_time(pyrometer_gpu_info{{{GPU_IS}}}[$__range]))",
        {
            "serial": "serial",
            "uuid": "UUID",
            "model": "model",
            "vbios": "firmware",
            "driver": "driver",
            "pci_bus_id": "address",
        },
        fields={"UUID": {"custom.width": 375}, "model": {"custom.width": 200}},
        span=24,
    )


def _xids() -> Panel:
    return panels.table(
        "Xids of this GPU in the range",
        Reading(
            "Errors that the driver reported for this GPU, each counted once, in the time range.",
            "'none reported'; 13, 31 and 43 are the job's own mistakes.",
            "docs/alerts.md says which mean a reset, a drain or a new board.",
            "GpuXidCritical",
        ),
        f"sum by (xid, class) (increase(pyrometer_gpu_xid_errors_total{{{GPU_IS}}}[$__range])) > 0",
        {"xid": "xid", "class": "class", "Value": "count"},
        unit="locale",
        decimals=0,
        sort="count",
        healthy=Healthy(
            "none reported",
            f"increase(pyrometer_gpu_xid_errors_total{{{GPU_IS}}}[$__rate_interval]) and on () {proof.NODE}",
        ),
    )


def _deviations() -> Panel:
    return panels.table(
        "Against its rail, in steps towards harm",
        Reading(
            "Each quantity of this GPU against the median of the same GPU number on all working nodes: 1 is worth a "
            "look, 2 bad, 3 the worst; beside it the value now.",
            "all below 1.",
            "Clock and heat together: cooling. Clock alone: a limit. Tensor cores alone: its rank does less work.",
            "GpuClockOutlier",
        ),
        [
            f"max by (what) (gpu:pyrometer_gpu_deviation:steps{{{GPU_IS}}})",
            f"max by (what) (gpu:pyrometer_gpu_quantity:now{{{GPU_IS}}})",
        ],
        {"what": "quantity", "Value #A": "steps", "Value #B": "now"},
        decimals=1,
        steps=panels.DEVIATION,
        sort="steps",
        fields={"steps": panels.coloured()},
    )


def _places() -> Panel:
    seen = 'timestamp(pyrometer_gpu_info{cluster="$cluster", serial="$serial"})[$__range:5m]'
    return panels.table(
        "Places of this part",
        Reading(
            "Every node and place in which the GPU with this serial number was seen within the time range, first and "
            "last.",
            "one place.",
            "Two places with the same trouble: it is the part. Trouble that stayed behind: the place.",
            "GpuReplacementDue",
        ),
        [
            f"1000 * min by (node, gpu, serial) (min_over_time({seen}))",
            f"1000 * max by (node, gpu, serial) (max_over_time({seen}))",
        ],
        {"serial": "serial", "node": "node", "gpu": "GPU", "Value #A": "first seen", "Value #B": "last seen"},
        unit="dateTimeAsIso",
        sort="last seen",
        link=("Open the place", link(GPU_DETAIL, node="${__data.fields.node}", index="${__data.fields.GPU}")),
    )
