"""The cluster as OpenMetrics text: a span of the past for promtool, or the moment for a scrape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TextIO

from pyrometer_simulator.fleet.batches import batches
from pyrometer_simulator.fleet.hardware import Hardware
from pyrometer_simulator.fleet.plan import Plan
from pyrometer_simulator.fleet.series import Family, together
from pyrometer_simulator.fleet.services import services
from pyrometer_simulator.fleet.training import ranks

# Static series need a sample within Prometheus' lookback of 5 minutes, no more.
SLOW_EVERY = 4


def families(plan: Plan) -> list[Family]:
    """Everything that a planned cluster tells, but for the batches."""
    hardware = Hardware(plan)
    training = ranks(plan, hardware.targets, hardware.dead)
    nodes = together(hardware.targets_families(), hardware.dcgm(), hardware.gpus(), hardware.ports(), training)
    return nodes + services(plan, plan.names())


def write_history(plan: Plan, start: float, end: float, step: float, file: TextIO) -> int:
    """Write all series from ``start`` to ``end`` (s since the epoch) every ``step`` s; the number of samples."""
    written = 0
    told = families(plan)
    for number in range(math.ceil((end - start) / step)):
        at = start + number * step
        for family in told:
            if not family.slow or number % SLOW_EVERY == 0:
                lines = [f"{series} {value} {at:.3f}\n" for series, value in _present(family, at)]
                file.writelines(lines)
                written += len(lines)
    for series, value, at in batches(plan, start, end):
        file.write(f"{series} {value} {at:.3f}\n")
        written += 1
    file.write("# EOF\n")
    return written


def moment(told: Sequence[Family], at: float) -> Iterator[str]:
    """All series at a moment, without timestamps, as a scrape reads them."""
    for family in told:
        for series, value in _present(family, at):
            yield f"{series} {value}\n"


def _present(family: Family, at: float) -> Iterator[tuple[str, float]]:
    """The series that are there at a moment: NaN is absent."""
    values: list[float] = family.values(at).tolist()
    return ((series, value) for series, value in zip(family.series, values, strict=True) if not math.isnan(value))
