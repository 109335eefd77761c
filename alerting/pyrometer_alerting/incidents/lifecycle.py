"""The life of an incident as pure functions: which alerts belong together, what a delivery changes, what is news."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyrometer_alerting.model.alert_names import AT_ONCE, RUN_SYMPTOMS
from pyrometer_alerting.model.harm import rank, severity_of
from pyrometer_alerting.model.incident import Alert, Diagnosis, Incident

# A key that fires again this soon after its resolve is the same trouble: flapping belongs into one message.
REOPEN_SECONDS = 30 * 60
MAX_EPISODES = 20
# Limits an incident that never ends while its alerts come and go (pods, jobs). Those that ended within REOPEN_SECONDS
# of the last one are kept besides: of 16,384 GPUs that recover together the message counts all.
MAX_ENDED_MEMBERS = 1000
# For this long after a resolve a lagging Alertmanager peer may repeat the firing (each waits 15 s for the one before
# it). Later the firing is true: Alertmanager itself resolves an alert that Prometheus could not confirm for 4 minutes,
# and after reconnecting the alert arrives with its original start.
LAGGING_SECONDS = 60.0


@dataclass(frozen=True)
class Change:
    """Hold the result of a delivery for an incident.

    The events are opened, reopened, resumed, worse, worse_again (as bad as it was in an earlier episode), grown (by an
    alert that it did not have), refired (one that it had), news (a death, a hang or a loss), again (a run is slow once
    more) and resolved.
    """

    incident: Incident
    events: tuple[str, ...] = ()


def key_of(alert: Alert) -> str:
    """Return cluster, name and run with its job (else node), unambiguous as names may hold any character."""
    job_id = alert.labels.get("job_id") if alert.labels.get("run") else ""
    return f"{named_key_of(alert)}\x1f{job_id}" if job_id else named_key_of(alert)


def named_key_of(alert: Alert) -> str:
    """Return the key without the job: that of a run whose job no series says, as until 0.2.0."""
    run = alert.labels.get("run")
    name = "slow run" if run and alert.name in RUN_SYMPTOMS else alert.name
    kinds = ("run", "node", "switch", "rail")
    kind = next((kind for kind in kinds if alert.labels.get(kind)), "node")
    place = alert.labels.get(kind, "")
    return "\x1f".join((alert.labels.get("cluster", ""), name, kind, place))


def goes_on(incident: Incident, alert: Alert) -> bool:
    """Return whether an incident of a run of the alert's name, which has not the alert's key, goes on with the alert.

    It is of the same job as far as both say it; or of an earlier job of the same user, of which nothing fires any more.
    """
    job_id, user = alert.labels.get("job_id", ""), alert.user
    of_run = [member for member in incident.members if member.labels.get("run") == alert.labels.get("run")]
    others = [member for member in of_run if job_id and member.labels.get("job_id", job_id) != job_id]
    if not others:
        return True
    return bool(user) and not any(member.firing or member.user != user for member in others)


def is_stale(alert: Alert, known: Alert | None, heard: float) -> bool:
    """Return whether a lagging peer repeats the past: a firing of an ended episode, or the resolve of an earlier one.

    `heard` is how many seconds ago `known` arrived.
    """
    if known is None:
        return False
    if known.firing:
        return alert.ends_at is not None and alert.ends_at < known.starts_at
    return alert.firing and _had_not_ended(alert, known) and heard < LAGGING_SECONDS


def _not_in_future(alert: Alert, now: float) -> Alert:
    """Return the alert with no time after `now`: whoever sent it may have another clock, or claim what it likes."""
    ends_at = alert.ends_at if alert.ends_at is None else min(alert.ends_at, now)
    if alert.starts_at <= now and ends_at == alert.ends_at:
        return alert
    return replace(alert, starts_at=min(alert.starts_at, now), ends_at=ends_at)


def _had_not_ended(alert: Alert, known: Alert) -> bool:
    return known.ends_at is not None and alert.starts_at <= known.ends_at


def fold(latest: Incident | None, alerts: Sequence[Alert], truncated: int, now: float) -> Change | None:
    """Apply one delivery's alerts of one key, without stale ones, to the latest incident of that key.

    Returns None if nothing changed: a resolve of an alert that was never seen.
    """
    alerts = [_not_in_future(alert, now) for alert in alerts]
    firing = [alert for alert in alerts if alert.firing]
    if latest is None or (not latest.firing and firing and not _reopens(latest, firing)):
        return _open(alerts, truncated, now) if firing else None
    members = _merged(latest.members, alerts)
    if not latest.firing:
        return _reopen(latest, members, firing, now) if firing else Change(replace(latest, members=members))
    return _continue(latest, members, truncated, now)


def _reopens(latest: Incident, firing: Iterable[Alert]) -> bool:
    return min(alert.starts_at for alert in firing) <= (latest.resolved_at or 0.0) + REOPEN_SECONDS


def _open(alerts: Sequence[Alert], truncated: int, now: float) -> Change:
    speaking = next(alert for alert in alerts if alert.firing)
    incident = Incident(
        id=uuid.uuid4().hex,
        key=key_of(speaking),
        cluster=speaking.labels.get("cluster", ""),
        alertname=speaking.name,
        run=speaking.labels.get("run", ""),
        severity=worst(alerts),
        component=speaking.labels.get("component", ""),
        received_at=now,
        started_at=min(alert.starts_at for alert in alerts if alert.firing),
        members=tuple(alerts),
        truncated=truncated,
    )
    return Change(incident, ("opened",))


def _reopen(latest: Incident, members: tuple[Alert, ...], firing: Sequence[Alert], now: float) -> Change:
    before = {alert.fingerprint: alert for alert in latest.members}
    if any(alert.fingerprint in before and _had_not_ended(alert, before[alert.fingerprint]) for alert in firing):
        resumed = replace(latest, received_at=now, resolved_at=None, members=members)
        return Change(resumed, ("resumed",))
    ended = (latest.started_at, latest.resolved_at or latest.started_at)
    incident = replace(
        latest,
        received_at=now,
        started_at=min(alert.starts_at for alert in firing),
        resolved_at=None,
        episodes=(*latest.episodes, ended)[-MAX_EPISODES:],
        members=members,
        severity=worst([*firing]),
        diagnosis=_carried_on(latest.diagnosis, latest.resolved_at),
        acknowledged="",  # an acknowledgement of the last episode does not cover this one
        note="",
    )
    return Change(incident, ("reopened",))


def _continue(latest: Incident, members: tuple[Alert, ...], truncated: int, now: float) -> Change:
    firing = [alert for alert in members if alert.firing]
    if not firing:
        ended = min(max((alert.ends_at or now for alert in members), default=now), now)
        return Change(replace(latest, members=members, resolved_at=ended), ("resolved",))
    severity = max(latest.severity, worst(firing), key=rank)
    incident = replace(latest, members=members, severity=severity, truncated=truncated)
    events = []
    if rank(severity) > rank(latest.severity):
        events.append("worse_again" if _was_as_bad(latest, firing, severity) else "worse")
    if len(firing) > sum(alert.firing for alert in latest.members):
        known = {alert.fingerprint for alert in latest.members}
        events.append("refired" if all(alert.fingerprint in known for alert in firing) else "grown")
    if tells_at_once(firing, latest.members):
        events.append("news")
    if _drops_again(latest, firing):
        over = max((alert.ends_at or now for alert in _symptoms(latest).values()), default=now)
        incident = replace(incident, diagnosis=_carried_on(latest.diagnosis, over))
        events.append("again")
    return Change(incident, tuple(events))


def _carried_on(diagnosis: Diagnosis | None, over: float | None) -> Diagnosis | None:
    """Return the diagnosis of an episode that is over, for the next one: its facts stay, and the drop is another one.

    The cause of the first drop must explain the second: what ended with the first speaks against itself then.
    """
    if diagnosis is None:
        return None
    recovered = over if diagnosis.recovered is None else diagnosis.recovered
    return replace(diagnosis, onset=None, recovered=recovered, revision="", shape=None, slower=None, slowest=None)


def _was_as_bad(latest: Incident, firing: Iterable[Alert], severity: str) -> bool:
    """Return whether the very alerts that are so severe now were so shortly before this episode, and were told then."""
    ended = {alert.fingerprint: alert.ends_at for alert in latest.members if not alert.firing}
    return all(
        (ended.get(alert.fingerprint) or 0.0) >= latest.started_at - REOPEN_SECONDS
        for alert in firing
        if severity_of(alert) == severity
    )


def _drops_again(latest: Incident, firing: Iterable[Alert]) -> bool:
    """Return whether the run is slow again in an incident that only its cause kept open.

    An alert that a lagging peer still reports, with its old start, is the same drop: evidence of now would not show it.
    """
    symptoms = _symptoms(latest)
    if not symptoms or any(alert.firing for alert in symptoms.values()):
        return False
    slow = [alert for alert in firing if alert.name in RUN_SYMPTOMS and alert.labels.get("run")]
    return any(
        alert.fingerprint not in symptoms or not _had_not_ended(alert, symptoms[alert.fingerprint]) for alert in slow
    )


def tells_at_once(now: Iterable[Alert], before: Iterable[Alert]) -> bool:
    """Return whether a death, a hang or a loss fires of a kind that did not fire before."""
    kinds, known = ({AT_ONCE.get(alert.name, "") for alert in some if alert.firing} for some in (now, before))
    return bool(kinds - known - {""})


def _symptoms(incident: Incident) -> dict[str, Alert]:
    """Return the run's own alerts by fingerprint."""
    own = (alert for alert in incident.members if alert.name in RUN_SYMPTOMS and alert.labels.get("run"))
    return {alert.fingerprint: alert for alert in own}


def _merged(before: Sequence[Alert], alerts: Sequence[Alert]) -> tuple[Alert, ...]:
    """Merge members by fingerprint: new states replace known ones, absent members stay (absent is not resolved)."""
    members = {alert.fingerprint: alert for alert in before}
    for alert in alerts:
        known = members.get(alert.fingerprint)
        if known is not None and known.labels != alert.labels and is_fingerprint(known.fingerprint, known.labels):
            continue  # somebody gives another alert its name
        # A Prometheus restart moves startsAt while the alert keeps firing, and anybody may claim an earlier one: the
        # first time is the true one.
        same = known is not None and known.firing and alert.firing
        starts_at = known.starts_at if known is not None and same else alert.starts_at
        # A resolve carries the last value above the threshold or one held after it, which would turn a drop of 40 %
        # into one of 16 %. The annotations from while it fired are the true ones.
        ended = known is not None and known.firing and not alert.firing
        annotations = known.annotations if known is not None and ended else alert.annotations
        members[alert.fingerprint] = replace(alert, starts_at=starts_at, annotations=annotations)
    for alert in _long_over(members.values()):
        del members[alert.fingerprint]
    return tuple(members.values())


def is_fingerprint(fingerprint: str, labels: Mapping[str, str]) -> bool:
    """Return whether Alertmanager gives this fingerprint to these labels (FNV-1a of model.LabelSet)."""
    number = 0xCBF29CE484222325
    for byte in b"".join(b"%s\xff%s\xff" % (name.encode(), labels[name].encode()) for name in sorted(labels)):
        number = (number ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return fingerprint == f"{number:016x}"


def _long_over(members: Iterable[Alert]) -> list[Alert]:
    """Return the members to drop: more than the limit, and ended long before the last one."""
    over = sorted((alert for alert in members if not alert.firing), key=_ended)
    return [alert for alert in over[:-MAX_ENDED_MEMBERS] if _ended(alert) < _ended(over[-1]) - REOPEN_SECONDS]


def _ended(alert: Alert) -> float:
    return alert.ends_at or 0.0


def worst(alerts: Iterable[Alert]) -> str:
    """Return the highest severity; an unknown one counts as a warning rather than being dropped."""
    return max((severity_of(alert) for alert in alerts), key=rank, default="warning")
