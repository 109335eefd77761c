"""Training run: every batch of a run, where its time goes, and which rank, GPU or link the others wait for."""

from __future__ import annotations

from pyrometer_dashboards import batch_panels, collective_panels, palette, panels, proof, run_panels
from pyrometer_dashboards.common import (
    CHECKPOINTS,
    CLUSTERS,
    COMPARE_RUN,
    MARKS,
    NODE_OF_ROW,
    NODE_OF_SERIES,
    RUN_CHOICE,
    RUN_IS,
    TRAINING_RUN,
    recently,
)
from pyrometer_dashboards.model import Board, Panel, Query, Reading, Row
from pyrometer_dashboards.power_panels import power_of_run
from pyrometer_dashboards.proof import Healthy

# The nodes of the run: hardware series have no run label and are joined by node.
_ON_RUN_NODES = f"and on (cluster, node) node:pyrometer_train_run:member{{{RUN_IS}}}"

# Recorded a minute after its batches, and drawn at their time.
_MEDIAN = f'run:pyrometer_train_batch_mfu_ratio:window1m{{{RUN_IS}, stat="p50"}} offset -1m'


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=TRAINING_RUN,
        title="Pyrometer / Training run",
        question="What did each batch cost, where did the time go, and who is slow?",
        needs="a job that reports its steps",
        tags=["start", "training"],
        refresh="30s",
        variables=[CLUSTERS, *RUN_CHOICE, batch_panels.POINTS, batch_panels.SOURCE, batch_panels.STEPS],
        annotations=[*MARKS, CHECKPOINTS],
        rows=[
            Row(
                panels.tiles(_now(), _against_best(), _silent(), run_panels.waited_for("All wait for", RUN_IS, span=3)),
                height=3,
            ),
            Row(
                panels.tiles(run_panels.curve(), run_panels.against_expected(), run_panels.unsaved(), _lost_batches()),
                height=3,
            ),
            Row([batch_panels.every_batch()], height=18),
            Row([_loss_budget(), _parts()]),
            Row([_slow_ranks(), _where_now(), _wait()]),
            Row(
                [
                    collective_panels.awaited_ranks(RUN_IS, span=9),
                    collective_panels.standstill(),
                    collective_panels.bandwidth(),
                ],
                height=7,
            ),
            Row([_throttled(), _links(), _against_hardware()]),
            Row([run_panels.curves(), run_panels.ledger(), run_panels.batch_coverage()]),
            Row(
                [batch_panels.step_seconds(), _pauses(), batch_panels.loss()],
                title="Steps, pauses and loss",
                collapsed=True,
            ),
            power_of_run(),
            Row([_rate(), _configuration()], height=6, title="Tokens and configuration", collapsed=True),
            Row(
                [run_panels.timing(RUN_IS), run_panels.pages(RUN_IS)],
                height=5,
                title="Timing, and the run in other tools",
                collapsed=True,
            ),
        ],
    )


def _now() -> Panel:
    return panels.stat(
        "MFU now",
        Reading(
            "Model FLOPs utilisation of the moment: untagged batches of the last half minute (longer for long steps), "
            "or those before a checkpoint or another pause of up to 2 minutes.",
            "what this model, size and batch reached before: see the comparison beside it.",
            "Read the loss budget below: it says which part of the step grew.",
            "TrainMfuDropped",
        ),
        f"max({recently('run:pyrometer_train_batch_mfu_ratio:recent', RUN_IS)})",
        unit="percentunit",
        decimals=1,
        link=COMPARE_RUN,
    )


def _against_best() -> Panel:
    return panels.stat(
        "Of its best",
        Reading(
            "MFU of the moment divided by what the run exceeded a tenth of the last 3 hours, same configuration; or "
            "its pace without the rank that all wait for, where the run knows no better.",
            "97 % and more.",
            "Below 85 % TrainMfuDropped pages; the tables below name rank, GPU and link.",
            "TrainMfuDropped",
        ),
        f"min({run_panels.of_best(RUN_IS)})",
        unit="percentunit",
        decimals=0,
        steps=panels.KEPT,
    )


def _rate() -> Panel:
    return panels.lines(
        "Tokens per second",
        Reading(
            "Tokens trained on per second over the last minute, all ranks together.",
            "constant while the configuration is.",
            "Compare with MFU: tokens down and MFU steady means a smaller batch.",
        ),
        Query(f"run:pyrometer_train_tokens:rate1m{{{RUN_IS}}}", "tokens"),
        unit="locale",
        limits=(0, None),
        overrides=[panels.fixed("tokens", palette.BAND, lineWidth=2)],
    )


def _silent() -> Panel:
    return panels.stat(
        "Last step",
        Reading(
            "Time since any rank finished a step.",
            "below three step times; a checkpoint may take minutes.",
            "'Where the ranks are now' says in which part they stand, and which rank went silent first.",
        ),
        f"time() - max(run:pyrometer_train_last_step:timestamp_seconds{{{RUN_IS}}})",
        unit="s",
        decimals=0,
        steps=[(None, palette.QUIET), (60, palette.WATCH), (300, palette.WORST)],
    )


def _lost_batches() -> Panel:
    return panels.stat(
        "Batches lost",
        Reading(
            "Batches that were trained and whose points never reached Prometheus. Batches are numbered, so a gap is "
            "exact.",
            "0.",
            "Our own defect or overload, not the run's: see the stack's health.",
            "TrainBatchPointsLost",
        ),
        f"sum(run:pyrometer_train_batch_points:lost10m{{{RUN_IS}}})",
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.WATCH), (3, palette.BAD)],
    )


def _loss_budget() -> Panel:
    parts = "run:pyrometer_train_step_part_seconds:ratio"
    mfu = f"max by (run, job_id) ({_MEDIAN})"
    compute = f'sum by (run, job_id) ({parts}{{{RUN_IS}, part=~"forward|backward|optimizer"}})'
    return panels.stacked(
        "Loss budget: where the FLOPs went",
        Reading(
            "All of the GPUs' time as 100 %: what became model FLOPs (MFU), what the kernels lost against the GPUs' "
            "peak while they computed, and what each other part of the step took.",
            "MFU and slow kernels fill nearly all; waiting is a few per cent.",
            "The part that grew is the answer: wait is a straggler or the network, data is storage, gc is Python.",
            "TrainMfuDropped",
        ),
        [
            Query(mfu, "MFU"),
            Query(f"clamp_min({compute} - on (run, job_id) {mfu}, 0)", "kernels below peak"),
            Query(f'max by (part) ({parts}{{{RUN_IS}, part!~"forward|backward|optimizer"}})', "{{part}}"),
        ],
        unit="percentunit",
        limits=(0, 1),
        overrides=[
            panels.fixed("MFU", palette.HEALTHY),
            panels.fixed("kernels below peak", palette.REFERENCE),
            *(panels.fixed(part, palette.PARTS[part]) for part in ("data", "wait", "gc", "checkpoint", "eval")),
        ],
        span=12,
    )


def _parts() -> Panel:
    return panels.stacked(
        "Parts of the step, mean over ranks",
        Reading(
            "Seconds per second that a rank spends in each part that the job names. What is missing to 100 % is "
            "between named parts.",
            "constant shares.",
            "wait grows for all but one rank: that one is named in 'Ranks that the others wait for'.",
        ),
        Query(f"run:pyrometer_train_step_part_seconds:ratio{{{RUN_IS}}}", "{{part}}"),
        unit="percentunit",
        limits=(0, 1),
        overrides=[panels.fixed(part, colour) for part, colour in palette.PARTS.items()],
        span=12,
    )


def _slow_ranks() -> Panel:
    return panels.table(
        "Ranks that the others wait for",
        Reading(
            "The ten ranks that wait least compared with the median of their pipeline stage, and the share of the "
            "time that it costs.",
            "all below 5 %.",
            "Open the node of the first row; a whole node here is the host, one GPU is the GPU.",
        ),
        f"topk(10, rank:pyrometer_train_spare_gap:with_gpu{{{RUN_IS}}})",
        {"node": "node", "gpu": "gpu", "rank": "rank", "stage": "stage", "Value": "costs"},
        unit="percentunit",
        steps=panels.LOST_TIME,
        sort="costs",
        link=NODE_OF_ROW,
        fields={"costs": panels.coloured() | {"decimals": 1, "custom.width": 90}},
        no_value="no rank takes steps",
        span=9,
    )


_LONGEST = f"rank:pyrometer_train_current_part_seconds:longest{{{RUN_IS}}}"
# The start is unknown: as long as the rank that has waited longest.
_GONE = (
    "label_replace(0 * max by (cluster, node, run, job_id, rank) "
    f'(rank:pyrometer_train_rank_up:gone{{{RUN_IS}}}), "part", "gone", "", "") '
    f"+ on (cluster, run, job_id) group_left () max by (cluster, run, job_id) ({_LONGEST})"
)

# For an hour, or until the run is back.
_DIED = f'label_replace(time() - run:pyrometer_train_rank_end:first{{{RUN_IS}}}, "part", "died first", "", "")'


def _where_now() -> Panel:
    return panels.table(
        "Where the ranks are now",
        Reading(
            "The ten ranks that have been longest in the part that they are in at this moment.",
            "fractions of a step; a checkpoint is minutes.",
            "In a hang all wait but one: that one is first here with another part, or its process is gone. Of a run of "
            "which no rank lives (TrainRunDied), the one that died first.",
            "TrainStalled",
        ),
        f"{_DIED} or {_GONE} or {_LONGEST}",
        {"node": "node", "rank": "rank", "part": "part", "Value": "for"},
        unit="s",
        sort="for",
        link=NODE_OF_ROW,
        steps=[(None, palette.QUIET), (60, palette.WATCH), (300, palette.WORST)],
        fields={"for": panels.coloured() | {"custom.width": 90}},
        no_value="no rank is in a step",
        span=7,
    )


def _wait() -> Panel:
    return panels.lines(
        "Cost of the slowest rank",
        Reading(
            "Share of the time that all ranks wait for the slowest one.",
            "below 5 %.",
            "A step up that stays is a fault and no noise: see who it is at the left.",
        ),
        Query(f"run:pyrometer_train_straggler:ratio{{{RUN_IS}}}", "waiting for the slowest rank"),
        unit="percentunit",
        limits=(0, None),
        custom={"axisSoftMax": 0.2},
        overrides=[panels.fixed("waiting for the slowest rank", palette.BAD, lineWidth=2)],
    )


def _throttled() -> Panel:
    return panels.lines(
        "Throttled GPUs of the run",
        Reading(
            "Share of the time under a slowing clock event, from counters: nothing between two scrapes is missed. Only "
            "GPUs that throttle are drawn, the ten worst of the range; the normal power cap is left out.",
            "empty.",
            "Open the node of the line; the step's loss is about this share times one minus the clock's ratio.",
            "GpuThrottledThermal",
        ),
        Query(
            f'(gpu:pyrometer_gpu_clock_event_seconds:rate1m{{cluster="$cluster", reason!="power_cap"}} '
            f"{_ON_RUN_NODES}) "
            "and on (node, gpu, reason) topk(10, max_over_time("
            'gpu:pyrometer_gpu_clock_event_seconds:rate1m{cluster="$cluster", reason!="power_cap"}[$__range] @ '
            "end()))",
            "{{node}} GPU {{gpu}} {{reason}}",
        ),
        unit="percentunit",
        limits=(0, 1),
        watched=f"{proof.CLOCK_EVENTS} and on () run:pyrometer_train_ranks:count{{{RUN_IS}}}",
        colour={"mode": "shades", "fixedColor": palette.BAD},
        links=[NODE_OF_SERIES],
    )


def _links() -> Panel:
    return panels.table(
        "Links of the run that were lost",
        Reading(
            "Ports of the run's nodes that lost their link in the last 10 minutes, from counters.",
            "'none lost'.",
            "A flap costs the run its recovery time, seconds each; chronic ones want a new cable.",
            "NicLinkFlapping",
        ),
        f'(port:pyrometer_nic_link_down_events:increase10m{{cluster="$cluster"}} > 0) {_ON_RUN_NODES}',
        {"node": "node", "device": "device", "port": "port", "Value": "losses"},
        unit="locale",
        sort="losses",
        link=NODE_OF_ROW,
        steps=[(None, palette.WATCH), (3, palette.BAD), (10, palette.WORST)],
        fields={"losses": panels.coloured() | {"custom.width": 90}},
        healthy=Healthy("none lost", proof.PORTS_OF_RUN),
    )


def _against_hardware() -> Panel:
    return panels.lines(
        "MFU against what the hardware did",
        Reading(
            "MFU as the job reports it, beside the share of time in which the tensor cores were busy times the share "
            "of their full clock: two independent measures of the same.",
            "hardware a few points above MFU, both moving together.",
            "MFU above hardware: too many FLOPs are counted. Hardware far above MFU: work that doesn't count, such "
            "as recomputation.",
        ),
        [
            Query(f"max({_MEDIAN})", "MFU"),
            Query(f"run:pyrometer_train_tensor_clock:ratio{{{RUN_IS}}}", "tensor cores x clock"),
        ],
        unit="percentunit",
        limits=(0, 1),
        overrides=[
            panels.fixed("MFU", palette.BAND, lineWidth=2),
            panels.fixed("tensor cores x clock", palette.BESIDE, lineWidth=2),
        ],
    )


def _pauses() -> Panel:
    return panels.lines(
        "Garbage collection, mean over ranks",
        Reading(
            "Share of the time that Python's garbage collector holds the ranks.",
            "below 1 %.",
            "Collect on all ranks at the same step (gc.disable and a gc.collect every n steps).",
        ),
        Query(f'run:pyrometer_train_step_part_seconds:ratio{{{RUN_IS}, part="gc"}}', "garbage collection"),
        unit="percentunit",
        limits=(0, None),
        custom={"axisSoftMax": 0.05},
        overrides=[panels.fixed("garbage collection", palette.PARTS["gc"], lineWidth=2)],
    )


def _configuration() -> Panel:
    keep = ("job_id", "attempt", "model", "convention", "dtype", "gpu_model", "world_size", "global_batch_size")
    more = ("micro_batch_size", "sequence_length", "recompute")
    return panels.table(
        "Configuration of the run",
        Reading(
            "What must be equal for MFU numbers to be comparable, of the attempts in the range.",
            "one row, or the same row per attempt.",
            "A changed row explains a changed MFU: nothing is compared across it.",
        ),
        f"last_over_time(run:pyrometer_train_run_info:config{{{RUN_IS}}}[$__range])",
        {name: name.replace("_", " ") for name in (*keep, *more)} | {"job_id": "job"},
        span=16,
    )
