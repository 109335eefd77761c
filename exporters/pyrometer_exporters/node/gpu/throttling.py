"""Why one GPU's clocks are low: for how long, how often, and by which method that is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyrometer_exporters.framework.metrics import Sample, new_sample
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
        self._shown: dict[str, _Shown] = {}

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

    def samples(self, values: Values, now: float, labels: tuple[str, str]) -> list[Sample]:
        """Everything about clock events as of the monotonic time ``now``."""
        by_mask = self.watched.by_mask()
        mask = values.by_family.get(families.CLOCKS_EVENT_REASONS)
        sampled: dict[str, float] = {}
        found: list[Sample] = []
        if mask is not None:  # else the sampler can't read it either
            by_reason = clock_events.seconds_by_reason(by_mask)
            sampled = {reason: by_reason[reason] for reason in self._samplable}
            found.append(families.CLOCK_EVENT_SAMPLED.sample(sum(by_mask.values()), *labels))
        counters = {reason: values.fields[field] for reason, field in self._fields.items() if field in values.fields}
        events = self._times.update(counters, sampled, now)
        counts = self._counts.update(events, sampled, int(mask or 0), now)
        if labels != self._labels:
            self._labels = labels
            self._shown.clear()
        for event in events:
            found += self._samples_of(event, counts[event.reason])
        return found

    def _samples_of(self, event: clock_events.ClockEvent, times: int) -> tuple[Sample, ...]:
        """The same ones until something is new: of eleven reasons nearly all stand still."""
        shown = self._shown.get(event.reason)
        if shown is None or shown.event is not event or shown.times != times:
            shown = self._shown[event.reason] = _show(event, times, (*self._labels, event.reason))
        return shown.samples


class _Shown(NamedTuple):
    event: clock_events.ClockEvent
    times: int
    samples: tuple[Sample, ...]


def _show(event: clock_events.ClockEvent, times: int, labels: tuple[str, ...]) -> _Shown:
    samples = (
        new_sample(families.CLOCK_EVENT_SECONDS, labels, event.seconds),
        new_sample(families.CLOCK_EVENTS, labels, times),
        families.CLOCK_EVENT_METHOD.sample(1, *labels, event.method),
    )
    return _Shown(event, times, samples)
