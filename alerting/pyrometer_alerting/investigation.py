"""Evidence, then ranking: everything that needs pandas behind one function."""

from __future__ import annotations

from pyrometer_alerting.diagnosis import diagnose
from pyrometer_alerting.evidence import gather
from pyrometer_alerting.model import Diagnosis, Incident
from pyrometer_alerting.prometheus import Prometheus


def investigate(prometheus: Prometheus, incident: Incident, others: list[Incident], now: float) -> Diagnosis:
    """Ask Prometheus about the run's nodes and rank what was found."""
    evidence = gather(prometheus, incident.cluster, incident.run, now)
    return diagnose(incident, evidence, others, now)
