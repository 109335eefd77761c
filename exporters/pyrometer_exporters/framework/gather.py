"""One scrape: all collectors, each within its deadline, none able to hide another or to keep it waiting for long."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

from pyrometer_exporters.framework.clock import Clock
from pyrometer_exporters.framework.collector import Collector, CollectorSpec
from pyrometer_exporters.framework.lane import Lane, Part
from pyrometer_exporters.framework.metrics import Batch, Down, Family, Sample, single
from pyrometer_exporters.framework.worker import Outcome

log = logging.getLogger(__name__)

# How long the other collectors wait for one that isn't done.
PATIENCE_SECONDS = 0.05

COLLECTOR_SUCCESS = Family(
    "pyrometer_collector_success",
    "gauge",
    "1 if the collector ran to its end within its deadline, else 0. A node without the hardware is no failure.",
    ("collector",),
)
COLLECTOR_DURATION = Family(
    "pyrometer_collector_duration_seconds",
    "gauge",
    "How long the collector took in this scrape; where it missed its deadline, the deadline.",
    ("collector",),
)
COLLECTOR_LAST_SUCCESS = Family(
    "pyrometer_collector_last_success_timestamp_seconds",
    "gauge",
    "When the collector last ran to its end; absent until it first did.",
    ("collector",),
)
DOWN_REASON = Family(
    "pyrometer_down_reason_info",
    "gauge",
    "1 while a part of a collector (a GPU, a device; empty: all of it) can't be read, with the reason; else absent.",
    ("collector", "part", "reason"),
)
FAMILIES = (COLLECTOR_SUCCESS, COLLECTOR_DURATION, COLLECTOR_LAST_SUCCESS, DOWN_REASON)


@dataclass(frozen=True)
class CollectorState:
    """What a scrape learned about a collector; ``failed`` is None or the reason why nothing of it was served."""

    name: str
    failed: str | None
    seconds: float
    last_success: float | None
    downs: tuple[Down, ...]


class _Found(NamedTuple):
    """What a collector gave, as far as it can be written."""

    items: list[Sample | Batch]
    downs: list[Down]


@dataclass(frozen=True)
class Gathered:
    """All samples of a scrape, those about the collectors included, and the collectors' states."""

    items: list[Sample | Batch]
    states: tuple[CollectorState, ...]

    @property
    def samples(self) -> list[Sample]:
        """All of them, one by one."""
        return list(single(self.items))


class Gatherer:
    """Runs the collectors for a scrape. Not reentrant: the web server lets concurrent scrapes share one run."""

    def __init__(self, collectors: Iterable[tuple[CollectorSpec, Collector]], clock: Clock) -> None:
        self._collectors = list(collectors)
        self._clock = clock
        self._lane = Lane("collectors", PATIENCE_SECONDS)
        self._own: dict[str, Part[_Found]] = {
            spec.name: Part(spec.name, PATIENCE_SECONDS) for spec, _ in self._collectors
        }
        self._sound = {spec.name: _Sound() for spec, _ in self._collectors}
        self._last_success: dict[str, float] = {}
        self._told: dict[tuple[str, str], str] = {}

    def gather(self, seconds: float) -> Gathered:
        """Run all collectors; returns after ``seconds`` at the latest, with what was ready by then."""
        start = time.monotonic()
        pending = []
        for spec, collector in self._collectors:
            until = start + min(spec.deadline_seconds, seconds)
            # A collector is told a little less than its deadline, so that its own parts' outcomes still count.
            job = self._own[spec.name].job(self._sound[spec.name].job(collector, start + 0.9 * (until - start)))
            pending.append((spec, job, until))
        self._lane.run([job for _, job, _ in pending])
        states = []
        items: list[Sample | Batch] = []
        for spec, job, until in pending:
            state, found = self._settle(spec.name, job.outcome(until), until - start)
            states.append(state)
            items.extend(found)
        for state in states:
            items.extend(_about(state))
        self._tell(states)
        return Gathered(items, tuple(states))

    def close(self) -> None:
        """Close all collectors; one that fails to close is logged."""
        self._lane.close()
        for spec, collector in self._collectors:
            self._own[spec.name].close()
            try:
                collector.close()
            except Exception:
                log.exception("collector %s did not close", spec.name)

    def _settle(
        self, name: str, outcome: Outcome[_Found], allowed: float
    ) -> tuple[CollectorState, list[Sample | Batch]]:
        items, downs = outcome.value if outcome.value is not None else _Found([], [])
        if outcome.reason is None:
            self._last_success[name] = self._clock.wall()
        else:
            downs = [Down("", outcome.reason, outcome.detail)]
        seconds = allowed if outcome.reason == "deadline" else outcome.seconds
        return CollectorState(name, outcome.reason, seconds, self._last_success.get(name), tuple(downs)), items

    def _tell(self, states: Iterable[CollectorState]) -> None:
        """Log each part that goes down or comes back, once, not on every scrape."""
        now = {(s.name, d.part): f"{d.reason}: {d.detail}" if d.detail else d.reason for s in states for d in s.downs}
        for key, why in now.items():
            if key not in self._told:
                log.warning("not available: collector %s %s: %s", *key, why)
        for key in self._told.keys() - now.keys():
            log.info("available again: collector %s %s", *key)
        self._told = now


class _Sound:
    """Finds what can be written of a collector's items; looks only at samples that it did not give the time before.

    Nine in ten samples are as they were. A family all of whose samples are is given as the same batch again, which
    costs nothing where it is written. For one thread at a time.
    """

    def __init__(self) -> None:
        self._before: dict[Family, Batch] = {}

    def job(self, collector: Collector, until: float) -> Callable[[], _Found]:
        """One collection."""
        return lambda: self.found(collector.collect(until))

    def found(self, given: Iterable[Sample | Batch | Down]) -> _Found:
        """The items that can be written; for the others, which would cost everyone the scrape, one Down."""
        found = _Found([], [])
        bad: list[object] = []
        families: dict[Family, list[Sample]] = {}
        for item in given:
            if isinstance(item, Sample):
                try:
                    families[item[0]].append(item)
                except KeyError:
                    families[item[0]] = [item]
                except TypeError:  # what can't even be looked up
                    bad.append(item)
            elif isinstance(item, Batch):
                _take(item, found, bad)
            elif _fits(item):
                found.downs.append(item)
            else:
                bad.append(item)
        before, self._before = self._before, {}
        for family, samples in families.items():
            batch = _batch(family, samples, before.get(family), bad)
            if batch.samples:
                self._before[family] = batch
                found.items.append(batch)
        if bad:
            name = str(getattr(getattr(bad[0], "family", None), "name", type(bad[0]).__name__))
            found.downs.append(Down("", "bad_sample", f"{len(bad)} samples that can't be served, the first of {name}"))
        return found


def _take(batch: Batch, found: _Found, bad: list[object]) -> None:
    batch.checked = batch.checked or all(_fits(one) and one.family is batch.family for one in batch.samples)
    if batch.checked:
        found.items.append(batch)
    else:
        found.items.extend(sample for sample in batch.samples if _fits(sample))
        bad.extend(sample for sample in batch.samples if not _fits(sample))


def _batch(family: Family, samples: list[Sample], before: Batch | None, bad: list[object]) -> Batch:
    """Those that can be written: the batch before where all are the same, else its samples where they are."""
    if before is not None and _same(before.samples, tuple(samples)):
        return before
    alike = before is not None and len(before.samples) == len(samples)
    known: Iterable[Sample | None] = before.samples if before is not None and alike else repeat(None)
    fit = []
    for old, new in zip(known, samples, strict=False):
        if old is not None and _same(old, new):
            fit.append(old)
        elif _fits(new):
            fit.append(new)
        else:
            bad.append(new)
    batch = Batch(family, tuple(fit))
    batch.checked = True
    return batch


def _same(old: tuple[object, ...], new: tuple[object, ...]) -> bool:
    try:
        return old == new
    except Exception:  # noqa: BLE001  whatever a collector took for a value
        return False


def _fits(item: Sample | Down) -> bool:
    try:
        if isinstance(item, Sample):
            family, labels, value, _ = item
            if type(value) is not float:
                float(value + 0.0)  # the sum refuses texts, which float() alone would not
            "".join(labels)
            return len(labels) == len(family.labels)
        "".join(item)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return False
    return isinstance(item, Down)


def _about(state: CollectorState) -> Iterable[Sample]:
    yield COLLECTOR_SUCCESS.sample(0 if state.failed else 1, state.name)
    yield COLLECTOR_DURATION.sample(state.seconds, state.name)
    if state.last_success is not None:
        yield COLLECTOR_LAST_SUCCESS.sample(state.last_success, state.name)
    for down in state.downs:
        yield DOWN_REASON.sample(1, state.name, down.part, down.reason)
