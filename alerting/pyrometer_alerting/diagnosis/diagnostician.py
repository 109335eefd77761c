"""The worker that keeps the causes of open training incidents up to date; it never delays their messages."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from pyrometer_alerting.diagnosis.death import died_by, is_later
from pyrometer_alerting.diagnosis.occupancy import held_up_by_another, use_of
from pyrometer_alerting.incidents.correlation import explained_by
from pyrometer_alerting.incidents.intake import SETTLE_SECONDS, announce, reply_in_channel
from pyrometer_alerting.incidents.membership import merge_incidents, split_off, unrelated_keys
from pyrometer_alerting.incidents.metrics import Metrics
from pyrometer_alerting.incidents.storage.store import Store, StoreError, Transaction
from pyrometer_alerting.model.harm import asks_for_use, rank, urgency
from pyrometer_alerting.model.incident import LEAST_GPU_HOURS, Diagnosis, Incident
from pyrometer_alerting.model.message import Replies
from pyrometer_alerting.model.places import Topology, is_within, place_of
from pyrometer_alerting.model.routing import Routing
from pyrometer_kit.clock import Clock
from pyrometer_kit.prometheus import Prometheus

_log = logging.getLogger(__name__)

FAST_SECONDS = 10.0  # while new evidence arrives with each scrape
FAST_FOR_SECONDS = 600.0
THOROUGH_SECONDS = 1.0  # the complete diagnosis after the quick first one, for which the message waits
SLOW_SECONDS = 60.0
# News that change no decision wait so long after the last call on the message, and are told together: another name of
# the same trouble; further causes, confidence, gaps, the curve. Numbers that moved wait as long as the message is old,
# from the first of these times to the second: those of a link that flaps move with each look.
WORDS_SECONDS, DETAILS_SECONDS = 30.0, 300.0
NUMBERS_SECONDS = 900.0  # changed numbers alone (38 s throttled, 48 s, ...) are edited in only this often
# A restarted run appears rank by rank: a part must not belong to the run for this long before it is split off.
UNRELATED_SECONDS = 60.0
MOVED_SHARE, MOVED_GPU_HOURS = 0.05, 5.0  # of the run's speed; below that a doubled cost is no news
Diagnose = Callable[[Prometheus, Incident, list[Incident], float], Diagnosis]
"""Finds the causes of an incident, beside the other recent ones, as of now; missing evidence is named, never raised."""

RECENT_SECONDS = 600.0  # during which an incident on a node still counts as evidence


def load_diagnose() -> Diagnose:
    """Import pandas and its users; they are slow to import, so the worker does it once when it starts."""
    module = importlib.import_module("pyrometer_alerting.diagnosis.investigation")
    return cast(Diagnose, module.investigate)


class Diagnostician:
    """Runs in its own thread; calls `changed` when a message must be updated."""

    def __init__(
        self,
        store: Store,
        prometheus: Prometheus,
        *,
        replies: Replies,
        clock: Clock,
        metrics: Metrics,
        changed: Callable[[], None],
    ) -> None:
        self._store, self._prometheus, self._clock, self._replies = store, prometheus, clock, replies
        self._metrics, self._changed = metrics, changed
        self.routing = Routing()
        self.topology: Callable[[], Topology] = Topology
        """Returns the wiring that is known now."""
        self._due: dict[str, float] = {}  # incident -> when to diagnose it again
        self._unrelated_since: dict[
            tuple[str, str], float
        ] = {}  # incident and alert -> time since which the run does not use the part
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = False
        self.load: Callable[[], Diagnose] = load_diagnose

    def poke(self, incident_id: str) -> None:
        """Diagnose this incident now."""
        with self._lock:
            self._due[incident_id] = 0.0
        self._wake.set()

    def poke_all(self) -> None:
        """Diagnose all open incidents again: a cause arrived."""
        with self._lock:
            self._due = dict.fromkeys(self._due, 0.0)
        self._wake.set()

    def stop(self) -> None:
        """Let `run` return."""
        self._stopped = True
        self._wake.set()

    def run(self) -> None:
        """Diagnose until stopped, starting with the incidents that were open when the last process ended."""
        diagnose = self.load()
        self._resume()
        while not self._is_over():
            wait = self.step(diagnose)
            if wait > 0:
                self._wake.wait(wait)

    def _is_over(self) -> bool:
        """Return whether to stop; the event is cleared first, or a `stop` in between would be missed."""
        self._wake.clear()
        return self._stopped

    def step(self, diagnose: Diagnose) -> float:
        """Diagnose the incident that has waited longest, if one is due; return the seconds until the next."""
        now = self._clock.wall()
        with self._lock:
            incident_id, at = min(self._due.items(), key=lambda item: item[1], default=("", now + SLOW_SECONDS))
            if now < at <= now + SLOW_SECONDS:  # nothing is planned further ahead: otherwise the clock was set back
                return at - now
            # Removed before the work, so that a poke during it is not lost.
            del self._due[incident_id]
        try:
            again = self._diagnose(diagnose, incident_id)
        except Exception:  # noqa: BLE001 - a diagnosis that cannot be made must not end all others
            _log.exception("diagnosis: incident %s", incident_id)
            self._metrics.diagnoses.labels("error").inc()
            again = SLOW_SECONDS
        if again is not None:
            with self._lock:
                self._due.setdefault(incident_id, self._clock.wall() + again)
        return 0.0

    def _resume(self) -> None:
        try:
            with self._store.transaction() as tx:
                opened = [one for one in tx.recent_incidents(float("inf")) if one.wants_diagnosis or asks_for_use(one)]
        except StoreError as error:
            _log.error("diagnosis: %s", error)
            return
        with self._lock:
            for incident in opened:
                self._due.setdefault(incident.id, 0.0)

    def _diagnose(self, diagnose: Diagnose, incident_id: str) -> float | None:
        """Diagnose one incident; return the seconds until it is due again, None if it is over."""
        now = self._clock.wall()
        with self._store.transaction() as tx:
            incident = tx.incident(incident_id)
            others = tx.recent_incidents(now - RECENT_SECONDS)
        if incident is not None and asks_for_use(incident):
            return self._look_at_use(incident, now)
        if incident is None or not incident.wants_diagnosis:  # its run may have left it
            return None
        result = diagnose(self._prometheus, incident, others, now)
        if not incident.firing:
            self._close(incident_id, result)
            return None
        self._metrics.diagnoses.labels("missing_evidence" if result.missing else "complete").inc()
        survivor = self._keep(incident_id, result)
        if survivor != incident_id:
            self.poke(survivor)
            return None
        if incident.diagnosis is None:
            return THOROUGH_SECONDS
        return FAST_SECONDS if now - incident.received_at < FAST_FOR_SECONDS else SLOW_SECONDS

    def _look_at_use(self, incident: Incident, now: float) -> float:
        """Find out who uses the sick part; return the seconds until it is asked again."""
        use = use_of(self._prometheus, incident, now)
        with self._store.transaction() as tx:
            current = tx.incident(incident.id)
            if current is not None and asks_for_use(current):
                use = held_up_by_another(current, use, lambda: tx.recent_incidents(float("inf")), self.topology())
                if use != current.use:
                    used = replace(current, use=use)
                    tx.save_incident(used, now)
                    if current.is_posted:
                        tx.outbox.refresh(current.id, now, WORDS_SECONDS if current.use else 0.0)
                        self._reply_if_worse(tx, current, used, now)
                # Not before its effect may have arrived, which it would become a pointer to.
                tx.outbox.hasten(current.id, max(now, current.received_at + SETTLE_SECONDS))
        self._changed()
        return SLOW_SECONDS

    def _reply_if_worse(self, tx: Transaction, before: Incident, now_is: Incident, now: float) -> None:
        """Reply in the thread that the harm has risen: an edit pings nobody."""
        if rank(urgency(now_is)) > rank(urgency(before)) and tx.outbox.is_posted(now_is.id):
            reply_in_channel(tx, now_is, "worse", self._replies, self.routing, now=now)

    def _keep(self, incident_id: str, result: Diagnosis) -> str:
        """Store the result if it is news; return the id of the incident that remains.

        The incident may have changed or ended meanwhile. If a firing incident turns out to be the cause, the two are
        merged.
        """
        now = self._clock.wall()
        with self._store.transaction() as tx:
            incident = tx.incident(incident_id)
            if incident is None or not incident.firing:
                return incident_id
            combined = replace(merge_diagnoses(incident.diagnosis, result), strangers=())
            strangers = self._unrelated(incident_id, result, now) - self._inside(incident, combined)
            if keys := unrelated_keys(incident, strangers):
                split_off(tx, replace(incident, diagnosis=combined), keys, self._replies, self.routing, now=now)
                self._changed()
                return incident_id
            end = died_by(incident)
            others = [other for other in tx.recent_incidents(float("inf")) if not is_later(other, end)]
            causes = explained_by(incident, combined, others, self.topology())
            if causes:
                change = merge_incidents(tx, [replace(incident, diagnosis=combined), *causes], "", now)
                tx.save_incident(change.incident, now)
                announce(tx, change, self._replies, self.routing, now=now, not_before=now)
                incident_id = change.incident.id
            else:
                self._note(tx, incident, combined, now)
            tx.outbox.hasten(incident_id, now)
        self._changed()
        return incident_id

    def _note(self, tx: Transaction, incident: Incident, diagnosis: Diagnosis, now: float) -> None:
        """Store the diagnosis, and request an edit if it is news; any other edit shows the newest numbers anyway."""
        before, news = incident.diagnosis, is_news(incident.diagnosis, diagnosis)
        saved = replace(incident, diagnosis=published(before, diagnosis, news=news))
        tx.save_incident(saved, now)
        if news and incident.is_posted:
            tx.outbox.refresh(incident.id, now, edit_spacing(before, diagnosis, now - incident.received_at))
        revised = diagnosis.revision and (before is None or before.revision != diagnosis.revision)
        if revised and incident.is_posted and tx.outbox.is_posted(incident.id):
            reply_in_channel(tx, saved, "revised", self._replies, self.routing, now=now)
        self._reply_if_worse(tx, incident, saved, now)

    def _inside(self, incident: Incident, diagnosis: Diagnosis) -> set[str]:
        """Return the alerts inside the place of the first cause: a hot rack's, also where the run has no GPU."""
        first = next((cause.labels for cause in diagnosis.causes if cause.labels), None)
        roster = diagnosis.roster
        located = [(one, self.topology().located(one.labels, incident.cluster, roster)) for one in incident.members]
        return {one.fingerprint for one, labels in located if first and is_within(labels, place_of(first))}

    def _unrelated(self, incident_id: str, result: Diagnosis, now: float) -> set[str]:
        """Return the alerts that have been unrelated to the run for long enough."""
        mine = {(incident_id, fingerprint) for fingerprint in result.strangers}
        others = {one: since for one, since in self._unrelated_since.items() if one[0] != incident_id or one in mine}
        self._unrelated_since = dict.fromkeys(mine, now) | others
        return {one[1] for one in mine if now - self._unrelated_since[one] >= UNRELATED_SECONDS}

    def _close(self, incident_id: str, result: Diagnosis) -> None:
        """Store the final cost of an incident that is over."""
        now = self._clock.wall()
        with self._store.transaction() as tx:
            incident = tx.incident(incident_id)
            if incident is None or incident.firing or incident.diagnosis is None:
                return
            final = replace(incident.diagnosis, cost=result.cost)
            if final != incident.diagnosis:
                tx.save_incident(replace(incident, diagnosis=final), now)
                if incident.is_posted:
                    tx.outbox.refresh(incident_id, now, 0.0)
        self._changed()


def merge_diagnoses(before: Diagnosis | None, now: Diagnosis) -> Diagnosis:
    """Combine the diagnosis that the message shows with a new one, which was made from its facts.

    Only what is shown beside the causes is carried on: the curve of the drop outlives it, since an alert is held for a
    while after its end, and the cost counts on.
    """
    if before is None:
        return replace(now, slowest=now.slower)
    known = now.shape is not None and now.shape.is_known
    shape = now.shape if known or before.shape is None else before.shape
    known_shares = [share for share in (before.slowest, now.slower) if share is not None]
    return replace(
        now,
        shape=shape,
        cost=now.cost or before.cost,
        curve=now.curve or before.curve,
        slowest=max(known_shares, default=None),
    )


def is_news(before: Diagnosis | None, now: Diagnosis) -> bool:
    """Return whether a reader would decide otherwise: another cause, confidence or gap; rarely for other numbers."""
    if before is None or before.signature() != now.signature():
        return True
    if _moved(before, now):
        return True
    changed = (before.causes, before.cost, before.curve) != (now.causes, now.cost, now.curve)
    return (changed or before.at > _published_at(before)) and now.at - _published_at(before) >= NUMBERS_SECONDS


def published(before: Diagnosis | None, now: Diagnosis, *, news: bool) -> Diagnosis:
    """Return the diagnosis with when the card last showed it, and with which numbers."""
    if news or before is None:
        return replace(now, told_at=now.at, told=_numbers(now))
    return replace(now, told_at=_published_at(before), told=before.told)


def _numbers(diagnosis: Diagnosis) -> tuple[float, float]:
    """Return the numbers of a card's first lines: the share that is lost now, and the GPU-hours lost."""
    return diagnosis.slower or 0.0, diagnosis.cost.gpu_hours if diagnosis.cost is not None else 0.0


def _moved(before: Diagnosis, now: Diagnosis) -> bool:
    """Return whether the card's numbers are no longer true: the drop by five points, a first or twice the cost."""
    (slower, hours), (slower_now, hours_now) = before.told, _numbers(now)
    first = hours < LEAST_GPU_HOURS <= hours_now
    return abs(slower_now - slower) >= MOVED_SHARE or first or hours_now >= max(2 * hours, MOVED_GPU_HOURS)


def edit_spacing(before: Diagnosis | None, now: Diagnosis, age: float) -> float:
    """Return how long after the last call on a message of this age (seconds) news may be shown.

    At once where another part or trouble is blamed.
    """
    if before is None or before.lead != now.lead:
        return 0.0
    if before.causes[:1] and before.causes[0].cause != now.causes[0].cause:
        return WORDS_SECONDS
    return min(max(age, WORDS_SECONDS), DETAILS_SECONDS) if _moved(before, now) else DETAILS_SECONDS


def _published_at(diagnosis: Diagnosis) -> float:
    return diagnosis.at if diagnosis.told_at is None else diagnosis.told_at
