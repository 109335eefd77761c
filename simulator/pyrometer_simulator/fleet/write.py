"""The cluster as OpenMetrics text: a span of the past for promtool, or the moment for a scrape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TextIO

from pyrometer_simulator.fleet.batches import batches
from pyrometer_simulator.fleet.plan import Plan
from pyrometer_simulator.fleet.series import Family, Fleet

# Static series need a sample within Prometheus' lookback of 5 minutes, no more.
SLOW_EVERY = 4


def write_history(plan: Plan, start: float, end: float, step: float, file: TextIO) -> int:
    """Write all series from ``start`` to ``end`` (s since the epoch) every ``step`` s; the number of samples."""
    written = 0
    families = list(Fleet(plan).families())
    for number in range(math.ceil((end - start) / step)):
        at = start + number * step
        for family in families:
            if not family.slow or number % SLOW_EVERY == 0:
                written += _write(family, at, file)
    for series, value, at in batches(plan, start, end):
        file.write(f"{series} {value} {at:.3f}\n")
        written += 1
    file.write("# EOF\n")
    return written


def _write(family: Family, at: float, file: TextIO) -> int:
    lines = [
        f"{series} {value} {at:.3f}\n"
        for series, value in zip(family.series, _values(family, at), strict=True)
        if value == value
    ]  # noqa: PLR0124
    file.writelines(lines)
    return len(lines)


def _values(family: Family, at: float) -> Sequence[float]:
    found: list[float] = family.values(at).tolist()
    return found


def moment(families: Sequence[Family], at: float) -> Iterator[str]:
    """All series at a moment, without timestamps, as a scrape reads them."""
    for family in families:
        for series, value in zip(family.series, _values(family, at), strict=True):
            if value == value:  # noqa: PLR0124  NaN is absent
                yield f"{series} {value}\n"
