"""Job: the nodes and GPUs of one Slurm job or Kubernetes pod, which of them do nothing, and what goes wrong there."""

from __future__ import annotations

from pyrometer_dashboards import alert_panels, log_panels, palette, panels
from pyrometer_dashboards.common import (
    CLUSTER,
    CLUSTERS,
    GPU_BOARD_OF_ROW,
    JOB,
    NODE_OF_ROW,
    RESTARTS,
    RUN_OF_ROW,
    RUN_OF_SERIES,
    recently,
)
from pyrometer_dashboards.model import Board, Panel, Query, Reading, Row, Variable
from pyrometer_dashboards.proof import Healthy

_JOB_IS = f'{CLUSTER}, job_id="$job"'
_MEMBER = f"gpu:pyrometer_gpu_job:member{{{_JOB_IS}}}"
_UNUSED = f"gpu:pyrometer_gpu_job:unused{{{_JOB_IS}}}"
_RUN = f"run:pyrometer_train_run:job{{{_JOB_IS}}}"
_MFU = "run:pyrometer_train_batch_mfu_ratio:recent"
_MFU = "run:pyrometer_train_batch_mfu_ratio:recent"
# Series of exporters until 0.2.0 have no job: those of the job's run.
_JOBLESS = f'{CLUSTER}, job_id=""'
_RECENT = (
    f"{recently(_MFU, _JOB_IS)} or "
    f'label_replace({recently(_MFU, _JOBLESS)}, "job_id", "$job", "", "") and on (run, job_id) {_RUN}'
)
_OF_JOB = f"on (node, gpu) {_MEMBER}"
_JOBS = Variable("job", "Job", 'label_values(job:pyrometer_gpu_job:gpus{cluster="$cluster"}, job_id)', numeric=True)


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=JOB,
        title="Pyrometer / Job",
        question="Which nodes and GPUs has this job, which of them do nothing, and what goes wrong there?",
        needs="the node exporter, and Slurm or Kubernetes jobs that it sees",
        tags=["training"],
        time_from="now-3h",
        variables=[CLUSTERS, _JOBS, log_panels.NODES_OF_JOB],
        annotations=[RESTARTS],
        rows=[
            Row(panels.tiles(_gpus(), _unused(), _tensor(), _mfu()), height=3),
            Row([_alerts(), _runs()], height=11),
            Row([_worst()], height=11),
            Row(panels.tiles(_idle(), _activity(), _power(), _mfu_over_time()), height=7),
            Row(panels.tiles(_nodes()), height=9),
            log_panels.of_job(),
        ],
    )


def _gpus() -> Panel:
    return panels.stat(
        "GPUs",
        Reading(
            "GPUs on which a process of the job runs: a Slurm job's number, or a Kubernetes pod's uid.",
            "as many as it asked for.",
            "Fewer: a rank is gone, or its processes are in no cgroup of the job.",
            "TrainRunDied",
        ),
        f"sum(job:pyrometer_gpu_job:gpus{{{_JOB_IS}}})",
        unit="locale",
    )


def _unused() -> Panel:
    return panels.stat(
        "Unused GPUs",
        Reading(
            "GPUs that the job has and that did not work for ten minutes: no scrape saw 5 % of utilization.",
            "0.",
            "All of them: it starts, loads or hangs. Some: it was given more than it uses; the table names them.",
            "NcclJobNotStarted",
        ),
        f"count({_UNUSED}) or on () 0 * max(job:pyrometer_gpu_job:gpus{{{_JOB_IS}}})",
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.BAD)],
    )


def _tensor() -> Panel:
    return panels.stat(
        "Tensor cores",
        Reading(
            "Share of the time in which the tensor cores worked, mean over the job's GPUs.",
            "a third to a half for training.",
            "Near 0: the job computes something else, or waits.",
        ),
        f'max(job:pyrometer_gpu_quantity:avg{{{_JOB_IS}, what="tensor"}})',
        unit="percentunit",
        decimals=0,
    )


def _mfu() -> Panel:
    return panels.stat(
        "MFU of its run",
        Reading(
            "MFU of the training run that this job is, where its trainer uses our client or its log is followed.",
            "at its best of the last hours.",
            "Open the run: its board says where the time goes.",
            "TrainMfuDropped",
        ),
        f"max by (run, job_id) ({_RECENT})",
        unit="percentunit",
        decimals=1,
        name="{{run}}",
        link=RUN_OF_SERIES,
        no_value="no run known",
    )


def _alerts() -> Panel:
    return alert_panels.firing(
        "Alerts on its nodes and of its run",
        ".+",
        {"node": "node", "gpu": "gpu", "run": "run"},
        runbook="TrainStalled",
        only=f"and on (node) {_MEMBER} or ALERTS_FOR_STATE{{{CLUSTER}}} and on (run, job_id) {_RUN} "
        f'and ignoring (alertstate) ALERTS{{alertstate="firing", {CLUSTER}}}',
        span=16,
    )


def _idle() -> Panel:
    return panels.table(
        "GPUs that do nothing",
        Reading(
            "GPUs that the job has and that did not work for ten minutes.",
            "'all work'.",
            "Ask its owner, or look at the ranks of the node: is one missing there?",
            "NcclJobNotStarted",
        ),
        f"{_UNUSED}",
        {"node": "node", "gpu": "gpu", "Value": "unused"},
        sort="node",
        falling=False,
        link=GPU_BOARD_OF_ROW,
        fields={"unused": {"mappings": [panels.state("1", "yes", palette.BAD, 2)]} | panels.coloured()},
        healthy=Healthy("all work", f"job:pyrometer_gpu_job:gpus{{{_JOB_IS}}}"),
    )


def _worst() -> Panel:
    return panels.table(
        "Its GPUs furthest from their rail",
        Reading(
            "The GPUs of the job that are furthest from the median of the same GPU number on all working nodes, by "
            "quantity, in steps towards harm.",
            "'none' (by half a step), or all below 1 step.",
            "Open the GPU: the slowest one sets the pace of a synchronous job.",
            "GpuClockOutlier",
        ),
        f"topk(12, (gpu:pyrometer_gpu_deviation:steps{{{CLUSTER}}} >= 0.5) and {_OF_JOB})",
        {"node": "node", "gpu": "gpu", "what": "quantity", "Value": "steps"},
        decimals=1,
        steps=panels.DEVIATION,
        sort="steps",
        link=GPU_BOARD_OF_ROW,
        fields={"steps": panels.coloured()},
        healthy=Healthy("none", f"gpu:pyrometer_gpu_quantity:now{{{CLUSTER}}} and {_OF_JOB}"),
        span=24,
    )


def _runs() -> Panel:
    return panels.table(
        "The run that it is, and whose job",
        Reading(
            "The training run of the job, as its trainer names it, the user of its processes, and its GPUs.",
            "one run.",
            "Open the run for steps, losses and ranks.",
            "TrainRunMissing",
        ),
        [
            f"count by (job_id, user) ({_MEMBER})",
            f"group by (job_id, run) ({_RUN})",
        ],
        {"job_id": "job", "user": "user", "run": "run", "Value #A": "GPUs", "Value #B": "runs"},
        unit="locale",
        link=RUN_OF_ROW,
        fields={"GPUs": {"custom.width": 75}, "runs": {"custom.width": 60}},
    )


def _activity() -> Panel:
    return panels.lines(
        "Tensor cores, mean",
        Reading(
            "Share of the time in which the tensor cores worked, mean over the job's GPUs.",
            "a constant line.",
            "Holes: checkpoints, restarts. A slope: data, memory, or a part that fails.",
        ),
        Query(f'job:pyrometer_gpu_quantity:avg{{{_JOB_IS}, what="tensor"}}', "tensor cores"),
        unit="percentunit",
        limits=(0, 1),
        overrides=[panels.fixed("tensor cores", palette.BAND, lineWidth=2)],
    )


def _power() -> Panel:
    mean = f'job:pyrometer_gpu_quantity:avg{{{_JOB_IS}, what="power"}}'
    return panels.lines(
        "Power, all GPUs",
        Reading(
            "Power that the job's GPUs draw together: the mean times their number.",
            "a constant line.",
            "It falls before the tensor cores do: they wait in a collective at low power.",
        ),
        Query(f"{mean} * on (job_id) group_left () job:pyrometer_gpu_job:gpus{{{_JOB_IS}}}", "power"),
        unit="watt",
        limits=(0, None),
        overrides=[panels.fixed("power", palette.BAND, lineWidth=2)],
    )


def _mfu_over_time() -> Panel:
    return panels.lines(
        "MFU over time",
        Reading(
            "MFU of the training run that this job is.",
            "a constant line, with a dent at each checkpoint.",
            "A step down: Training run says whom it waits for.",
            "TrainMfuDropped",
        ),
        Query(
            f"max by (run, job_id) ({_RECENT})",
            "{{run}}",
        ),
        unit="percentunit",
        limits=(0, None),
        overrides=panels.named(),
        links=[RUN_OF_SERIES],
        no_value="no run known",
    )


def _nodes() -> Panel:
    state = f"node:pyrometer_node:state{{{CLUSTER}}}"
    now = f'gpu:pyrometer_gpu_quantity:now{{{CLUSTER}, what="%s"}}'
    words = ("fit", "test overdue", "test failed", "check failed", "out on purpose", "silent")
    return panels.table(
        "Its nodes",
        Reading(
            "Every node of the job: its GPUs, whether it is fit, its hottest GPU, its lowest clock, and the share of "
            "the time in which its worst GPU was throttled.",
            "alike.",
            "Open the node that differs. Unfit ones: Nodes and spares says why.",
            "NodeCheckFailed",
        ),
        [
            f"count by (node) ({_MEMBER})",
            f"max by (node) ({state} and on (node) {_MEMBER})",
            f"max by (node) ({now % 'temperature'} and {_OF_JOB})",
            f"min by (node) ({now % 'clock'} and {_OF_JOB})",
            f"max by (node) ({now % 'throttled'} and {_OF_JOB})",
        ],
        {
            "node": "node",
            "Value #A": "GPUs",
            "Value #B": "state",
            "Value #C": "hottest",
            "Value #D": "lowest clock",
            "Value #E": "throttled",
        },
        decimals=0,
        sort="throttled",
        link=NODE_OF_ROW,
        fields={
            "state": panels.coloured()
            | {"mappings": [panels.state(str(at), word, palette.QUIET, at + 1) for at, word in enumerate(words)]},
            "hottest": {"unit": "celsius"},
            "lowest clock": {"unit": "rotmhz"},
            "throttled": panels.coloured(panels.LOST_TIME) | {"unit": "percentunit"},
        },
    )
