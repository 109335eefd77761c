"""Training run: every batch's MFU, and under it what can have slowed it down."""

from __future__ import annotations

from grafanalib import core

from pyrometer_dashboards import panels

_RUN = 'cluster=~"$cluster", run="$run"'
# The nodes of the run: hardware series have no run label, they are joined by node.
_ON_RUN_NODES = f"and on (cluster, node) pyrometer_train_rank_info{{{_RUN}}}"


def board() -> core.Dashboard:
    """The board as grafanalib knows it."""
    return panels.dashboard(
        title="Pyrometer / Training run",
        uid="pyrometer-training-run",
        description="Every batch of a run, and the throttling, flaps and waiting that can explain a slow one.",
        variables=[
            panels.variable("cluster", "Cluster", "label_values(pyrometer_train_run_info, cluster)", several=True),
            panels.variable("run", "Run", 'label_values(pyrometer_train_run_info{cluster=~"$cluster"}, run)'),
        ],
        rows=[[_mfu()], [_step_seconds(), _parts()], [_throttling(), _link_downs()]],
    )


def _mfu() -> core.TimeSeries:
    return panels.time_series(
        "MFU of every batch",
        "Model FLOPs utilisation, one dot per batch with the batch's own time. Beside it the best of the last 3 hours "
        "with the same configuration, which TrainMfuDropped compares with.",
        [
            panels.every_batch(f"pyrometer_train_batch_mfu_ratio{{{_RUN}}}", "attempt {{attempt}}"),
            panels.query(f"run:pyrometer_train_batch_mfu_ratio:best3h{{{_RUN}}}", "best of 3 h"),
        ],
        unit="percentunit",
        points=True,
    )


def _step_seconds() -> core.TimeSeries:
    return panels.time_series(
        "Step time of every batch",
        "One dot per batch.",
        [panels.every_batch(f"pyrometer_train_batch_step_seconds{{{_RUN}}}", "attempt {{attempt}}")],
        unit="s",
        points=True,
    )


def _parts() -> core.TimeSeries:
    rate = f"rate(pyrometer_train_step_part_seconds_total{{{_RUN}}}[$__rate_interval])"
    return panels.time_series(
        "Where the step goes, mean over ranks",
        "Seconds per second in each part. A rank that waits little while all others wait much is the slow one.",
        [panels.query(f"avg by (part) ({rate})", "{{part}}")],
        unit="percentunit",
        stacked=True,
    )


def _throttling() -> core.TimeSeries:
    reasons = "hw_thermal|sw_thermal|hw_power_brake|hw_slowdown"
    rate = (
        f'rate(pyrometer_gpu_clock_event_seconds_total{{cluster=~"$cluster", reason=~"{reasons}"}}[$__rate_interval])'
    )
    return panels.time_series(
        "Throttled GPUs of the run",
        "Share of time under a slowing clock event, from counters: nothing between two scrapes is missed. Only GPUs "
        "that throttle are shown.",
        [panels.query(f"({rate} > 0) {_ON_RUN_NODES}", "{{node}} GPU {{gpu}} {{reason}}")],
        unit="percentunit",
    )


def _link_downs() -> core.TimeSeries:
    increase = 'increase(pyrometer_nic_link_down_events_total{cluster=~"$cluster"}[$__rate_interval])'
    return panels.time_series(
        "Links of the run that went down",
        "Link-down events per scrape window, from counters. Only ports that lost their link are shown.",
        [panels.query(f"(round({increase}) > 0) {_ON_RUN_NODES}", "{{node}} {{device}}/{{port}}")],
        unit="short",
    )
