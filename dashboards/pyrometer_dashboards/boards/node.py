"""Node: the GPUs and links of one node, the board that a message about a part of it links to."""

from __future__ import annotations

from grafanalib import core

from pyrometer_dashboards import panels

_NODE = 'cluster=~"$cluster", node="$node"'
_GPU = "GPU {{gpu}}"
_PORT = "{{device}}/{{port}}"


def board() -> core.Dashboard:
    """The board as grafanalib knows it."""
    return panels.dashboard(
        title="Pyrometer / Node",
        uid="pyrometer-node",
        description="The GPUs and links of one node: clocks, heat, throttling, flaps.",
        variables=[
            panels.variable("cluster", "Cluster", "label_values(pyrometer_gpu_info, cluster)", several=True),
            panels.variable("node", "Node", 'label_values(up{job="node", cluster=~"$cluster"}, node)'),
        ],
        rows=[[_clocks(), _temperature()], [_throttling(), _power()], [_link_downs(), _link_up()]],
    )


def _clocks() -> core.TimeSeries:
    return panels.time_series(
        "SM clock",
        "Of each GPU. One line below the others is a GPU that slows its whole run down.",
        [panels.query(f"DCGM_FI_DEV_SM_CLOCK{{{_NODE}}} * 1000000", _GPU)],
        unit="hertz",
    )


def _temperature() -> core.TimeSeries:
    return panels.time_series(
        "GPU temperature",
        "Of each GPU.",
        [panels.query(f"DCGM_FI_DEV_GPU_TEMP{{{_NODE}}}", _GPU)],
        unit="celsius",
    )


def _throttling() -> core.TimeSeries:
    reasons = "hw_thermal|sw_thermal|hw_power_brake|hw_slowdown|power_cap"
    series = f'pyrometer_gpu_clock_event_seconds_total{{{_NODE}, reason=~"{reasons}"}}'
    return panels.time_series(
        "Share of time with slowed clocks, by reason",
        "From counters: nothing between two scrapes is missed. power_cap is normal at full load.",
        [panels.query(f"rate({series}[$__rate_interval]) > 0", f"{_GPU} {{{{reason}}}}")],
        unit="percentunit",
    )


def _power() -> core.TimeSeries:
    return panels.time_series(
        "Power", "Of each GPU.", [panels.query(f"DCGM_FI_DEV_POWER_USAGE{{{_NODE}}}", _GPU)], unit="watt"
    )


def _link_downs() -> core.TimeSeries:
    increase = f"increase(pyrometer_nic_link_down_events_total{{{_NODE}}}[$__rate_interval])"
    return panels.time_series(
        "Links that went down",
        "Link-down events per scrape window, from counters. Only ports that lost their link are shown.",
        [panels.query(f"round({increase}) > 0", _PORT)],
        unit="short",
    )


def _link_up() -> core.TimeSeries:
    return panels.time_series(
        "Link state",
        "1 is up. A flap between two scrapes is not seen here: that is what the counter beside it is for.",
        [panels.query(f"pyrometer_nic_link_up{{{_NODE}}}", _PORT)],
        unit="short",
    )
