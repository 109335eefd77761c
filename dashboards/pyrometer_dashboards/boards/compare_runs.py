"""Compare runs: two runs side by side, by step where their steps are numbered, else by time."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels
from pyrometer_dashboards.common import (
    CLUSTER,
    CLUSTERS,
    COMPARE,
    RESTARTS,
    RUN_CHOICE,
    RUN_IS,
    RUNS,
    TRAINING_RUN,
    jobs_of_run,
    leading_to,
    link,
)
from pyrometer_dashboards.grafana_defaults import NO_DATA_MAPPING
from pyrometer_dashboards.model import Board, Json, Override, Panel, Query, Reading, Row, Variable

_OTHER_IS = f'{CLUSTER}, run="$other", job_id=~"$other_jobs|"'
_OTHER = (Variable("other", "Against", RUNS.query), *jobs_of_run("other", "other_job", "other_jobs", "Its job"))
_TWO = ((RUN_IS, palette.BAND), (_OTHER_IS, palette.PARTS["wait"]))
_NAMES = ("the run", "the other")
# How each is called: two runs may have one name.
_CALLED = ("$run $job_id", "$other $other_job")
_OPEN = (
    ("Open the run", link(TRAINING_RUN, run="$run", job_id="$job_id")),
    ("Open the other", link(TRAINING_RUN, run="$other", job_id="$other_job")),
)


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=COMPARE,
        title="Pyrometer / Compare runs",
        question="Which of two runs is better, where does the other lose it, and are they the same work?",
        needs="jobs that report their steps",
        tags=["training"],
        time_from="now-6h",
        refresh="5m",
        variables=[CLUSTERS, *RUN_CHOICE, *_OTHER],
        annotations=[RESTARTS],
        rows=[
            Row(panels.tiles(_mfu(0), _mfu(1), _ratio(), _tokens()), height=3),
            Row([_parts(), _loss_by_step()], height=12),
            Row(panels.tiles(_configuration()), height=9),
            Row(panels.tiles(_mfu_by_time(), _tokens_by_time(), _step_time())),
        ],
    )


def _both(series: str, around: str = "%s") -> str:
    """Return the series of both runs, each in ``around``, with what each is called in the label ``which``."""
    return " or ".join(
        f'label_replace({around % f"{series}{{{run_is}}}"}, "which", "{called}", "", "")'
        for (run_is, _), called in zip(_TWO, _CALLED, strict=True)
    )


def _median(run_is: str) -> str:
    return f"quantile_over_time(0.5, run:pyrometer_train_batch_mfu_ratio:recent{{{run_is}}}[$__range])"


def _mfu(which: int) -> Panel:
    run_is = _TWO[which][0]
    return panels.stat(
        f"MFU of {_NAMES[which]}",
        Reading(
            "Median MFU of the run in the time range.",
            "that of its configuration.",
            "Open the run: its board says where the time goes.",
            "TrainMfuLow",
        ),
        f"max({_median(run_is)})",
        unit="percentunit",
        decimals=1,
        name=_CALLED[which],
        link=_OPEN[which],
        no_value="no MFU in the range",
    )


def _ratio() -> Panel:
    return panels.stat(
        "MFU, to other",
        Reading(
            "Median MFU of the run as a share of the other's, in the time range.",
            "100 % where both do the same work.",
            "Compare the configurations first: only equal ones should have equal MFU.",
            "TrainMfuLow",
        ),
        f"max({_median(RUN_IS)}) / max({_median(_OTHER_IS)})",
        unit="percentunit",
        decimals=0,
        steps=panels.KEPT,
        no_value="no MFU in the range",
    )


def _tokens() -> Panel:
    tokens = "avg_over_time(run:pyrometer_train_tokens:rate1m{%s}[$__range])"
    return panels.stat(
        "Tokens/s, to other",
        Reading(
            "Tokens per second of the run as a share of the other's, mean of the time range, whatever their size.",
            "the ratio of their GPUs.",
            "Fewer on as many GPUs: the parts of the step say which one is longer.",
            "TrainMfuDropped",
        ),
        f"max({tokens % RUN_IS}) / max({tokens % _OTHER_IS})",
        unit="percentunit",
        decimals=0,
        no_value="no tokens known",
    )


def _parts() -> Panel:
    mean = _both("run:pyrometer_train_step_part_seconds:ratio", "max by (part) (avg_over_time(%s[$__range]))")
    return Panel(
        "Parts of the step, side by side",
        "table",
        Reading(
            "Share of the time in each part of the step, mean over ranks and over the time range, of both runs.",
            "alike, if they do the same work.",
            "wait: a slow rank. data: the loader. checkpoint: the file system. gc: Python.",
            "TrainStraggler",
        ),
        [Query(f"max by (part, which) ({mean})", instant=True, table=True)],
        unit="percentunit",
        decimals=1,
        steps=[(None, palette.QUIET)],
        mappings=[NO_DATA_MAPPING],
        custom={"align": "right", "minWidth": 50},
        transformations=panels.matrix("part", "which", renamed={"part\\which": "part"}),
        links=[],
        span=10,
    )


def _by_step(run_is: str, name: str, metric: str) -> list[Query]:
    """Return the step reached in each interval, and the mean of a batch's number there."""
    return [
        Query(f"max(max_over_time(pyrometer_train_batch_step{{{run_is}}}[$__interval]))", f"step of {name}"),
        Query(f"avg(avg_over_time({metric}{{{run_is}}}[$__interval]))", f"loss of {name}"),
    ]


def _loss_by_step() -> Panel:
    queries = [
        each
        for (run_is, _), name in zip(_TWO, _NAMES, strict=True)
        for each in _by_step(run_is, name, "pyrometer_train_batch_loss")
    ]
    everything: Json = {"type": "range", "options": {"from": None, "to": None, "result": {"index": 1}}}
    return Panel(
        "Loss by step",
        "xychart",
        Reading(
            "Loss of both runs over the number of the step: a point for each interval of the time range, at the last "
            "step in it and with the mean of its losses. Steps of another batch size are not the same tokens.",
            "one curve.",
            "They part at a step: look there for a bad batch, a restart, a changed learning rate.",
            "TrainLossNotFinite",
        ),
        queries,
        options={
            "series": [_series(name) for name in _NAMES],
            "legend": {"showLegend": True},
        },
        custom={"axisPlacement": "auto", "axisGridShow": True, "pointShape": "circle", "pointSize": {"fixed": 4}},
        transformations=[{"id": "joinByField", "options": {"byField": "Time", "mode": "outer"}}],
        mappings=[NO_DATA_MAPPING, everything],
        overrides=[
            each
            for name, (_, colour) in zip(_NAMES, _TWO, strict=True)
            for each in (
                panels.fixed(f"loss of {name}", colour, axisLabel="loss"),
                Override(f"step of {name}", {"unit": "locale", "custom.axisLabel": "step"}),
            )
        ],
        span=14,
    )


def _series(name: str) -> Json:
    def named(field: str) -> Json:
        return {"matcher": {"id": "byName", "options": field}}

    return {
        "name": {"fixed": name},
        "frame": {"matcher": {"id": "byIndex", "options": 0}},
        "x": named(f"step of {name}"),
        "y": named(f"loss of {name}"),
    }


def _configuration() -> Panel:
    labels = "model, gpu_model, dtype, world_size, global_batch_size, micro_batch_size, sequence_length, recompute"
    seen = _both("run:pyrometer_train_run_info:config", f"group by ({labels}) (last_over_time(%s[$__range]))")
    return panels.table(
        "Are they the same work?",
        Reading(
            "Configuration of both runs in the time range: only equal rows have comparable MFU. Two rows of one run "
            "are two attempts that differ.",
            "equal but for what was tried.",
            "What differs is the first suspect.",
            "TrainMfuLow",
        ),
        seen,
        {
            "which": "run",
            "model": "model",
            "gpu_model": "GPU",
            "dtype": "dtype",
            "world_size": "GPUs",
            "global_batch_size": "batch",
            "micro_batch_size": "micro batch",
            "sequence_length": "sequence",
            "recompute": "recompute",
        },
        fields={
            "run": leading_to(*_OPEN, **{"custom.width": 120}),
            "model": {"custom.width": 120},
            "GPU": {"custom.width": 185},
            "dtype": {"custom.width": 70},
            "GPUs": {"custom.width": 65},
            "batch": {"custom.width": 70},
        },
    )


def _by_time(title: str, reading: Reading, series: str, unit: str) -> Panel:
    """Return both runs over time."""
    return panels.lines(
        title,
        reading,
        Query(_both(series, "max(%s)"), "{{which}}"),
        unit=unit,
        limits=(0, None),
        overrides=panels.named(),
        links=_OPEN,
    )


def _mfu_by_time() -> Panel:
    reading = Reading(
        "MFU of both runs by time, not by step: runs of different days have no common time.",
        "constant lines.",
        "Both fall at once: the cluster. One: that run.",
        "TrainMfuDropped",
    )
    return _by_time("MFU by time", reading, "run:pyrometer_train_batch_mfu_ratio:recent", "percentunit")


def _tokens_by_time() -> Panel:
    reading = Reading(
        "Tokens per second of both runs by time.",
        "constant lines.",
        "Holes are restarts and checkpoints; Training run has them by batch.",
        "TrainStalls",
    )
    return _by_time("Tokens per second by time", reading, "run:pyrometer_train_tokens:rate1m", "locale")


def _step_time() -> Panel:
    reading = Reading(
        "Median time of a step of each minute, of both runs by time.",
        "constant lines.",
        "It grows slowly: memory, data, or a part that fails. It jumps: a slow rank.",
        "TrainStraggler",
    )
    return _by_time("Step time by time", reading, "run:pyrometer_train_batch_step_seconds:window1m", "s")
