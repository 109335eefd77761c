"""Samples about why one GPU's clocks are low: for how long, how often, and how that was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyrometer_exporters.framework.metrics import NO_SAMPLES, Columns, Row, columns_of
from pyrometer_exporters.node.gpu import clock_events, families
from pyrometer_exporters.node.gpu.clock_event_counts import ClockEventCounts
from pyrometer_exporters.node.gpu.driver import Link
from pyrometer_exporters.node.gpu.nvml import Handle, Nvml
from pyrometer_exporters.node.gpu.readings import Readings
from pyrometer_exporters.node.gpu.sampler import SampledGpu, Sampler

# Until the scrape after the next one, at the usual 15 s: a slowdown of which the sampler saw nothing may come again.
AFTER_SLOWDOWN_SECONDS = 30.0


class Throttling:
    """One GPU's clock events, kept while the GPU is lost and opened again."""

    def __init__(self) -> None:
        self.sampled = SampledGpu()
        self._fields: dict[str, int] = {}
        self._wanted: tuple[int, ...] = ()
        self._samplable: frozenset[str] = frozenset()
        self._times = clock_events.ClockEvents()
        self._slowdowns: float | None = None
        self._shown: tuple[object, ...] = ()
        self._series = NO_SAMPLES
        self._counts = ClockEventCounts(self.sampled.rises)

    def open(self, nvml: Nvml, handle: Handle, link: Link, sampler: Sampler) -> None:
        """Begin with a GPU that was opened, perhaps again."""
        fields = clock_events.counter_fields(link.driver)
        if self._fields and fields != self._fields:  # another driver, whose counters start again
            self._times = clock_events.ClockEvents()
        self._fields, self._wanted = fields, tuple(fields.values())
        self._samplable = clock_events.sampled_reasons(link.driver)
        self._times.reopened()
        self._counts.reopened()
        self.sampled.generation = link.generation
        self.sampled.read = nvml.clock_event_reader(handle)
        sampler.watch(self.sampled)

    def close(self) -> None:
        """Stop reading the bitmask of a GPU that is no longer open."""
        self.sampled.read = None

    def fields(self) -> Sequence[int]:
        """Return the field values that :meth:`samples` wants."""
        return self._wanted

    def samples(self, readings: Readings, now: float, labels: tuple[str, str]) -> Columns:
        """Return all samples about clock events as of the monotonic time ``now``."""
        by_mask = self.sampled.by_mask()
        mask = readings.by_family.get(families.CLOCKS_EVENT_REASONS)
        sampled: dict[str, float] = {}
        values: list[float] = []
        if mask is not None:  # else the sampler can't read it either
            by_reason = clock_events.seconds_by_reason(by_mask)
            sampled = {reason: by_reason[reason] for reason in self._samplable}
            values.append(sum(by_mask.values()))
        fields = readings.fields
        counters = {reason: fields[field] for reason, field in self._fields.items() if field in fields}
        events = self._times.update(counters, sampled, now)
        counts = self._counts.update(events, sampled, int(mask or 0), now)
        self._hurry(events, now)
        for event in events:
            values += (event.seconds, counts[event.reason], 1)
        # The series hardly ever change; made again, they would cost more than all above (benchmarks/bench_gpu.py).
        shown = (labels, mask is None, *[event.method for event in events], *[event.reason for event in events])
        if shown != self._shown:
            self._shown, self._series = shown, columns_of(_series(events, labels, sampled=mask is not None))
        return self._series._replace(values=tuple(values))

    def _hurry(self, events: Sequence[clock_events.ClockEvent], now: float) -> None:
        """Have the sampler look often at what it alone can measure, for a while if the driver counted a slowdown."""
        self.sampled.urgent = clock_events.sampled_bits(events)
        before, self._slowdowns = self._slowdowns, clock_events.counted_slowdowns(events)
        if before is not None and self._slowdowns > before:
            self.sampled.busy_until = max(self.sampled.busy_until, now + AFTER_SLOWDOWN_SECONDS)


def _series(events: Iterable[clock_events.ClockEvent], labels: tuple[str, str], *, sampled: bool) -> Iterable[Row]:
    """Yield a row of each sample, with 0 for its value."""
    if sampled:
        yield families.CLOCK_EVENT_SAMPLED, labels, 0
    for event in events:
        by_reason = (*labels, event.reason)
        yield families.CLOCK_EVENT_SECONDS, by_reason, 0
        yield families.CLOCK_EVENTS, by_reason, 0
        yield families.CLOCK_EVENT_METHOD, (*by_reason, event.method), 0
