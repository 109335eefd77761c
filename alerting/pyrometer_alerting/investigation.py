"""Everything that needs pandas behind a few functions: it takes a second to import, so the workers do it."""

from __future__ import annotations

from pyrometer_alerting.batches import active_runs
from pyrometer_alerting.diagnosis import diagnose
from pyrometer_alerting.evidence import gather
from pyrometer_alerting.examination import examine, wave_of_run
from pyrometer_alerting.model import Diagnosis, Incident
from pyrometer_alerting.prometheus import Prometheus

__all__ = ["active_runs", "examine", "investigate", "wave_of_run"]


def investigate(prometheus: Prometheus, incident: Incident, others: list[Incident], now: float) -> Diagnosis:
    """Ask Prometheus about the run's nodes and rank what was found; the first time only what is quick to ask."""
    quick = incident.diagnosis is None
    evidence = gather(prometheus, incident.cluster, incident.run, now, quick=quick)
    return diagnose(incident, evidence, others, now)
