"""One scrape: run all collectors, each within its deadline, and check their samples; none can hide or delay another.

A sample that can't be written must not cost the others.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import NamedTuple, TypeGuard, cast

from pyrometer_exporters.framework.collector import Collector, CollectorSpec
from pyrometer_exporters.framework.metrics import NO_SAMPLES, Columns, Down, Families, Sample, columns_of, joined
from pyrometer_exporters.framework.outcome import Outcome
from pyrometer_exporters.framework.scheduling import Member, SharedWorker
from pyrometer_kit.clock import Clock

log = logging.getLogger(__name__)

_NUMBERS = {int, float, bool}
# How long the other collectors wait for one that isn't done.
PATIENCE_SECONDS = 0.05

# fmt: off
FAMILIES = Families("collector")
COLLECTOR_SUCCESS = FAMILIES.gauge("pyrometer_collector_success",
    "1 if the collector ran to its end within its deadline, else 0. A node without the hardware is no failure.")
COLLECTOR_DURATION = FAMILIES.gauge("pyrometer_collector_duration_seconds",
    "How long the collector took in this scrape; where it missed its deadline, the deadline.")
COLLECTOR_LAST_SUCCESS = FAMILIES.gauge("pyrometer_collector_last_success_timestamp_seconds",
    "When the collector last ran to its end; absent until it first did.")
DOWN_REASON = FAMILIES.gauge("pyrometer_down_reason_info",
    "1 while a part of a collector (a GPU, a device; empty: all of it) can't be read, with the reason; else absent.",
    "part", "reason")
# fmt: on


@dataclass(frozen=True)
class CollectorState:
    """The state of a collector in a scrape; ``failed`` is None or the reason why none of its samples are served."""

    name: str
    failed: str | None
    seconds: float
    last_success: float | None
    downs: tuple[Down, ...]


@dataclass(frozen=True)
class Gathered:
    """All samples of a scrape, those about the collectors included, and the collectors' states."""

    columns: Columns
    states: tuple[CollectorState, ...]

    @property
    def samples(self) -> list[Sample]:
        """The samples one by one."""
        return self.columns.samples()


class Validated(NamedTuple):
    """The samples that can be written, and the parts that are down."""

    columns: Columns
    downs: list[Down]


class Validator:
    """Checks the samples of one collector.

    A sample can be served if its value is a number and it has as many label values as its family has names, all of
    them texts. Families of the names in ``left_out`` are dropped. Series are hardly ever others than in the scrape
    before: those that passed there are not looked at again.
    """

    def __init__(self, left_out: Collection[str] = ()) -> None:
        self._left_out = frozenset(left_out)
        self._passed = NO_SAMPLES

    def validate(self, items: Iterable[object]) -> Validated:
        """Split what a collector returned into samples and downs; report all that can't be served as one more Down."""
        columns, others = _split(items)
        downs = [item for item in others if _is_down(item)]
        bad = [item for item in others if not _is_down(item)]
        if self._has_passed(columns):
            # With the labels of before, which the writer of the page compares faster.
            columns = self._passed._replace(values=columns.values)
        else:
            if not (_fit(columns) and _are_numbers(columns.values)):
                served = [(sample, _served(sample)) for sample in columns.samples()]
                bad += [sample for sample, good in served if good is None]
                columns = columns_of(good for _, good in served if good is not None)
            self._passed = columns
        if self._left_out:
            columns = columns.selected([family.name not in self._left_out for family in columns.families])
        if bad:
            name = str(getattr(getattr(bad[0], "family", None), "name", type(bad[0]).__name__))
            downs.append(Down("", "bad_sample", f"samples that can't be served: {len(bad)}, the first of {name}"))
        return Validated(columns, downs)

    def _has_passed(self, columns: Columns) -> bool:
        passed = self._passed
        return columns.families == passed.families and columns.labels == passed.labels and _are_numbers(columns.values)


class Gatherer:
    """Runs the collectors for a scrape. Not reentrant: the web server lets concurrent scrapes share one run."""

    def __init__(
        self, collectors: Iterable[tuple[CollectorSpec, Collector]], clock: Clock, left_out: Collection[str] = ()
    ) -> None:
        """Serve no samples of the families in ``left_out``."""
        self._collectors = list(collectors)
        self._clock = clock
        self._shared = SharedWorker("collectors", PATIENCE_SECONDS)
        self._members = {spec.name: Member(spec.name, PATIENCE_SECONDS) for spec, _ in self._collectors}
        self._validators = {spec.name: Validator(left_out) for spec, _ in self._collectors}
        self._last_success: dict[str, float] = {}
        self._logged: dict[tuple[str, str], str] = {}

    def gather(self, seconds: float) -> Gathered:
        """Run all collectors; return after ``seconds`` at the latest, with the samples that are ready by then."""
        start = time.monotonic()
        pending = []
        for spec, collector in self._collectors:
            until = start + min(spec.deadline_seconds, seconds)
            # A collector gets a little less than its deadline, so that the outcomes of its own parts still count.
            task = self._members[spec.name].task(self._collection(spec.name, collector, start + 0.9 * (until - start)))
            pending.append((spec, task, until))
        self._shared.run([task for _, task, _ in pending])
        states = []
        parts: list[Columns] = []
        for spec, task, until in pending:
            state, columns = self._settle(spec.name, task.outcome(until), until - start)
            states.append(state)
            parts.append(columns)
        parts.append(columns_of(chain.from_iterable(map(_state_samples, states))))
        self._log_changes(states)
        return Gathered(joined(parts), tuple(states))

    def close(self) -> None:
        """Close all collectors; one that fails to close is logged."""
        self._shared.close()
        for spec, collector in self._collectors:
            self._members[spec.name].close()
            try:
                collector.close()
            except Exception:
                log.exception("collector %s did not close", spec.name)

    def _collection(self, name: str, collector: Collector, until: float) -> Callable[[], Validated]:
        return lambda: self._validators[name].validate(collector.collect(until))

    def _settle(self, name: str, outcome: Outcome[Validated], allowed: float) -> tuple[CollectorState, Columns]:
        columns, downs = outcome.value if outcome.value is not None else Validated(NO_SAMPLES, [])
        if outcome.reason is None:
            self._last_success[name] = self._clock.wall()
        else:
            downs = [Down("", outcome.reason, outcome.detail)]
        seconds = allowed if outcome.reason == "deadline" else outcome.seconds
        return CollectorState(name, outcome.reason, seconds, self._last_success.get(name), tuple(downs)), columns

    def _log_changes(self, states: Iterable[CollectorState]) -> None:
        """Log each part once when it goes down and once when it is back."""
        now = {(s.name, d.part): f"{d.reason}: {d.detail}" if d.detail else d.reason for s in states for d in s.downs}
        for key, why in now.items():
            if key not in self._logged:
                log.warning("not available: collector %s %s: %s", *key, why)
        for key in self._logged.keys() - now.keys():
            log.info("available again: collector %s %s", *key)
        self._logged = now


def _state_samples(state: CollectorState) -> Iterable[Sample]:
    yield COLLECTOR_SUCCESS.sample(0 if state.failed else 1, state.name)
    yield COLLECTOR_DURATION.sample(state.seconds, state.name)
    if state.last_success is not None:
        yield COLLECTOR_LAST_SUCCESS.sample(state.last_success, state.name)
    for down in state.downs:
        yield DOWN_REASON.sample(1, state.name, down.part, down.reason)


def _split(items: Iterable[object]) -> tuple[Columns, list[object]]:
    """Return the samples, in order, and the items that are none."""
    parts: list[Columns] = []
    others: list[object] = []
    for kind, run in groupby(items, type):
        if kind is Sample:
            parts.append(columns_of(cast("Iterable[Sample]", run)))
        elif kind is Columns:
            for columns in cast("Iterable[Columns]", run):
                (parts if len({*map(len, columns)}) == 1 else others).append(columns)
        else:
            others += run
    return joined(parts), others


def _is_down(item: object) -> TypeGuard[Down]:
    return isinstance(item, Down) and all(isinstance(text, str) for text in item)


def _fit(columns: Columns) -> bool:
    """Return whether all labels are texts, as many as the family has names."""
    try:
        "".join(chain.from_iterable(columns.labels))
        return [*map(len, columns.labels)] == [len(family.labels) for family in columns.families]
    except (TypeError, AttributeError):
        return False


def _are_numbers(values: Sequence[float]) -> bool:
    """Return whether all values are Python's own numbers, none of them beyond all floats."""
    try:
        array("d", values)
    except (TypeError, OverflowError):
        return False
    return _NUMBERS.issuperset(map(type, values))


def _served(sample: Sample) -> Sample | None:
    """Return the sample as it is served, with another library's number as a float; None if it can't be served."""
    family, labels, value = sample
    try:
        "".join(labels)
        number = float(value + 0.0)  # the sum refuses texts, which float() alone would not
        if len(labels) != len(family.labels):
            return None
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    return sample if type(value) in _NUMBERS else Sample(family, labels, number)
