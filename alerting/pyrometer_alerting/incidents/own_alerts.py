"""Alerts that the service raises about itself and about the path by which alerts reach it."""

from __future__ import annotations

from collections.abc import Mapping

from pyrometer_alerting.model.incident import Alert
from pyrometer_alerting.model.text import utc

_PREFIX = "pyrometer-"
PATH_DEAD = "AlertPathDead"
WATCHDOG_RARE = "WatchdogRare"
MISSED = "AlertsMissed"
OVERSIZED = "DeliveryOversized"
LOST = "StateLost"


def is_own(fingerprint: str) -> bool:
    """Return whether the service itself raised this alert."""
    return fingerprint.startswith(_PREFIX)


def own_alert(
    name: str,
    summary: str,
    description: str,
    *,
    severity: str,
    starts_at: float,
    ends_at: float | None = None,
    **labels: str,
) -> Alert:
    """Build one of the service's own alerts; it fires unless it has an end."""
    all_labels = {"alertname": name, "severity": severity, "component": "stack", **labels}
    return Alert(
        fingerprint=_PREFIX + "-".join([name, *labels.values()]),
        firing=ends_at is None,
        labels=all_labels,
        annotations={"summary": summary, "description": description, "runbook": f"docs/alertmanager.md#{name.lower()}"},
        starts_at=starts_at,
        ends_at=ends_at,
    )


def rare_watchdog(
    cluster: str, last_seen: float, now: float, *, obstacle: str = "", ends_at: float | None = None
) -> Alert:
    """Build the alert for a heartbeat that Alertmanager has, and sends too rarely or, by an `obstacle`, not here."""
    whose = f" of {cluster}" if cluster else ""
    lost = "and does not send it here" if obstacle else "and repeats it too rarely"
    why = obstacle or (
        "its route repeats it too rarely. Give it a route of its own with repeat_interval: 1m and group_interval: 1m"
    )
    return own_alert(
        WATCHDOG_RARE,
        f"Alertmanager has the Watchdog{whose} {lost}",
        f"{why[0].upper()}{why[1:]}. It last arrived {now - last_seen:.0f} s ago; a broken path is noticed only by"
        " asking Alertmanager, every half minute.",
        severity="warning",
        starts_at=last_seen,
        ends_at=ends_at,
        **({"cluster": cluster} if cluster else {}),
    )


def path_dead(
    cluster: str,
    last_seen: float,
    now: float,
    silent: tuple[str, ...],
    *,
    obstacle: str = "",
    ends_at: float | None = None,
) -> Alert:
    """Build the alert for a missing heartbeat: no other alert of that cluster can be trusted to arrive."""
    who = f"{' and '.join(silent)} did not answer when asked." if silent else "All of those that were asked answered."
    why = f" Alertmanager has it: {obstacle}." if obstacle else ""
    return own_alert(
        PATH_DEAD,
        f"Alerts{f' of {cluster}' if cluster else ''} may not arrive: the Watchdog heartbeat has stopped",
        f"The Watchdog alert, which always fires, last arrived {now - last_seen:.0f} s ago. Prometheus,"
        f" Alertmanager or the connection between them is broken. {who}{why}",
        severity="critical",
        starts_at=last_seen,
        ends_at=ends_at,
        **({"cluster": cluster} if cluster else {}),
    )


def missed(alerts: Mapping[str, tuple[float, float]], since: float, until: float, *, outage: str) -> Alert:
    """Build the alert for alerts that fired and ended undelivered; `alerts` maps a line to its (start, end)."""
    lines = sorted(alerts, key=lambda line: alerts[line][0])
    description = "; ".join(lines[:10]) + (f"; and {len(lines) - 10} more" if len(lines) > 10 else "")
    why = f" while {outage}" if outage else ", too short for a notification"
    return own_alert(
        MISSED,
        f"{len(alerts)} alert{'s' if len(alerts) != 1 else ''} fired and ended undelivered{why}",
        description,
        severity="warning" if outage else "info",
        starts_at=since,
        ends_at=until,
        window=str(int(since)),
    )


def oversized(limit: str, now: float) -> Alert:
    """Build the alert for a delivery that was too large."""
    return own_alert(
        OVERSIZED,
        "A delivery was too large: its alerts are not shown here",
        f"Alertmanager sent more than {limit} at once. Look in Alertmanager for the rest.",
        severity="warning",
        starts_at=now,
    )


def state_lost(why: str, kept: str, since: float, taken: int | None, now: float) -> Alert:
    """Build the alert for a lost database; `taken` alerts were taken from Alertmanager, None if it was silent."""
    asked = (
        "Alertmanager does not answer; all alerts firing there are read when it does."
        if taken is None
        else f"{taken} alert{'s' if taken != 1 else ''} that are firing were read from Alertmanager."
    )
    when = f" Changes after {utc(since)} may be missing." if since else " Everything that it knew may be missing."
    return own_alert(
        LOST,
        "The alerting service lost some of what it knew: older messages may stay as they are",
        f"At {utc(now)}: {why}{f'; {kept}' if kept else ''}.{when} {asked} What fires may have a second message; older"
        " messages, acknowledgements and replies that the database no longer has are not edited any more.",
        severity="warning",
        starts_at=now,
        ends_at=now,
        at=str(int(now)),
    )
