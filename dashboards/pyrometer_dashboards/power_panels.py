"""Panels of power, energy and heat: of the cluster, and of a run against its tokens."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels
from pyrometer_dashboards.common import CLUSTER, RUN_IS
from pyrometer_dashboards.model import Override, Panel, Query, Reading, Row

_RUN = f"run:pyrometer_gpu_energy_joules:rate2m{{{RUN_IS}}}"
_NO_ENERGY = "no data: the energy of each GPU of the run is needed"


def cluster_power() -> Panel:
    """Return the power of all GPUs, and what it moved by within ten minutes."""
    return panels.lines(
        "Power of all GPUs, and its swing",
        Reading(
            "Power of the cluster's GPUs together, from their energy counters, and the difference between its highest "
            "and lowest two minutes of the last ten.",
            "a swing that is small beside the power.",
            "A swing of the order of the power: a large run stops and goes on. Its supply must bear that.",
        ),
        [
            Query(f"max(cluster:pyrometer_gpu_energy_joules:rate2m{{{CLUSTER}}})", "together"),
            Query(f"max(cluster:pyrometer_gpu_power:swing10m{{{CLUSTER}}})", "swing in 10 min"),
        ],
        unit="watt",
        limits=(0, None),
        overrides=[
            panels.fixed("together", palette.BAND, lineWidth=2),
            panels.fixed("swing in 10 min", palette.BAD, lineWidth=2),
        ],
        no_value="no data: GPUs' energy counters are needed, for two minutes",
    )


def power_of_run() -> Row:
    """Return the row of a run's power, energy and heat."""
    shown = [_run_energy(), _run_power(), _energy_per_token(), _heat()]
    return Row(shown, height=7, title="Power, energy and heat", collapsed=True)


def _run_energy() -> Panel:
    """Return the energy that a run used in the range."""
    return panels.stat(
        "Energy in the range",
        Reading(
            "Energy of the run's GPUs within the time range, without hosts, switches and cooling.",
            "tokens times the joules per token of a good day.",
            "It is unknown while the power or the place of one of its GPUs is.",
        ),
        f"60 * sum_over_time({_RUN}[$__range:1m])",
        unit="joule",
        decimals=1,
        no_value="unknown",
    )


def _run_power() -> Panel:
    """Return the power of a run's GPUs together."""
    return panels.lines(
        "Power of the run's GPUs",
        Reading(
            "Power of all GPUs that the run's ranks name, together.",
            "steady, with short dips at checkpoints.",
            "A fall without a checkpoint: the ranks wait. The row of slow ranks has for whom.",
        ),
        Query(_RUN, "together"),
        unit="watt",
        limits=(0, None),
        overrides=[panels.fixed("together", palette.BAND, lineWidth=2)],
        no_value=_NO_ENERGY,
        span=6,
    )


def _energy_per_token() -> Panel:
    """Return the energy that a token costs."""
    return panels.lines(
        "Energy per token",
        Reading(
            "Energy of the run's GPUs for each token that it trained; none while no token is counted.",
            "flat.",
            "It rises while GPUs wait, are throttled, or compute again what was lost.",
        ),
        Query(f"run:pyrometer_train_token_energy:joules{{{RUN_IS}}}", "per token"),
        unit="joule",
        limits=(0, None),
        overrides=[panels.fixed("per token", palette.BAND, lineWidth=2)],
        no_value=_NO_ENERGY,
        span=6,
    )


def _heat() -> Panel:
    """Return the heat of a run's GPUs against its tokens."""
    tokens = {"unit": "locale", "custom.axisPlacement": "right", "custom.axisSoftMin": 0}
    tokens["color"] = {"mode": "fixed", "fixedColor": palette.BAND}
    return panels.lines(
        "Heat against throughput",
        Reading(
            "Mean temperature of the run's GPUs (left), and its tokens per second (right). Look at a week.",
            "both flat through day and night.",
            "Tokens that fall as it gets warmer each day: cooling. Throttling has the GPUs.",
            "GpuThrottledThermal",
        ),
        [
            Query(f"run:pyrometer_gpu_temperature:avg{{{RUN_IS}}}", "temperature"),
            Query(f"run:pyrometer_train_tokens:rate1m{{{RUN_IS}}}", "tokens per second"),
        ],
        unit="celsius",
        # Without ends of its own, a tenth of a degree would fill the chart.
        overrides=[
            panels.fixed("temperature", palette.BAD, lineWidth=2, axisSoftMin=30, axisSoftMax=80),
            Override("tokens per second", tokens),
        ],
    )
