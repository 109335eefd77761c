"""Overview: is the run healthy, and who is to blame? The first row answers in ten seconds; it is Grafana's home."""

from __future__ import annotations

from dataclasses import replace

from pyrometer_dashboards import (
    collective_panels,
    fleet_panels,
    incident_panels,
    palette,
    panels,
    proof,
    run_panels,
    slurm_panels,
)
from pyrometer_dashboards.common import (
    ALERTING,
    ALERTS,
    CLUSTER,
    CLUSTERS,
    GPU_OF_ROW,
    MARKS,
    NODE_OF_ROW,
    OVERVIEW,
    RELIABILITY,
    RUN_NAME,
    RUN_OF_SERIES,
    SPARES,
    STACK_HEALTH,
    THROTTLING,
    link,
)
from pyrometer_dashboards.model import Board, Override, Panel, Query, Reading, Row, Variable
from pyrometer_dashboards.proof import Healthy

_RUNS = Variable(
    "run",
    "Run",
    'label_values(run:pyrometer_train_ranks:count{cluster="$cluster"}, run)',
    all_value=".+",
)
_RUN = 'cluster="$cluster", run=~"$run"'

_MEDIAN = f'run:pyrometer_train_batch_mfu_ratio:window1m{{{_RUN}, stat="p50"}}'


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=OVERVIEW,
        title="Pyrometer / Overview",
        question="Is the run healthy, and who is to blame? Every number leads to the board that explains it.",
        needs="a job that reports its steps, and the node exporter on each GPU node",
        tags=["start", "on-call"],
        time_from="now-3h",
        refresh="30s",
        variables=[CLUSTERS, _RUNS, ALERTING],
        annotations=[replace(mark, switch=False) for mark in MARKS],
        rows=[
            # The first screen of a laptop: is a run sick, who is to blame, what is being done.
            Row([fleet_panels.verdict(), _straggler(), _mfu(), _faults(), _freshness()], height=3),
            Row([fleet_panels.runs()], height=4),
            Row([incident_panels.incidents()], height=4),
            Row([_mfu_over_time(), _steps()], height=13),
            Row([_goodput(), _throttled(), _step_rate(), _last_step(), _spares()], height=4),
            Row([_worst_gpus(), _missing(), _links()]),
            Row([slurm_panels.unavailable(), slurm_panels.queue()], height=6),
            Row(
                [
                    collective_panels.standing_jobs(),
                    collective_panels.awaited_ranks(),
                    collective_panels.lost_bandwidth(),
                ],
                height=5,
            ),
            Row([fleet_panels.temperature(), fleet_panels.clock(), fleet_panels.throttling()], height=7),
        ],
    )


def _straggler() -> Panel:
    return run_panels.waited_for("Straggler", _RUN, span=5)


def _last_step() -> Panel:
    return panels.stat(
        "Last step",
        Reading(
            "Time since the newest step of the run that has been silent longest, and its name.",
            "below three step times; grey and small.",
            "Open the run: 'Where it is now' shows which part of the step it is in.",
        ),
        f"topk(1, time() - run:pyrometer_train_last_step:timestamp_seconds{{{_RUN}}})",
        unit="s",
        steps=[(None, palette.QUIET), (60, palette.WATCH), (300, palette.WORST)],
        name=RUN_NAME,
        link=RUN_OF_SERIES,
        span=5,
    )


def _step_rate() -> Panel:
    rate = f"run:pyrometer_train_steps:rate1m{{{_RUN}}}"
    return panels.stat(
        "Steps",
        Reading(
            "Steps per second over the last minute, of the run that fell furthest below its own median of an hour.",
            "constant; the level depends on the run's size and batch.",
            "0: the run has stopped. Less than before: the runs below show since when.",
            "TrainStalled",
        ),
        # A lower bound of the divisor: a run that has been stopped for an hour fell furthest.
        f"{rate} and bottomk(1, {rate} / clamp_min(quantile_over_time(0.5, {rate}[1h]), 0.0001))",
        unit="suffix:/s",
        decimals=2,
        steps=[(None, palette.WORST), (0.0001, palette.QUIET)],
        name=RUN_NAME,
        link=RUN_OF_SERIES,
        span=5,
    )


def _goodput() -> Panel:
    return panels.stat(
        "Goodput",
        Reading(
            "Share of the last 24 hours in which steps were taken for the first time, of the run with the least: all "
            "else is rework after a restart, checkpoints, evaluation, start-up or stopped.",
            "above 90 % (Llama 3's 54 days, for comparison: more than 90 %).",
            "Reliability has the ledger: which state took the time.",
        ),
        f"bottomk(1, run:pyrometer_run_seconds:useful_ratio24h{{{_RUN}}})",
        unit="percentunit",
        decimals=0,
        steps=[(None, palette.WORST), (0.7, palette.BAD), (0.9, palette.QUIET)],
        name=f"{RUN_NAME}, 24 h",
        link=("Open reliability", link(RELIABILITY)),
        span=5,
    )


def _spares() -> Panel:
    return panels.stat(
        "Spares",
        Reading(
            "Idle nodes: of Slurm where the cluster exporter asks it, else those whose GPUs all work for nobody.",
            "a few: what a failed node is replaced with.",
            "0: the next failure stops the run until a node is repaired.",
        ),
        f'sum(pyrometer_slurm_nodes{{{CLUSTER}, state="idle"}}) or count(node:pyrometer_gpu:idle{{{CLUSTER}}}) '
        f"or on () 0 * count(gpu:pyrometer_gpu:allocated{{{CLUSTER}}})",
        unit="locale",
        steps=[(None, palette.WATCH), (1, palette.QUIET)],
        name="nodes idle",
        link=SPARES,
    )


def _mfu() -> Panel:
    now = f"max by (run, job_id) ({_MEDIAN})"
    of_week = f"max by (run, job_id) (quantile_over_time(0.5, {_MEDIAN}[7d]))"
    pace = f"max by (run, job_id) ({run_panels.pace(_RUN)})"
    return panels.stat(
        "MFU, 7 days",
        Reading(
            "MFU of the moment as a share of the run's own median of the last 7 days, or of the pace that it could "
            "have (its best of 3 hours, what is expected of its configuration, or without the rank that all wait for) "
            "where that is more; of the run that fell furthest.",
            "97 % and more; below 85 % TrainMfuDropped pages.",
            "Open the run: the loss budget says where the rest went; the table below says who.",
            "TrainMfuDropped",
        ),
        f"bottomk(1, min by (run, job_id) ({now} / on (run, job_id) {of_week} "
        f'or label_replace({pace}, "of", "pace", "", "")))',
        unit="percentunit",
        decimals=1,
        steps=panels.KEPT,
        name=RUN_NAME,
        link=RUN_OF_SERIES,
        span=5,
    )


def _faults() -> Panel:
    or_none = f"or on () 0 * count(cluster:up:nodes{{{CLUSTER}}})"

    def firing(severity: str) -> Query:
        count = f'count(ALERTS{{alertstate="firing", severity="{severity}", {CLUSTER}}})'
        return Query(f"{count} {or_none}", severity, instant=True)

    shown = panels.stat(
        "Alerts",
        Reading(
            "Critical and warning alerts of this cluster that fire now.",
            "0 and 0.",
            "Open the alerts: the worst by harm is at the top, and the same is in Slack.",
        ),
        "",
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.WORST)],
        link=("Open the alerts", link(ALERTS)),
        name="severity",
    )
    warning = Override("warning", panels.thresholds([(None, palette.QUIET), (1, palette.BAD)]))
    return replace(shown, queries=[firing("critical"), firing("warning")], overrides=[warning])


def _throttled() -> Panel:
    return fleet_panels.worst_throttled(
        "Throttled",
        "Open Throttling: it names them all, and the reason.",
        ("Open throttling", link(THROTTLING)),
        span=5,
    )


def _freshness() -> Panel:
    gone = f'label_replace(topk(1, up{{job="node", {CLUSTER}}} == 0), "who", "$1", "node", "(.*)")'
    all_there = f'label_replace(0 * cluster:up:nodes{{{CLUSTER}}} + 1, "who", "all answer", "", "")'
    return panels.stat(
        "Nodes",
        Reading(
            "Share of the node exporters that answer: how much of the cluster this board sees; and one that doesn't.",
            "100 %. What is missing is missing everywhere on these boards, and said so.",
            "Open Stack health for which and why; a node that is gone has its own alert.",
            "NodeExporterDown",
        ),
        f"(cluster:up:nodes{{{CLUSTER}}} / on (cluster) cluster:up:nodes_expected{{{CLUSTER}}}) "
        f"* on (cluster) group_left (who) (0 * {gone} + 1 or on (cluster) {all_there})",
        unit="percentunit",
        decimals=1,
        steps=[(None, palette.WORST), (0.98, palette.BAD), (0.9999, palette.QUIET)],
        name="{{who}}",
        link=("Open stack health", link(STACK_HEALTH)),
    )


def _mfu_over_time() -> Panel:
    dotted = {"fill": "dot", "dash": [0, 6]}
    return panels.lines(
        "MFU of the runs",
        Reading(
            "Median MFU of each minute's batches, and the band from the 5th to the 95th percentile of all batches.",
            "a straight line in a thin band; dips at checkpoints.",
            "Follow the line to the run's board, where every batch is a point.",
            "TrainMfuDropped",
        ),
        [
            Query(f"{_MEDIAN} offset -1m", RUN_NAME, step="1m"),
            Query(
                f'run:pyrometer_train_batch_mfu_ratio:window1m{{{_RUN}, stat="p05"}} offset -1m',
                f"{RUN_NAME} p5",
                step="1m",
            ),
        ],
        unit="percentunit",
        limits=(0, None),
        links=[RUN_OF_SERIES],
        custom={"spanNulls": 180000, "lineWidth": 2},
        overrides=[
            *panels.named(),
            Override(
                "/ p5$/",
                {
                    "color": {"mode": "fixed", "fixedColor": palette.BAND},
                    "custom.lineStyle": dotted,
                    "custom.lineWidth": 1,
                    "custom.hideFrom": panels.UNNAMED,
                },
                "byRegexp",
            ),
        ],
        span=14,
    )


def _steps() -> Panel:
    return panels.lines(
        "Steps per second",
        Reading(
            "Steps per second of each run, from counters.",
            "constant; it falls together with MFU unless the batch was changed.",
            "Compare with MFU: steps down and MFU steady means the configuration changed.",
        ),
        Query(f"run:pyrometer_train_steps:rate1m{{{_RUN}}}", RUN_NAME),
        unit="none",
        limits=(0, None),
        links=[RUN_OF_SERIES],
        overrides=panels.named(),
        span=10,
    )


def _worst_gpus() -> Panel:
    return panels.table(
        "GPUs furthest from their rail",
        Reading(
            "The ten GPUs that deviate most from the median of the same GPU number on all working nodes, in steps: 1 "
            "is worth a look, 2 bad, 3 the worst; each with what it deviates in.",
            "'none' (by half a step), or all below 1.",
            "Open the row's node. The GPU matrix shows whether it is the only one.",
        ),
        f'topk(10, gpu:pyrometer_gpu_deviation:worst{{{CLUSTER}, what!="tensor"}})',
        {"node": "node", "gpu": "gpu", "what": "what", "Value": "steps off"},
        steps=panels.DEVIATION,
        sort="steps off",
        link=GPU_OF_ROW,
        fields={"steps off": panels.coloured() | {"decimals": 1, "custom.width": 100}},
        healthy=Healthy("none", proof.compared('what!="tensor"')),
        span=10,
    )


def _missing() -> Panel:
    return panels.table(
        "GPUs without data",
        Reading(
            "GPUs that should be there and don't answer: lost GPUs and all GPUs of nodes that are gone.",
            "'none missing'.",
            "One GPU of a node: it fell off the bus. All of a node: look at the node.",
            "GpuLost",
        ),
        f"count by (node) (gpu:pyrometer_gpu_up:missing{{{CLUSTER}}})",
        {"node": "node", "Value": "GPUs missing"},
        unit="locale",
        steps=[(None, palette.WORST)],
        fields={"GPUs missing": panels.coloured()},
        sort="GPUs missing",
        link=NODE_OF_ROW,
        healthy=Healthy("none missing", proof.GPUS),
        span=6,
    )


def _links() -> Panel:
    return panels.table(
        "Links that were lost",
        Reading(
            "Ports that lost their link in the last 10 minutes, and how often. From counters: a flap between two "
            "scrapes is in it.",
            "'none lost'.",
            "Open Fabric: one port is a cable, many of one switch are the switch.",
            "NicLinkFlapping",
        ),
        f"topk(10, port:pyrometer_nic_link_down_events:increase10m{{{CLUSTER}}} > 0)",
        {"node": "node", "device": "device", "Value": "losses"},
        unit="locale",
        steps=[(None, palette.WATCH), (3, palette.BAD), (10, palette.WORST)],
        sort="losses",
        link=NODE_OF_ROW,
        fields={"losses": panels.coloured() | {"custom.width": 90}},
        healthy=Healthy("none lost", proof.PORTS),
    )
