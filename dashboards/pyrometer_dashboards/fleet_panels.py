"""Panels of the whole fleet: a table of runs, and the bands of all working GPUs."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels, proof, run_panels
from pyrometer_dashboards.common import (
    CLUSTER,
    FABRIC,
    GPU_MATRIX,
    RELIABILITY,
    RUN_OF_ROW,
    RUN_OF_SERIES,
    THROTTLING,
    link,
    recently,
)
from pyrometer_dashboards.grafana_defaults import NO_DATA_MAPPING, absent_mapping
from pyrometer_dashboards.model import Panel, Query, Reading

_RUN = 'cluster="$cluster", run=~"$run"'


_STATES = (("runs", palette.QUIET), ("slow", palette.BAD), ("stopped", palette.WORST), ("died", palette.WORST))
# Alerts whose incident is a state of the run. Others name a run too, such as that of lost points.
STOPPED = "NcclHang|TrainStalled"
SLOW = "NcclBandwidthDropped|NcclStraggler|TrainMfuDropped|TrainMfuLow|TrainMfuUneven|TrainStalls|TrainStraggler"


def _incident(alerts: str) -> str:
    return f'pyrometer_incident_start_timestamp_seconds{{{_RUN}, run!="", alert=~"{alerts}"}}'


_STATE_OF_RUN = (
    f"3 * group by (run, job_id) (run:pyrometer_train_rank_end:first{{{_RUN}}}) "
    f"or 2 * group by (run, job_id) (run:pyrometer_train_current_part_seconds:stalled{{{_RUN}}}) "
    f"or 2 * group by (run, job_id) ({_incident(STOPPED)}) "
    f"or 1 * group by (run, job_id) ({recently('run:pyrometer_train_batch_mfu_ratio:recent_per_best3h', _RUN)} < 0.85) "
    # Who has been slow for hours is at its best: the rank that all wait for, or an incident of its pace, says more.
    f"or 1 * group by (run, job_id) (run:pyrometer_train_straggler:ratio{{{_RUN}}} > 0.1) "
    f"or 1 * group by (run, job_id) ({_incident(SLOW)}) "
    f"or 0 * group by (run, job_id) (run:pyrometer_train_ranks:count{{{_RUN}}})"
)


def _awaited(run: str) -> tuple[str, str]:
    """Return the rank of each run that fell silent or died first, and the one that costs the others most."""
    silent = f"run:pyrometer_train_rank_end:first{{{run}}} or run:pyrometer_train_last_step:culprit{{{run}}}"
    late = f"rank:pyrometer_train_spare_gap:with_gpu{{{run}}} > 0.02"
    return f"topk by (run, job_id) (1, {silent})", f"topk by (run, job_id) (1, {late})"


def _waits_for(run: str) -> str:
    """Return the part that each run waits for, or the one that died first, in the label ``who``."""
    first, slow = _awaited(run)
    return (
        f'max by (run, job_id, who) (label_join(0 * {first} + 1, "who", " rank ", "node", "rank") '
        f'or on (run, job_id) label_join({slow}, "who", " GPU ", "node", "gpu"))'
    )


def _cause(run: str) -> str:
    """Return the cause that the incident of the awaited part names and for how long, else that of the oldest incident.

    The cause of another part begins with its name: beside the part that the run waits for it would seem to be that
    part's.
    """
    first, slow = _awaited(run)
    incident = f'pyrometer_incident_start_timestamp_seconds{{{run}, run!=""%s}}'
    of_part = (
        f"{incident % ''} and on (run, job_id, node) {first} or {incident % ''} and on (run, job_id, node, gpu) {slow}"
    )
    named = incident % ', part!=""'
    of_others = f'label_join({named}, "cause", ": ", "part", "cause") or {incident % ""} unless {named}'
    oldest = "topk by (run, job_id) (1, time() - (%s))"
    return f"max by (run, job_id, cause) ({oldest % of_part} or on (run, job_id) {oldest % of_others})"


def verdict() -> Panel:
    """Return how many runs are in trouble, and the worst of them."""
    state = f"({_STATE_OF_RUN})"
    shown = ", ".join(f"{name}" for name, _ in _STATES[1:])
    worst = f'label_join(topk(1, {state} == %d), "who", " ", "run", "job_id")'
    named = " or on () ".join(
        f'label_replace({worst % at}, "who", "$1 {name}", "who", "(.+?) ?")'
        for at, (name, _) in reversed([*enumerate(_STATES)][1:])
    )
    return panels.stat(
        "Runs in trouble",
        Reading(
            f"How many of the runs are {shown}, and the worst of them; slow is below 85 % of its best of "
            "3 hours, one rank that costs a tenth of the time, or an open incident of its pace.",
            "0: every run is at its own pace.",
            "The table below has a row for each run: whom it waits for, since when, and why.",
            "TrainMfuDropped",
        ),
        f"count({state} > 0) * on () group_left (who, run, job_id) group by (who, run, job_id) ({named}) "
        f'or on () label_replace(0 * max({state}), "who", "all runs are at their pace", "", "")',
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.WORST)],
        name="{{who}}",
        link=RUN_OF_SERIES,
        span=6,
    )


def runs(*, span: int = 24) -> Panel:
    """Return a table with a row for each run."""

    def below(*steps: tuple[float | None, str], **more: object) -> dict[str, object]:
        coloured: dict[str, object] = {**panels.coloured(), **panels.thresholds(steps)}
        return coloured | more

    return panels.table(
        "Runs: who waits for whom, and why",
        Reading(
            "Each run: its state, MFU of the moment and its share of what it could be (the run's best of 3 hours, what "
            "is expected of its configuration, or without the rank that all wait for), the part that it waits for (of "
            "a stopped run the one that fell silent first) and the share of the time that this costs, the cause that "
            "the diagnosis named (of another part with its name) and since when, time since the last step, when its "
            "tokens will be trained (--collector.ledger.target) at the rate of the last day, and whose job it is.",
            "quiet cells; nobody to wait for.",
            "Open the run: its board says where the time goes and who is slow.",
            "TrainMfuDropped",
        ),
        [
            f"max by (run, job_id) ({_STATE_OF_RUN})",
            f"max by (run, job_id) ({recently('run:pyrometer_train_batch_mfu_ratio:recent', _RUN)})",
            f"min by (run, job_id) ({run_panels.pace(_RUN)})",
            _waits_for(_RUN),
            _cause(_RUN),
            f"max by (run, job_id) (time() - run:pyrometer_train_last_step:timestamp_seconds{{{_RUN}}})",
            f'max by (run, job_id) (pyrometer_run_estimated_end_timestamp_seconds{{{_RUN}, basis="elapsed"}} - time())',
            f"group by (run, job_id, user) (run:pyrometer_train_run_info:user{{{_RUN}}})",
        ],
        {
            "run": "run",
            "job_id": "job",
            "Value #A": "state",
            "Value #B": "MFU",
            "Value #C": "pace",
            "who": "waits for",
            "Value #D": "costs",
            "cause": "likely cause",
            "Value #E": "for",
            "Value #F": "last step",
            "Value #G": "ends in",
            "user": "owner",
        },
        unit="s",
        decimals=0,
        sort="pace",
        falling=False,
        link=RUN_OF_ROW,
        fields={
            "run": {"custom.width": 120},
            "job": {"custom.width": 76},
            "state": panels.coloured()
            | {
                "custom.width": 72,
                "mappings": [
                    NO_DATA_MAPPING,
                    *(panels.state(str(at), name, colour, at + 1) for at, (name, colour) in enumerate(_STATES)),
                ],
            },
            "MFU": {"unit": "percentunit", "decimals": 1, "custom.width": 66},
            "pace": below(*panels.KEPT, unit="percentunit", **{"custom.width": 88}),
            "waits for": {"custom.width": 160},
            "likely cause": {"custom.wrapText": True},
            "costs": below(
                *panels.LOST_TIME, unit="percentunit", **{"custom.width": 64, "mappings": _UNNAMED, "links": []}
            ),
            "for": {"custom.width": 80, "decimals": 1, "mappings": _UNNAMED, "links": []},
            "last step": below(
                (None, palette.QUIET), (60, palette.WATCH), (300, palette.WORST), **{"custom.width": 76}
            ),
            "ends in": {"custom.width": 76, "decimals": 1, "mappings": _UNNAMED, "links": []},
            "owner": {"custom.width": 70},
        },
        no_value="no data: this board needs a job that reports its steps, and the node exporter (docs/no-data.md)",
        span=span,
    )


# A run that waits for nobody, or has no incident, has no number here, which is not a lack of data.
_UNNAMED = [absent_mapping("-")]


def worst_throttled(title: str, first: str, goes_to: tuple[str, str], *, span: int) -> Panel:
    """Return the GPU that loses most time to reasons other than the power cap; a click leads to ``goes_to``."""
    return panels.stat(
        title,
        Reading(
            "The GPU that heat, the power brake or the hardware slows for the largest share of the last minute. The "
            "normal power cap is not throttling.",
            "nobody. One GPU of 4,088 is enough to slow a synchronous run.",
            first,
            "GpuThrottledThermal",
        ),
        panels.worst(
            f'gpu:pyrometer_gpu_quantity:now{{{CLUSTER}, what="throttled"}}', 0.01, "$1 GPU $2", "node", "gpu"
        ),
        unit="percentunit",
        decimals=0,
        steps=panels.LOST_TIME,
        name="{{who}}",
        link=goes_to,
        span=span,
    )


def _band(what: str, scale: str = "") -> list[Query]:
    series = f'cluster:pyrometer_gpu_quantity:quantile{{{CLUSTER}, what="{what}", quantile="%s"}}{scale}'
    return [Query(series % at, name) for at, name in (("0.05", "p5"), ("0.95", "p95"), ("0.5", "median"))]


def temperature() -> Panel:
    """Return the temperature band of the working GPUs."""
    return panels.lines(
        "GPU temperature, working GPUs",
        Reading(
            "Median of all GPUs that work, and the band from the 5th to the 95th percentile.",
            "40 to 75 °C, in a band of 15.",
            "A band that widens: a rack's cooling. Open the GPU matrix.",
            "GpuThrottledThermal",
        ),
        _band("temperature"),
        unit="celsius",
        limits=(20, 95),
        overrides=panels.band("p5", "median", "p95"),
        links=[("Open the GPU matrix", link(GPU_MATRIX))],
    )


def clock() -> Panel:
    """Return the clock band of the working GPUs."""
    return panels.lines(
        "SM clock, working GPUs",
        Reading(
            "Median clock of all GPUs that work, and the band from the 5th to the 95th percentile.",
            "a thin band at the clock that the power cap allows.",
            "The whole band down: power. Its lower edge down: throttled GPUs.",
            "GpuThrottledHardware",
        ),
        _band("clock"),
        unit="rotmhz",
        limits=(0, 2200),
        overrides=panels.band("p5", "median", "p95"),
        links=[("Open throttling", link(THROTTLING))],
    )


def throttling() -> Panel:
    """Return the number of GPUs whose time is lost to each reason."""
    return panels.lines(
        "GPUs slowed down, by reason",
        Reading(
            "GPU-equivalents lost to each reason: 8 GPUs at 50 % of the time are 4. Without the normal power cap.",
            "flat at 0.",
            "Open Throttling for the names.",
            "GpuThrottledThermal",
        ),
        Query(
            f'cluster:pyrometer_gpu_clock_event_seconds:gpus{{{CLUSTER}, reason!="power_cap"}}',
            "{{reason}}",
        ),
        unit="none",
        limits=(0, None),
        custom={"axisSoftMax": 1},
        watched=proof.CLOCK_EVENTS,
        overrides=panels.reasons(),
        links=[
            ("Open throttling", link(THROTTLING)),
            ("Open fabric", link(FABRIC)),
            ("Open reliability", link(RELIABILITY)),
        ],
    )
