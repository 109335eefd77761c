"""The gauges that are read from the store at each scrape, which only the leader serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyrometer_alerting.app.trouble import given_up
from pyrometer_alerting.channel.courier import Courier
from pyrometer_alerting.channel.outlets.courier import OutletCouriers
from pyrometer_alerting.incidents.intake import WATCHDOG_FACT
from pyrometer_alerting.incidents.metrics import (
    GIVEN_UP,
    INCIDENT,
    INCIDENT_LOST,
    PAGE,
    POLICY_ACTIONS,
    POLICY_HELD,
    POLICY_LOOKED,
    POLICY_MODE,
    POLICY_NODE,
)
from pyrometer_alerting.incidents.storage.actions import Actions
from pyrometer_alerting.incidents.storage.engine import Engine
from pyrometer_alerting.incidents.storage.store import Transaction
from pyrometer_alerting.model import text
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.incident import SEVERITIES, Incident
from pyrometer_alerting.policy.worker import PolicyWorker

Gauge = dict[tuple[tuple[str, str], ...], float]
Gauges = dict[str, Gauge]


def leader_gauge(engine: Engine) -> Gauge:
    """Return whether this process leads, and which database the services share that it leads among."""
    storage = engine.name if engine.folder is None else "sqlite"
    return {(("storage", storage),): float(engine.leads())}


def store_gauges(
    tx: Transaction, courier: Courier, outlets: OutletCouriers, policy: PolicyWorker, *, page_url: str, now: float
) -> Gauges:
    """Return incidents, outbox, outlets, policy and heartbeat as gauges."""
    depth, oldest, dead = tx.outbox.depth()
    watchdog = tx.fact(WATCHDOG_FACT)
    gauges: Gauges = (
        incident_gauges(tx.recent_incidents(float("inf")), page_url)
        | outlets.gauges(tx, now)
        | policy_gauges(policy, tx.actions)
        | {
            "pyrometer_alerting_incidents_open": {
                (("severity", name),): count for name, count in tx.firing_count().items()
            },
            "pyrometer_alerting_outbox_depth": {(): depth},
            "pyrometer_alerting_outbox_oldest_age_seconds": {(): max(now - oldest, 0.0) if oldest is not None else 0.0},
            "pyrometer_alerting_outbox_dead": {(): dead},
            "pyrometer_alerting_slack_blocked": {(("reason", courier.blocked),): float(bool(courier.blocked))},
        }
    )
    if refused := given_up(tx, courier.channel, now)[:MOST_INCIDENTS]:
        gauges[GIVEN_UP.name] = {_key(GIVEN_UP.labels, one._asdict()): 1.0 for one in refused}
    if parked := courier.parked:
        gauges["pyrometer_alerting_channel_unreachable"] = {
            (("channel", channel), ("reason", why)): 1.0 for channel, why in parked.items()
        }
    if watchdog is not None:
        gauges["pyrometer_alerting_watchdog_last_seen_timestamp_seconds"] = {(): float(watchdog)}
    return gauges


# A storm is one incident; more than these are no list that anybody reads, and each is a series.
MOST_INCIDENTS = 50
LONGEST_LABEL = 120


def incident_gauges(incidents: Sequence[Incident], external_url: str) -> dict[str, Gauge]:
    """Return pyrometer_incident_* of the incidents that fire, the worst and newest of them, and the page that has them.

    Args:
        incidents: all that fire, newest first; those of severity info are for the digest only and left out.
        external_url: this service's address for browsers, which the links lead to; empty for none.
    """
    posted = [incident for incident in incidents if incident.firing and incident.is_posted and not incident.joined_into]
    worst = sorted(posted, key=lambda incident: -SEVERITIES.index(incident.severity))[:MOST_INCIDENTS]
    labels = {incident.id: _labels(incident, external_url) for incident in worst}
    lost = {
        _key(INCIDENT_LOST.labels, labels[incident.id]): incident.diagnosis.cost.gpu_hours
        for incident in worst
        if incident.diagnosis is not None and incident.diagnosis.cost is not None
    }
    started = {_key(INCIDENT.labels, labels[incident.id]): incident.began for incident in worst}
    gauges = {INCIDENT.name: started, INCIDENT_LOST.name: lost}
    page: dict[str, Gauge] = {PAGE.name: {(("url", external_url),): 1.0}} if external_url else {}
    return page | {name: gauge for name, gauge in gauges.items() if gauge}


def _labels(incident: Incident, external_url: str) -> Mapping[str, str]:
    causes = incident.diagnosis.causes if incident.diagnosis is not None else ()
    first = causes[0] if causes and causes[0].cause else None
    at = (first.labels or {}) if first is not None else incident.newest().labels
    parts = [first.part] if first is not None else culprits(incident)
    return {
        "cluster": incident.cluster,
        "id": incident.id,
        "alert": incident.alertname,
        "severity": incident.severity,
        "run": incident.run,
        "job_id": incident.job_id,
        "node": at.get("node", ""),
        "gpu": at.get("gpu", ""),
        "part": parts[0] if parts else "unknown",
        "cause": first.cause if first is not None else "unknown" if incident.wants_diagnosis else "",
        "confidence": first.confidence if first is not None else "",
        "acknowledged": incident.acknowledged,
        "link": f"{external_url}/#{incident.id}" if external_url else "",
    }


def _key(names: Sequence[str], labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    # A link that is cut leads nowhere; its length is that of the configured address.
    return tuple((name, text.clean(labels[name])[: None if name == "link" else LONGEST_LABEL]) for name in names)


LONGEST_REASON = 200


def policy_gauges(worker: PolicyWorker, actions: Actions) -> dict[str, Gauge]:
    """Return the metrics by name; none that has no value."""
    policy = worker.executor.policy
    if not policy.rules:
        return {}
    drained: Gauge = {
        (
            ("cluster", drain.cluster), ("node", drain.node), ("rule", drain.rule),
            ("reason", text.plain(drain.reason, LONGEST_REASON)),
        ): drain.ended_at
        for drain in actions.drained()
    }  # fmt: skip
    gauges: dict[str, Gauge] = {
        POLICY_ACTIONS.name: {
            (("action", kind), ("result", result)): value for (kind, result), value in actions.totals().items()
        },
        POLICY_HELD.name: {
            (("cluster", cluster), ("limit", limit)): float(count) for (cluster, limit), count in worker.held.items()
        },
        POLICY_NODE.name: drained,
        POLICY_MODE.name: {(("mode", policy.mode),): 1.0},
        POLICY_LOOKED.name: {(): worker.looked_at} if worker.looked_at else {},
    }
    return {name: gauge for name, gauge in gauges.items() if gauge}
