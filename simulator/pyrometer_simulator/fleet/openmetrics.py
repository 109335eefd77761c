"""A planned cluster as OpenMetrics text: a time range for promtool, or the present for a scrape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TextIO

from pyrometer_simulator.fleet.collective_metrics import collective_families
from pyrometer_simulator.fleet.host_metrics import host_families, state_families
from pyrometer_simulator.fleet.node_metrics import NodeMetrics
from pyrometer_simulator.fleet.plan import Plan
from pyrometer_simulator.fleet.series import Family, flatten
from pyrometer_simulator.fleet.service_metrics import service_families
from pyrometer_simulator.fleet.training_metrics import batches, rank_families

# Constant series need a sample within Prometheus' lookback of 5 minutes, not more often.
SLOW_EVERY = 4


def all_families(plan: Plan) -> list[Family]:
    """Return all families of a planned cluster except the batches."""
    nodes = NodeMetrics(plan)
    of_nodes = nodes.exporters(), nodes.dcgm(), nodes.gpus(), nodes.ports(), state_families(nodes), host_families(nodes)
    of_runs = rank_families(plan, nodes.targets, nodes.dead), collective_families(plan, nodes.targets)
    return [*flatten(*of_nodes, *of_runs), *service_families(plan)]


def write_history(plan: Plan, start: float, end: float, step: float, file: TextIO) -> int:
    """Write all series of a time range; return the number of samples.

    Args:
        plan: the cluster.
        start: begin of the range, in seconds since the epoch.
        end: its end.
        step: seconds between two samples.
        file: where the text goes.

    Raises:
        OSError: the file can't be written.
    """
    written = 0
    families = all_families(plan)
    for number in range(math.ceil((end - start) / step)):
        at = start + number * step
        for family in families:
            if not family.slow or number % SLOW_EVERY == 0:
                lines = [f"{series} {value} {at:.3f}\n" for series, value in _samples(family, at)]
                file.writelines(lines)
                written += len(lines)
    for series, value, at in batches(plan, start, end):
        file.write(f"{series} {value} {at:.3f}\n")
        written += 1
    file.write("# EOF\n")
    return written


def scrape(families: Sequence[Family], at: float) -> Iterator[str]:
    """Yield the lines of a scrape at a time, without timestamps."""
    for family in families:
        for series, value in _samples(family, at):
            yield f"{series} {value}\n"


def _samples(family: Family, at: float) -> Iterator[tuple[str, float]]:
    """Return the series that exist at a time: NaN is absent."""
    values: list[float] = family.values(at).tolist()
    return ((series, value) for series, value in zip(family.series, values, strict=True) if not math.isnan(value))
