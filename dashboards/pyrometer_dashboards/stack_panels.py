"""Panels of what Pyrometer costs: rules, storage, and the exporters' memory and CPU."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels
from pyrometer_dashboards.common import CLUSTER
from pyrometer_dashboards.model import Panel, Query, Reading


def slow_rules() -> Panel:
    """Return the group of rules that takes the largest share of its interval."""
    return panels.stat(
        "Slowest group of rules",
        Reading(
            "The group of rules that takes the largest share of its interval.",
            "below 50 %.",
            "At 100 % evaluations are skipped and alerts come late: give Prometheus more CPU.",
        ),
        "topk(1, label_replace(max by (rule_group) (prometheus_rule_group_last_duration_seconds / "
        'prometheus_rule_group_interval_seconds), "group", "$1", "rule_group", ".*;(.*)"))',
        unit="percentunit",
        decimals=0,
        steps=[(None, palette.QUIET), (0.5, palette.WATCH), (0.9, palette.WORST)],
        name="{{group}}",
    )


def rules() -> Panel:
    """Return how long the slowest groups of rules take."""
    group = "max by (rule_group) (prometheus_rule_group_last_duration_seconds)"
    return panels.lines(
        "Slowest groups of rules",
        Reading(
            "Seconds that Prometheus needs for a group of rules: the six that were slowest at some time of the range.",
            "below 1 s, and far below the group's interval.",
            "A group that grows with the cluster: more CPU, or a longer interval.",
        ),
        Query(
            f"label_replace({group} and topk(6, max_over_time({group}[$__range:1m] @ end())), "
            '"group", "$1", "rule_group", ".*;(.*)")',
            "{{group}}",
        ),
        unit="s",
        limits=(0, None),
        colour=panels.BY_WORST,
        steps=[(None, palette.HEALTHY), (1, palette.WATCH), (5, palette.BAD), (15, palette.WORST)],
        options={
            "legend": {
                "displayMode": "table",
                "placement": "right",
                "calcs": ["max"],
                "sortBy": "Max",
                "sortDesc": True,
            }
        },
        span=14,
    )


def memory() -> Panel:
    """Return the memory of the node exporters."""
    reading = Reading(
        "Resident memory of the node exporters: the largest, and the median.",
        "below 40 MB, constant.",
        "A slope is a leak: a bug of ours.",
    )
    return _of_exporters("Memory of the node exporters", reading, "process_resident_memory_bytes", "bytes")


def cpu() -> Panel:
    """Return the CPU time of the node exporters."""
    reading = Reading(
        "Share of one core that the node exporters use: the largest, and the median.",
        "below 1 %.",
        "Above: a device that answers slowly keeps it busy.",
    )
    return _of_exporters("CPU of the node exporters", reading, "process_cpu_seconds", "percentunit")


def _of_exporters(title: str, reading: Reading, quantity: str, unit: str) -> Panel:
    """Return the largest and the median of what the node exporters use."""
    quantile = f'cluster:{quantity}:quantile{{{CLUSTER}, quantile="%s"}}'
    return panels.lines(
        title,
        reading,
        [Query(quantile % "1", "largest"), Query(quantile % "0.5", "median")],
        unit=unit,
        limits=(0, None),
        overrides=[panels.fixed("largest", palette.BAD), panels.fixed("median", palette.BAND, lineWidth=2)],
        span=6,
    )


def ingestion() -> Panel:
    """Return the samples that Prometheus stores per second."""
    return panels.lines(
        "Samples stored per second",
        Reading(
            "Samples that Prometheus stores per second.",
            "constant.",
            "A fall without a silent node: a scrape hits its sample limit.",
        ),
        Query("sum(rate(prometheus_tsdb_head_samples_appended_total[$__rate_interval]))", "samples"),
        unit="locale",
        limits=(0, None),
        overrides=[panels.fixed("samples", palette.BAND, lineWidth=2)],
    )


def missed() -> Panel:
    """Return the evaluations of rules that Prometheus left out."""
    return panels.bars(
        "Missed evaluations of rules",
        Reading(
            "Evaluations that Prometheus left out, because the one before took longer than the interval, by group.",
            "empty.",
            "Alerts of the group come late by as many intervals: give Prometheus more CPU, or the group more time.",
            "PrometheusRulesMissed",
        ),
        Query(
            'label_replace(increase(prometheus_rule_group_iterations_missed_total[$__rate_interval]), "group", '
            '"$1", "rule_group", ".*;(.*)")',
            "{{group}}",
            step="1m",
        ),
        unit="locale",
        decimals=0,
    )
