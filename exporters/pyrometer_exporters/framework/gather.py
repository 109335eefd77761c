"""One scrape: run all collectors, each within its deadline; none can hide another or delay it for long."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import chain

from pyrometer_exporters.framework.collector import Collector, CollectorSpec
from pyrometer_exporters.framework.metrics import NO_SAMPLES, Columns, Down, Families, Sample, columns_of, joined
from pyrometer_exporters.framework.outcome import Outcome
from pyrometer_exporters.framework.scheduling import Member, SharedWorker
from pyrometer_exporters.framework.validation import Validated, Validator
from pyrometer_kit.clock import Clock

log = logging.getLogger(__name__)

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
        found: list[Columns] = []
        for spec, task, until in pending:
            state, columns = self._settle(spec.name, task.outcome(until), until - start)
            states.append(state)
            found.append(columns)
        found.append(columns_of(chain.from_iterable(map(_state_samples, states))))
        self._log_changes(states)
        return Gathered(joined(found), tuple(states))

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
