"""Throttling: which GPU loses time to which reason, since when, and how much."""

from __future__ import annotations

from pyrometer_dashboards import fleet_panels, palette, panels, power_panels, proof
from pyrometer_dashboards.common import (
    CLUSTER,
    CLUSTERS,
    FIRING,
    GPU_MATRIX,
    GPU_OF_ROW,
    MARKS,
    NODE_OF_SERIES,
    THROTTLING,
    link,
)
from pyrometer_dashboards.model import Board, Panel, Query, Reading, Row, Variable
from pyrometer_dashboards.proof import Healthy

_SLOWED = f'gpu:pyrometer_gpu_clock_event_seconds:rate1m{{{CLUSTER}, reason!="power_cap"}}'
# The worst 40 nodes of the range: the counters of all nodes are too many to look back on for hours.
_SLOWED_NODES = Variable(
    "slowed",
    query=f"query_result(topk(40, sum by (node) (sum_over_time({_SLOWED}[$__range]))))",
    regex='/node="([^"]+)"/',
    every=True,
    hidden=True,
)
_LOST = f'pyrometer_gpu_clock_event_seconds_total{{{CLUSTER}, node=~"$slowed", reason!~"power_cap|gpu_idle"}}'
_GPU = "{{node}} GPU {{gpu}} {{reason}}"


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=THROTTLING,
        title="Pyrometer / Throttling",
        question="Which GPUs lose time, to which reason, since when, and how much?",
        needs="the node exporter on each GPU node",
        tags=["hardware"],
        time_from="now-3h",
        variables=[CLUSTERS, _SLOWED_NODES],
        annotations=[*MARKS, FIRING],
        rows=[
            Row([_count(), _lost(), _worst(), _capped()], height=4),
            Row([_table(), _lines()], height=11),
            Row(panels.tiles(_reasons(), _clock()), height=9),
            Row([_racks(), _slowest()], height=10),
            Row(panels.tiles(power_panels.cluster_power(), _power_cap()), height=7),
        ],
    )


def _count() -> Panel:
    return panels.stat(
        "GPUs throttled now",
        Reading(
            "GPUs that heat, the power brake or the hardware slows for more than 5 % of the last minute.",
            "0.",
            "The table below names them, the longest first.",
            "GpuThrottledThermal",
        ),
        f"cluster:pyrometer_gpu_throttled:count{{{CLUSTER}}}",
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.BAD), (8, palette.WORST)],
        span=6,
    )


def _lost() -> Panel:
    return panels.stat(
        "Lost now",
        Reading(
            "All shares of time under a slowing reason added up, without the normal power cap: 8 GPUs at half are 4.",
            "0.",
            "The synchronous run loses more than this: all of its GPUs wait for the slowest.",
        ),
        f'sum(cluster:pyrometer_gpu_clock_event_seconds:gpus{{{CLUSTER}, reason!="power_cap"}}) '
        f"or on () 0 * sum({proof.CLOCK_EVENTS})",
        unit="suffix: GPUs",
        decimals=1,
        steps=[(None, palette.QUIET), (0.2, palette.WATCH), (1, palette.BAD), (8, palette.WORST)],
        span=6,
    )


def _worst() -> Panel:
    return fleet_panels.worst_throttled(
        "Worst GPU now", "Open its node: is it alone, or is the whole node hot?", NODE_OF_SERIES, span=6
    )


def _capped() -> Panel:
    return panels.stat(
        "At the power cap",
        Reading(
            "Share of the GPUs' time at the power limit, mean over all. Normal at full load, and no throttling.",
            "the same from day to day for the same run.",
            "Zero while a run is on: the GPUs are not fed. All at once higher: a limit was lowered.",
        ),
        f'cluster:pyrometer_gpu_clock_event_seconds:gpus{{{CLUSTER}, reason="power_cap"}} '
        f"/ on (cluster) cluster:pyrometer_gpu_up:count{{{CLUSTER}}}",
        unit="percentunit",
        decimals=0,
        span=6,
    )


def _table() -> Panel:
    return panels.table(
        "GPUs that lost time in the range",
        Reading(
            "The 20 GPUs that lost most time to one reason in the time range, from the counters themselves, and their "
            "share of the last minute. The normal power cap is left out.",
            "'none'.",
            "Drain the first row's node if it stays; one reason on a whole rack is power or air.",
            "GpuThrottledThermal",
        ),
        [
            f"topk(20, max by (node, gpu, reason) (increase({_LOST}[$__range])) > 0)",
            f"max by (node, gpu, reason) ({_SLOWED})",
        ],
        {"node": "node", "gpu": "gpu", "reason": "reason", "Value #A": "lost", "Value #B": "now"},
        unit="s",
        steps=panels.LOST_TIME,
        sort="lost",
        link=GPU_OF_ROW,
        fields={
            "reason": {"custom.width": 120},
            "now": panels.coloured() | {"unit": "percentunit", "decimals": 0, "custom.width": 80},
        },
        healthy=Healthy("none", proof.past(proof.CLOCK_EVENTS)),
        span=10,
    )


def _lines() -> Panel:
    return panels.lines(
        "The ten worst, over time",
        Reading(
            "Share of the time under the reason, from counters, of the ten GPUs that were worst at some time of the "
            "range.",
            "empty.",
            "A step is a fault (a fan, a supply); a slope with the day is the room.",
            "GpuThrottledThermal",
        ),
        Query(f"{_SLOWED} and on (node, gpu, reason) topk(10, max_over_time({_SLOWED}[$__range] @ end()))", _GPU),
        unit="percentunit",
        limits=(0, 1),
        watched=proof.CLOCK_EVENTS,
        overrides=panels.reasons(),
        links=[NODE_OF_SERIES],
        custom={"lineWidth": 2},
        span=14,
    )


def _reasons() -> Panel:
    return panels.stacked(
        "GPU time lost, by reason",
        Reading(
            "All GPUs together, by reason, without the normal power cap.",
            "empty.",
            "hw_thermal and sw_thermal are heat, hw_power_brake the rack's supply, sync_boost a GPU that follows a "
            "slow one.",
            "GpuThrottledPowerBrake",
        ),
        Query(f'cluster:pyrometer_gpu_clock_event_seconds:gpus{{{CLUSTER}, reason!="power_cap"}}', "{{reason}}"),
        unit="none",
        limits=(0, None),
        watched=proof.CLOCK_EVENTS,
        overrides=panels.reasons(),
    )


def _power_cap() -> Panel:
    return panels.lines(
        "Share of the time at the power cap",
        Reading(
            "Mean over all GPUs; normal at full load.",
            "follows the load.",
            "A step without a change of the run: somebody changed a limit.",
        ),
        Query(
            f'cluster:pyrometer_gpu_clock_event_seconds:gpus{{{CLUSTER}, reason="power_cap"}} '
            f"/ on (cluster) cluster:pyrometer_gpu_up:count{{{CLUSTER}}}",
            "at the power cap",
        ),
        unit="percentunit",
        limits=(0, 1),
        overrides=[panels.fixed("at the power cap", palette.BAND, lineWidth=2)],
    )


def _clock() -> Panel:
    series = f'cluster:pyrometer_gpu_quantity:quantile{{{CLUSTER}, what="clock", quantile="%s"}}'
    return panels.lines(
        "SM clock of all working GPUs",
        Reading(
            "Median, and the band from the 5th to the 95th percentile.",
            "a thin band.",
            "The lower edge falls: one GPU in twenty is slow. The median falls: power or air of the room.",
        ),
        [Query(series % "0.05", "p5"), Query(series % "0.95", "p95"), Query(series % "0.5", "median")],
        unit="rotmhz",
        limits=(0, 2200),
        overrides=panels.band("p5", "median", "p95"),
        links=[("Open the GPU matrix", link(GPU_MATRIX))],
    )


def _racks() -> Panel:
    return panels.heatmap(
        "Hottest GPU of each rack",
        Reading(
            "A row per rack, a colour per minute: the hottest working GPU in it. An empty cell has no data.",
            "one calm colour.",
            "A bright row is a rack's cooling, a bright column the room's.",
            "GpuThrottledThermal",
        ),
        Query(f"rack:pyrometer_gpu_temperature:max{{{CLUSTER}}}", "{{rack}}"),
        unit="celsius",
        limits=(40, 95),
        span=14,
    )


def _slowest() -> Panel:
    return panels.table(
        "Lowest clocks against the rail",
        Reading(
            "The twelve GPUs whose SM clock is furthest below the median of their rail, whatever the reason: also "
            "those that no reason is reported for.",
            "'none' (by half a step), or all below 1 step (100 MHz).",
            "A low clock without a reason: an application clock or a locked clock was set, or the board is worn.",
            "GpuThrottledHardware",
        ),
        f'gpu:pyrometer_gpu_deviation:worst{{{CLUSTER}, what="clock"}}',
        {"node": "node", "gpu": "gpu", "Value": "steps of 100 MHz"},
        decimals=1,
        steps=panels.DEVIATION,
        sort="steps of 100 MHz",
        link=GPU_OF_ROW,
        fields={"steps of 100 MHz": panels.coloured()},
        healthy=Healthy("none", proof.compared('what="clock"')),
        span=10,
    )
