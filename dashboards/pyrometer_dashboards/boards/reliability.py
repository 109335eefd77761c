"""Reliability: how often does it break, what breaks, and what breaks again?"""

from __future__ import annotations

from dataclasses import replace

from pyrometer_dashboards import failure_panels, palette, panels, proof
from pyrometer_dashboards.common import CLUSTER, CLUSTERS, DEPLOYS, GPU_OF_ROW, NODE_OF_ROW, RELIABILITY
from pyrometer_dashboards.failure_panels import CRITICAL, ECC, FAILED_NOW, FLAPS, KNOWN, LOST, XIDS, xids_by_code
from pyrometer_dashboards.grafana_defaults import absent_mapping
from pyrometer_dashboards.model import Board, Panel, Query, Reading, Row
from pyrometer_dashboards.proof import Healthy

# Node-minutes with an answer, in hours.
_NODE_HOURS = f"(sum_over_time(cluster:up:nodes{{{CLUSTER}}}[$__range]) / 60)"
# Node failures: a critical Xid, an uncorrected memory error, a node that stops answering. Counted by node and five
# minutes, so that a GPU that reports one Xid a thousand times is one failure.
_FAILURES = (
    f"(count(count_over_time((group by (node) ({CRITICAL}) or group by (node) ({ECC}) or group by (node) ({LOST}))"
    f"[$__range:5m]) or {FAILED_NOW}) "
    f"or on () 0 * count(cluster:up:nodes{{{CLUSTER}}}))"
)

# Series recorded only for events: their absence means none, not a lack of data.
_AGAIN = failure_panels.again("node, gpu", CRITICAL, ECC)
_AGAIN_PORTS = failure_panels.again("node, device, port", FLAPS)
_CELL: dict[str, object] = {"mappings": [absent_mapping("-")], "links": [], **panels.coloured()}


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=RELIABILITY,
        title="Pyrometer / Reliability",
        question="How often does it break, what breaks, and what breaks again?",
        needs="the node exporter on each GPU node, and the cluster exporter",
        tags=["trends"],
        time_from="now-30d",
        refresh="",
        variables=[CLUSTERS],
        annotations=[DEPLOYS],
        rows=[
            Row([_failures(), _mtbf(), _low(), _high(), _hours()], height=4),
            Row([_ledger(), _ledger_by_day(), _runs()], height=12),
            Row([_nodes_lost(), _xids_by_day()], height=9),
            Row([_offenders(), _ports(), _xid_table()], height=10),
            Row([failure_panels.xids(), failure_panels.links(), failure_panels.memory()]),
            Row([failure_panels.moved_gpus(), failure_panels.moved_cables()]),
        ],
    )


def _failures() -> Panel:
    return panels.stat(
        "Failed nodes",
        Reading(
            "Nodes that in the time range had a critical Xid, an uncorrected memory error, or stopped answering.",
            "Llama 3's 54 days on 2,048 nodes had 419 unexpected interruptions: about one in 260 node-days.",
            "The tables below name them.",
            "GpuXidCritical",
        ),
        _FAILURES,
        unit="locale",
        name="in the time range",
        span=5,
    )


def _mtbf() -> Panel:
    return panels.stat(
        "Hours per failure",
        Reading(
            "Hours of all nodes that answered, divided by the nodes that failed. With no failure there is no mean, "
            "only a lower end.",
            "thousands of hours.",
            "Read it with its interval: few failures say little.",
        ),
        f"{_NODE_HOURS} / on () ({_FAILURES} > 0)",
        unit="locale",
        decimals=0,
        name="hours",
        healthy=Healthy("no failure", f"max_over_time({proof.NODES_SEEN}[$__range]) > 0"),
        span=5,
    )


def _low() -> Panel:
    return panels.stat(
        "At least (95 %)",
        Reading(
            "Lower end of the 95 % interval of the hours between failures: chi-square for a Poisson count, in Wilson "
            "and Hilferty's approximation.",
            "close to the mean.",
            "Far below the mean: wait for more data before you conclude anything.",
        ),
        _bound(1),
        unit="locale",
        decimals=0,
        name="hours per failed node",
        span=5,
    )


def _high() -> Panel:
    return panels.stat(
        "At most (95 %)",
        Reading(
            "Upper end of the 95 % interval of the hours between failures.",
            "close to the mean.",
            "Absent without any failure: there is no upper end then.",
        ),
        _bound(0),
        unit="locale",
        decimals=0,
        name="hours per failed node",
        healthy=Healthy("no failure", f"max_over_time({proof.NODES_SEEN}[$__range]) > 0"),
        span=5,
    )


def _bound(more: int) -> str:
    """Return one end of the confidence interval: hours divided by a count that is as plausible (Poisson)."""
    count = f"({_FAILURES} + {more})" if more else f"({_FAILURES} > 0)"
    sign = "+" if more else "-"
    return f"{_NODE_HOURS} / on () ({count} * (1 - 1 / (9 * {count}) {sign} 1.96 / (3 * sqrt({count}))) ^ 3)"


def _hours() -> Panel:
    return panels.stat(
        "Seen",
        Reading(
            "Share of the expected node-hours of the time range in which the nodes answered.",
            "above 99 %.",
            "What was not seen may have failed unseen: every count here is a lower end.",
        ),
        f"sum_over_time(cluster:up:nodes{{{CLUSTER}}}[$__range]) "
        f"/ on (cluster) sum_over_time(cluster:up:nodes_expected{{{CLUSTER}}}[$__range])",
        unit="percentunit",
        decimals=2,
        name="of the node-hours",
        steps=[(None, palette.BAD), (0.95, palette.WATCH), (0.99, palette.QUIET)],
    )


def _ledger() -> Panel:
    return panels.table(
        "Goodput ledger",
        Reading(
            "Where the time of all runs went in the time range; the states add up to the time that passed.",
            "useful above 90 %.",
            "rework: save more often. down: see what failed. init: start faster.",
        ),
        f"sum by (state) (increase(run:pyrometer_run_seconds:total{{{CLUSTER}}}[$__range])) "
        f"/ on () group_left () sum(increase(run:pyrometer_run_seconds:total{{{CLUSTER}}}[$__range]))",
        {"state": "state", "Value": "share"},
        unit="percentunit",
        decimals=1,
        sort="share",
        fields={"share": panels.gauge(1)},
        no_value="no data: this board needs the node exporter and the cluster exporter (docs/no-data.md)",
        span=6,
    )


def _ledger_by_day() -> Panel:
    time = f"sum_over_time(run:pyrometer_run_seconds:new5m{{{CLUSTER}}}[$__interval])"
    shown = panels.bars(
        "Where the runs' time went, by day",
        Reading(
            "Shares of the time of all runs in each state of the ledger.",
            "nearly all useful.",
            "A day that sticks out: the alerts of that day say what broke.",
        ),
        Query(f"sum by (state) ({time}) / on () group_left () sum({time})", "{{state}}", step="1d"),
        unit="percentunit",
        no_value="no whole day of a ledger in the range",
        overrides=[panels.fixed(state, colour) for state, colour in palette.LEDGER.items()],
        span=12,
    )
    return replace(shown, limits=(0, 1))


def _runs() -> Panel:
    attempts = (
        f"group by (run, job_id, attempt) (last_over_time(run:pyrometer_train_run_info:config{{{CLUSTER}}}[$__range]))"
    )
    lineages = f"last_over_time(run:pyrometer_train_rank_start:lineage{{{CLUSTER}}}[$__range])"
    of_lineage = f"{attempts} * on (run, job_id) group_left (lineage) topk by (run, job_id) (1, 0 * {lineages} + 1)"
    return panels.table(
        "Interruptions of runs",
        Reading(
            "How often each run began again in the time range: its attempts less the first, in one job or in those of "
            "one user that follow each other. Of two that ran at a time each has its own row.",
            "few; each costs the time since the last checkpoint and the start.",
            "See what fired before it in Alerts.",
        ),
        f"count by (run, lineage) ({of_lineage} or {attempts} unless on (run, job_id) {lineages}) - 1",
        {"run": "run", "lineage": "whose", "Value": "restarts"},
        unit="locale",
        sort="restarts",
        no_value="no run in the range",
        span=6,
    )


def _nodes_lost() -> Panel:
    return panels.bars(
        "Nodes that stopped answering, by day",
        Reading(
            "Nodes that answered and then didn't for five minutes, each time counted.",
            "few.",
            "Several at once: power, a switch, or a roll-out.",
            "NodeExporterDown",
        ),
        Query(f"sum(count_over_time({LOST}[$__interval])) {KNOWN}", "nodes", step="1d"),
        unit="locale",
        no_value="no whole day in the range",
        overrides=[panels.fixed("nodes", palette.BAD)],
        span=12,
    )


def _xids_by_day() -> Panel:
    return panels.bars(
        "Xids by day and class",
        Reading(
            "Errors that the driver reported, each counted once, by how bad they are.",
            "mostly app: the jobs' own mistakes.",
            "critical ones: a GPU that wants a reset or a new board.",
            "GpuXidCritical",
        ),
        Query(
            f"sum by (class) (sum_over_time({XIDS}[$__interval])) or on () label_replace(0 * max("
            f'{proof.XIDS}), "class", "none", "", "")',
            "{{class}}",
            step="1d",
        ),
        unit="locale",
        no_value="no whole day in the range",
        overrides=[
            panels.fixed("critical", palette.WORST),
            panels.fixed("warning", palette.BAD),
            panels.fixed("info", palette.HEALTHY),
            panels.fixed("app", palette.NO_DATA),
        ],
        span=12,
    )


def _offenders() -> Panel:
    return panels.table(
        "GPUs that fail again",
        Reading(
            "GPUs whose critical Xids or uncorrected memory errors in the time range are more than ten minutes apart, "
            "by UUID: it goes with the board.",
            "'none'.",
            "Two and more in a month: take the board out.",
            "GpuXidCritical",
        ),
        [
            f"topk(20, sum by (node, gpu, uuid) (sum_over_time({CRITICAL}[$__range])) and on (node, gpu) {_AGAIN})",
            f"topk(20, sum by (node, gpu) (sum_over_time({ECC}[$__range])) and on (node, gpu) {_AGAIN})",
        ],
        {"node": "node", "gpu": "gpu", "uuid": "uuid", "Value #A": "Xids", "Value #B": "memory"},
        unit="locale",
        sort="Xids",
        steps=[(None, palette.QUIET), (2, palette.BAD), (4, palette.WORST)],
        link=GPU_OF_ROW,
        fields={
            "gpu": {"custom.width": 50},
            "uuid": {"mappings": [absent_mapping("-")], "links": []},
            "Xids": _CELL | {"custom.width": 70},
            "memory": _CELL | {"custom.width": 90},
        },
        no_value=proof.NO_LOG,
        healthy=Healthy("none", proof.XIDS_SEEN),
        span=9,
    )


def _ports() -> Panel:
    return panels.table(
        "Ports that fail again",
        Reading(
            "Ports that lost their link most often in the time range, and again ten minutes and more after the first "
            "time.",
            "'none'.",
            "Replace the first row's cable; if it stays, the transceivers.",
            "NicLinkFlappingChronic",
        ),
        f"topk(20, sum by (node, device, port) (sum_over_time({FLAPS}[$__range])) "
        f"and on (node, device, port) {_AGAIN_PORTS})",
        {"node": "node", "device": "device", "port": "port", "Value": "losses"},
        unit="locale",
        sort="losses",
        # Two in a day are chronic (NicLinkFlappingChronic).
        steps=[(None, palette.QUIET), (2, palette.WATCH), (5, palette.BAD), (10, palette.WORST)],
        fields={"losses": panels.coloured() | {"custom.width": 80}},
        link=NODE_OF_ROW,
        healthy=Healthy("none", proof.past(proof.PORTS)),
    )


def _xid_table() -> Panel:
    return panels.table(
        "Xids by code",
        Reading(
            "How often each code came in the time range, and on how many GPUs: the table of Llama 3 and Fire-Flyer.",
            "13, 31, 43, 45: the jobs' own.",
            "48, 63, 64, 94, 95: memory. 74: NVLink. 79: off the bus. 119, 120: GSP.",
            "GpuXidCritical",
        ),
        [
            xids_by_code("sum", "%s"),
            xids_by_code("count", "sum by (xid, class, node, gpu) (%s)"),
        ],
        {"xid": "xid", "class": "class", "Value #A": "times", "Value #B": "GPUs"},
        unit="locale",
        sort="times",
        fields={"GPUs": {"mappings": [absent_mapping("-")]}},
        no_value=proof.NO_LOG,
        healthy=Healthy("none", proof.XIDS_SEEN),
        span=7,
    )
