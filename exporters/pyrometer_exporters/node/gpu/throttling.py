"""Why one GPU's clocks are low: for how long, how often, and by which method that is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyrometer_exporters.framework.metrics import Sample, made
from pyrometer_exporters.node.gpu import clock_events, families
from pyrometer_exporters.node.gpu.driver import Link
from pyrometer_exporters.node.gpu.edges import ClockEventCounts
from pyrometer_exporters.node.gpu.nvml import Handle, Nvml
from pyrometer_exporters.node.gpu.readings import Values
from pyrometer_exporters.node.gpu.sampler import Sampler, Watched


class Throttling:
    """One GPU's clock events, kept while it comes and goes."""

    def __init__(self) -> None:
        self.watched = Watched()
        self._fields: dict[str, int] = {}
        self._wanted: tuple[int, ...] = ()
        self._samplable: frozenset[str] = frozenset()
        self._times = clock_events.ClockEvents()
        self._counts = ClockEventCounts(self.watched.rises)
        self._labels: tuple[str, str] = ("", "")
        self._of_reason: dict[tuple[str, str], tuple[tuple[str, ...], Sample]] = {}

    def open(self, nvml: Nvml, handle: Handle, link: Link, sampler: Sampler) -> None:
        """The GPU has been opened, perhaps again."""
        fields = clock_events.counter_fields(link.driver)
        if self._fields and fields != self._fields:  # another driver, and its counters begin anew
            self._times = clock_events.ClockEvents()
        self._fields, self._wanted = fields, tuple(fields.values())
        self._samplable = clock_events.sampled_reasons(link.driver)
        self._times.reopened()
        self._counts.reopened()
        self.watched.generation = link.generation
        self.watched.read = nvml.clock_event_reader(handle)
        sampler.watch(self.watched)

    def let_go(self) -> None:
        """The GPU is no longer open."""
        self.watched.read = None

    def fields(self) -> Sequence[int]:
        """The field values that :meth:`samples` wants."""
        return self._wanted

    def samples(self, values: Values, now: float, labels: tuple[str, str]) -> Iterable[Sample]:
        """Everything about clock events as of the monotonic time ``now``."""
        by_mask = self.watched.by_mask()
        mask = values.by_family.get(families.CLOCKS_EVENT_REASONS)
        sampled: dict[str, float] = {}
        if mask is not None:  # else the sampler can't read it either
            by_reason = clock_events.seconds_by_reason(by_mask)
            sampled = {reason: seconds for reason, seconds in by_reason.items() if reason in self._samplable}
            yield families.CLOCK_EVENT_SAMPLED.sample(sum(by_mask.values()), *labels)
        counters = {reason: values.fields[field] for reason, field in self._fields.items() if field in values.fields}
        events = self._times.update(counters, sampled, now)
        counts = self._counts.update(events, sampled, int(mask or 0), now)
        if labels != self._labels:
            self._labels = labels
            self._of_reason.clear()
        for reason, seconds, method in events:
            of_reason, by = self._of_reason.get((reason, method)) or self._new(reason, method)
            yield made(families.CLOCK_EVENT_SECONDS, of_reason, seconds)
            yield made(families.CLOCK_EVENTS, of_reason, counts[reason])
            yield by

    def _new(self, reason: str, method: str) -> tuple[tuple[str, ...], Sample]:
        """A reason's labels, and the sample that tells by which method it is known; kept, as there are eleven."""
        of_reason = (*self._labels, reason)
        found = of_reason, families.CLOCK_EVENT_METHOD.sample(1, *of_reason, method)
        self._of_reason[reason, method] = found
        return found
