"""Store deliveries, one transaction each, and decide when the change of an incident is posted.

Important changes are told at once; replies of no urgency keep within the incident's limit of what pings.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyrometer_alerting.incidents.alertmanager_payload import Delivery
from pyrometer_alerting.incidents.correlation import Group, explained_already, groups, widened_to_node
from pyrometer_alerting.incidents.lifecycle import REOPEN_SECONDS, Change, fold, goes_on, is_stale, key_of, named_key_of
from pyrometer_alerting.incidents.membership import merge_incidents, separate_keys, without_keys
from pyrometer_alerting.incidents.metrics import Metrics
from pyrometer_alerting.incidents.storage.store import Store, Transaction
from pyrometer_alerting.model.alert_names import RUN_SYMPTOMS, WATCHDOG, is_cause, is_signal, may_explain
from pyrometer_alerting.model.harm import asks_for_use, urgency
from pyrometer_alerting.model.incident import Alert, Incident
from pyrometer_alerting.model.message import Replies
from pyrometer_alerting.model.places import Topology
from pyrometer_alerting.model.routing import Routing
from pyrometer_kit.clock import Clock

# Effect and cause arrive in different groups, mostly within 100 ms of each other, and so do most first diagnoses. A
# message that pings once should name the culprit when it does.
SETTLE_SECONDS = 0.5
# While a possible cause is open, a run's first message waits longer to find out whether they belong together; a
# possible cause waits as long while a run is in trouble. Nothing is posted and turned into a pointer a moment later.
JOIN_SECONDS = 2.0
WATCHDOG_FACT = "watchdog_last_seen"
CLUSTER_WATCHDOG = "watchdog:"  # followed by the cluster: each Prometheus has its own heartbeat
OUR_RECEIVER, OUR_ALERT = "receiver:", "heard:"
MOST_CLUSTERS, MOST_RECEIVERS, MOST_NAMES = 100, 50, 2_000  # anybody may post others


@dataclass
class Outcome:
    """The result of a delivery: incidents to diagnose now, whether a cause arrived, whether alerts were parked.

    `has_opened` says that there is something of which nobody has heard yet.
    """

    diagnose: list[str] = field(default_factory=list)
    cause_arrived: bool = False
    has_parked: bool = False
    has_opened: bool = False


class Intake:
    """Applies deliveries; `topology` is replaced once it is known."""

    def __init__(self, store: Store, *, replies: Replies, clock: Clock, metrics: Metrics, diagnoses: bool) -> None:
        self._store, self._replies, self._clock, self._metrics = store, replies, clock, metrics
        self._diagnoses = diagnoses
        self.topology = Topology()
        self.routing = Routing()
        self.asks_of_ends = False
        """Whether somebody can be asked: an end then counts once Alertmanager no longer has the alert."""

    def apply(self, delivery: Delivery, received_at: float | None = None) -> Outcome:
        """Store everything in the delivery, atomically; it arrived now, or at `received_at`.

        Raises:
            StoreError: none of it was stored.
        """
        now = self._clock.wall() if received_at is None else received_at
        outcome = Outcome()
        counts = {"applied": 0, "stale": 0, "repeated": 0, "asked": 0}
        with self._store.transaction() as tx:
            self._note_watchdog(tx, delivery, now)
            self._note_receiver(tx, delivery, now)
            if tx.is_repeated(delivery.group, delivery.digest, now):
                counts["repeated"] = len(delivery.alerts)
            else:
                fresh = self._without_stale(tx, delivery, counts, now)
                self.fold(tx, fresh, delivery.truncated, now, outcome)
        for name, count in counts.items():
            self._metrics.alerts.labels(name).inc(count)
        outcome.has_parked = counts["stale"] + counts["asked"] > 0
        return outcome

    def fold(self, tx: Transaction, alerts: Sequence[Alert], truncated: int, now: float, outcome: Outcome) -> None:
        """Update the incidents of these alerts, merge those that belong together, and announce the changes."""
        changes = []
        for incident, members in self._by_incident(tx, alerts, now):
            change = self._routed(fold(incident, members, truncated, now))
            tx.save_alerts(members, change.incident.id if change is not None else None, now)
            if change is not None and change.incident != incident:
                changes.append(change)
        changes = self._joined(tx, changes, now)
        for change in changes:
            tx.save_incident(change.incident, now)
        opened = _Opened(tx)
        for change in changes:
            told = change.incident.firing and change.incident.is_posted and not change.incident.joined_into
            outcome.has_opened |= told and not tx.outbox.is_posted(change.incident.id)
            not_before = now + self._first_wait(tx, change, opened)
            announce(tx, change, self._replies, self.routing, now=now, not_before=not_before)
            if (change.incident.firing and change.incident.wants_diagnosis) or asks_for_use(change.incident):
                outcome.diagnose.append(change.incident.id)
        outcome.cause_arrived |= any(is_cause(alert) and alert.firing for alert in alerts)

    def _routed(self, change: Change | None) -> Change | None:
        """Choose a new incident's channel, once: a message cannot move."""
        if change is None:
            return None
        incident = widened_to_node(change.incident)
        if "opened" in change.events:
            incident = replace(incident, channel=self.routing.channel(incident.newest()))
        return replace(change, incident=incident)

    def _note_watchdog(self, tx: Transaction, delivery: Delivery, now: float) -> None:
        clusters = {
            alert.labels.get("cluster", "") for alert in delivery.alerts if alert.name == WATCHDOG and alert.firing
        }
        if clusters:
            tx.save_fact(WATCHDOG_FACT, repr(now))
            tx.hear(CLUSTER_WATCHDOG, clusters, now, MOST_CLUSTERS)

    def _note_receiver(self, tx: Transaction, delivery: Delivery, now: float) -> None:
        """Note receiver and alert names as ours: the same Alertmanager may also serve others."""
        tx.hear(OUR_RECEIVER, [delivery.receiver], now, MOST_RECEIVERS)
        tx.hear(OUR_ALERT, {alert.name for alert in delivery.alerts}, now, MOST_NAMES)

    def _without_stale(self, tx: Transaction, delivery: Delivery, counts: dict[str, int], now: float) -> list[Alert]:
        fresh = []
        known_alerts = tx.known_alerts([alert.fingerprint for alert in delivery.alerts])
        for alert in delivery.alerts:
            if is_signal(alert.labels):
                continue
            known, seen_at = known_alerts.get(alert.fingerprint, (None, 0.0))
            if is_stale(alert, known, now - seen_at):
                counts["stale"] += 1
                if alert.firing or self.asks_of_ends:
                    tx.park_alert(alert)
                continue
            if self.asks_of_ends and known is not None and known.firing and not alert.firing:
                counts["asked"] += 1  # anybody may post that it is over
                tx.park_alert(alert)
                continue
            counts["applied"] += 1
            fresh.append(alert)
        return fresh

    def _by_incident(
        self, tx: Transaction, alerts: Sequence[Alert], now: float
    ) -> list[tuple[Incident | None, list[Alert]]]:
        """Group the alerts by incident: that of their key, else the one they are members of."""
        by_key: dict[str, list[Alert]] = {}
        for alert in alerts:
            by_key.setdefault(key_of(alert), []).append(alert)
        cache: dict[str, Incident | None] = {}
        delivered: dict[str, dict[str, list[Alert]]] = {}
        for key, members in by_key.items():
            incident = _of_key(tx, key, cache)
            if incident is not None:
                delivered.setdefault(incident.id, {})[key] = members
        for home, of_incident in delivered.items():
            incident = cache[home]
            if incident is not None and (keys := separate_keys(incident, of_incident)):
                self._split_off_keys(tx, incident, keys, now)
                del cache[home]
        by_incident: dict[str, tuple[Incident | None, list[Alert]]] = {}
        runs = _Runs(tx, now)
        for key, members in by_key.items():
            incident = _of_key(tx, key, cache)
            if incident is None and (member_of := tx.incident_of_alert(members[0].fingerprint)):
                incident = _read(tx, member_of, cache)
            if incident is None and members[0].labels.get("run") and (same := runs.home_of(members[0])):
                incident = _read(tx, same, cache)
                incident = cache[same] = replace(incident, keys=(*incident.keys, key)) if incident is not None else None
            by_incident.setdefault(incident.id if incident else key, (incident, []))[1].extend(members)
        return list(by_incident.values())

    def _split_off_keys(self, tx: Transaction, incident: Incident, keys: Collection[str], now: float) -> None:
        """Remove keys whose alerts start long after their own end: they become separate incidents."""
        tx.save_incident(without_keys(incident, keys), now)
        for key in keys:
            tx.forget_key(key)
        for member in incident.members:
            if key_of(member) in keys:
                tx.move_alert(member.fingerprint, "")
        if incident.is_posted:
            tx.outbox.request(incident.id, now, now, incident.channel)

    def _joined(self, tx: Transaction, changes: list[Change], now: float) -> list[Change]:
        """Replace the changes of incidents that turn out to be the same by the change of the merged one."""
        opened = {
            change.incident.id: change
            for change in changes
            if change.incident.firing and {"opened", "reopened", "grown", "refired"} & set(change.events)
        }
        if not opened:
            return changes
        touched = {change.incident.id for change in changes}
        current = [incident for incident in tx.recent_incidents(float("inf")) if incident.id not in touched]
        others = [change.incident for change in changes if change.incident.firing and change.incident.id not in opened]
        mergers = groups([change.incident for change in opened.values()], [*current, *others], self.topology)
        absorbed = {incident.id for group in mergers for incident in group.incidents}
        # A part that a run's message blames already joins it unposted: posted, it became a pointer with the next look.
        for run in (incident for incident in current if incident.diagnosis is not None):
            single = [id_ for id_ in opened if id_ not in absorbed and "opened" in opened[id_].events]
            if causes := explained_already(run, [opened[id_].incident for id_ in single], self.topology, now):
                mergers.append(Group((run, *causes), ""))
                absorbed |= {run.id, *(cause.id for cause in causes)}
        remaining = [change for change in changes if change.incident.id not in absorbed]
        return remaining + [merge_incidents(tx, group.incidents, group.domain, now) for group in mergers]

    def _first_wait(self, tx: Transaction, change: Change, opened: _Opened) -> float:
        """Return how long the first post may wait for more of the same, and for its cause or its effect.

        That of another episode waits for its first look: until then its card blames the culprit of the last one.
        """
        incident = change.incident
        if self._diagnoses and incident.wants_diagnosis and {"reopened", "again"} & set(change.events):
            return JOIN_SECONDS
        if tx.outbox.is_posted(incident.id) or not incident.firing:
            return 0.0
        if self._diagnoses and asks_for_use(incident) and not incident.use:
            return JOIN_SECONDS
        if incident.wants_diagnosis and incident.diagnosis is None and self._diagnoses:
            return JOIN_SECONDS if incident.cluster in opened.with_causes else SETTLE_SECONDS
        if self._diagnoses and incident.cluster in opened.with_runs and any(map(may_explain, incident.members)):
            return JOIN_SECONDS  # the run's diagnosis, which now runs again, may find that it is part of its message
        return SETTLE_SECONDS


class _Opened:
    """Knows what is open in which cluster, read at most once per delivery."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    @cached_property
    def _incidents(self) -> list[Incident]:
        return self._tx.recent_incidents(float("inf"))

    @cached_property
    def with_causes(self) -> set[str]:
        """The clusters in which a possible cause of a run's slowdown is open."""
        return {one.cluster for one in self._incidents if any(map(may_explain, one.members))}

    @cached_property
    def with_runs(self) -> set[str]:
        """The clusters in which a run is in trouble."""
        return {one.cluster for one in self._incidents if one.wants_diagnosis}


class _Runs:
    """Knows the incidents of runs that an alert with another key may belong to, read at most once per delivery."""

    def __init__(self, tx: Transaction, now: float) -> None:
        self._tx, self._now = tx, now

    @cached_property
    def _recent(self) -> dict[str, list[tuple[Incident, set[str]]]]:
        """Recent incidents of runs with their members' keys, by these keys without the job."""
        by_key: dict[str, list[tuple[Incident, set[str]]]] = {}
        for incident in self._tx.recent_incidents(self._now - REOPEN_SECONDS):
            keys = {key_of(member) for member in incident.members}
            for key in {named_key_of(member) for member in incident.members} if incident.run else ():
                by_key.setdefault(key, []).append((incident, keys))
        return by_key

    def home_of(self, alert: Alert) -> str | None:
        """Return the id of the only incident that goes on with the alert."""
        key = key_of(alert)  # whoever has it in another incident has left that one
        of_name = self._recent.get(named_key_of(alert), ())
        homes = [incident.id for incident, keys in of_name if key not in keys and goes_on(incident, alert)]
        return homes[0] if len(homes) == 1 else None


def _of_key(tx: Transaction, key: str, cache: dict[str, Incident | None]) -> Incident | None:
    """Return the latest incident of a key; each is read only once."""
    home = tx.id_of_key(key)
    return None if home is None else _read(tx, home, cache)


def _read(tx: Transaction, home: str, cache: dict[str, Incident | None]) -> Incident | None:
    if home not in cache:
        cache[home] = tx.incident(home)
    return cache[home]


_BACK = frozenset({"reopened", "resumed"})
# Replies that the channel sees, and that no limit of ours holds back. `worse` also mentions people.
_SEEN = frozenset({"worse", "news"})
# All other events only edit. An edit pings nobody: these are edited in at once, whatever was edited before.
_TOLD = _BACK | _SEEN | {"worse_again", "again", "joined", "resolved"}
_REPLIED = _TOLD - {"worse_again"}
# Seconds between the last call on a message and any other edit: alerts come and go while a fault lasts. Alerts that
# join a young incident edit its message sooner: after 5, 15, 45 s and so on; the cause of a run's incident is edited in
# at once, by the diagnosis.
MEMBERS_SECONDS, LEAST_GROWN_SECONDS = 300.0, 5.0
# The cause of a slow run fires before the run's own alert does: when both are back they are posted together.
RUN_FOLLOWS_SECONDS = 30.0


def announce(
    tx: Transaction, change: Change, replies: Replies, routing: Routing, *, now: float, not_before: float
) -> None:
    """Have the message posted or edited, and add a reply for events that deserve one."""
    incident, events = change.incident, set(change.events)
    if not incident.is_posted:
        return
    if "opened" in events or not tx.outbox.is_posted(incident.id):
        tx.outbox.request(incident.id, now, not_before, incident.channel)
    elif _TOLD & events:
        tx.outbox.request(incident.id, now, max(not_before, _with_its_run(change, now)), incident.channel)
    else:
        spreads = "grown" in events and not incident.wants_diagnosis
        age = 2 * max(now - incident.received_at, 0.0)
        spacing = min(max(age, LEAST_GROWN_SECONDS), MEMBERS_SECONDS) if spreads else MEMBERS_SECONDS
        tx.outbox.refresh(incident.id, now, spacing, incident.channel)
    _reply(tx, change, replies, routing, now)


def _reply(tx: Transaction, change: Change, replies: Replies, routing: Routing, now: float) -> None:
    """Add the reply for the last event that deserves one; only a reply, not an edit, pings people when it worsened."""
    incident = change.incident
    told = [event for event in change.events if event in _REPLIED]
    if urgency(incident) != incident.severity:  # a worse alert is no news where it does no more harm
        told = [event for event in told if event != "worse"]
    if not told:
        return
    if _BACK & set(told) and tx.outbox.drop_waiting(incident.id):
        return  # its end was not told: there is nothing to take back
    event = "worse" if "worse" in told else told[-1]
    if _SEEN & set(told):
        reply_in_channel(tx, incident, event, replies, routing, now=now)
        return
    # The thread keeps the diagnosis of each episode, which the message shows only until the next one.
    message = replies.event(routing.redacted(incident), event)
    message = replace(message, kept="resolved" in told and _is_judged(incident))
    if event == "joined" and tx.outbox.tells(incident.id):
        return  # what the channel is about to see says that it is worse, and the card with what it is one
    at = max(tx.outbox.free_at(incident.id, now), _with_its_run(change, now))
    tx.outbox.reply(incident.id, message.stored, now, at)


def reply_in_channel(
    tx: Transaction, incident: Incident, event: str, replies: Replies, routing: Routing, *, now: float
) -> None:
    """Add a reply at once that the channel sees too and no newer one replaces; that it is worse mentions people."""
    message = replies.event(routing.redacted(incident), event)
    message = routing.with_mentions(message, incident) if event == "worse" else message
    tx.outbox.reply(incident.id, replace(message, broadcast=True, kept=True).stored, now)


def _is_judged(incident: Incident) -> bool:
    """Return whether a diagnosis names a cause."""
    return incident.diagnosis is not None and incident.diagnosis.names_cause


def _with_its_run(change: Change, now: float) -> float:
    """Return when to report it: later where a run's incident is back and its run is not yet slow again."""
    incident: Incident = change.incident
    slow = any(alert.firing and alert.name in RUN_SYMPTOMS for alert in incident.members)
    waits = "reopened" in change.events and incident.run and not slow and not _SEEN & set(change.events)
    return now + RUN_FOLLOWS_SECONDS if waits else now
