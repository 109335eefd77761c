"""How much an incident harms training: its colour and its noise follow that, and not the rule's severity alone.

A lost GPU is critical to the run that uses it. Where none does it can wait for the morning.
"""

from __future__ import annotations

from pyrometer_alerting.model.alert_names import HARDWARE, RUN_SYMPTOMS
from pyrometer_alerting.model.incident import SEVERITIES, Alert, Incident

# Users of the part, as far as is known; else `run llama-70b` or `job 4711`.
IDLE, UNREPORTED, PROCESS = "no run is on it", "no reporting run known", "a process is on it"
NAMELESS = (IDLE, UNREPORTED, PROCESS)
SLOWED_BY = ", slowed by "  # between the run that uses a part and what is to blame for its slowness
# A part with these is as slow as they make it, and no slower: where another part holds the run up, they cost nothing.
SLOWDOWNS = frozenset({"GpuThrottledThermal", "GpuThrottledPowerBrake", "GpuThrottledHardware"})
# A drop that costs so little is looked at in the morning: a tenth of the speed, or one GPU for an hour.
MINOR_SHARE, MINOR_GPU_HOURS = 0.10, 1.0


def urgency(incident: Incident) -> str:
    """Return the severity that its harm deserves, never above that of its alerts."""
    if incident.severity != "critical":
        return incident.severity
    held_up = SLOWED_BY in incident.use and is_only_slow(incident)
    if not incident.run and (incident.use in (IDLE, UNREPORTED) or held_up):
        return "warning"
    if not incident.wants_diagnosis:
        return incident.severity
    own = [alert for alert in incident.members if alert.name in RUN_SYMPTOMS]
    told = max((rank(severity_of(alert)) for alert in own), default=rank(incident.severity))
    return "warning" if _is_minor(incident) else SEVERITIES[told]


def is_only_slow(incident: Incident) -> bool:
    """Return whether all that fires slows its part down, and none of it is a loss."""
    return all(alert.name in SLOWDOWNS for alert in incident.members if alert.firing)


def asks_for_use(incident: Incident) -> bool:
    """Return whether its harm depends on who uses the part: a part of a node, in no run's incident."""
    named = any(alert.firing and alert.labels.get("node") for alert in incident.members)
    return incident.firing and not incident.run and incident.component in HARDWARE and named


def severity_of(alert: Alert) -> str:
    """Return the alert's severity; an unknown one counts as a warning rather than being dropped."""
    severity = alert.labels.get("severity", "")
    return severity if severity in SEVERITIES else "warning"


def rank(severity: str) -> int:
    """Return 0 for info to 2 for critical."""
    return SEVERITIES.index(severity)


def _is_minor(incident: Incident) -> bool:
    """Return whether a run that goes on has lost little speed and little time."""
    found = incident.diagnosis
    slower = found.measured_slower if found is not None else None
    if found is None or slower is None or found.lead[2]:
        return False
    hours = found.cost.gpu_hours if found.cost is not None else 0.0
    slow = [alert for alert in incident.members if alert.firing and alert.name in RUN_SYMPTOMS]
    return slower < MINOR_SHARE and hours < MINOR_GPU_HOURS and all(_is_slowness(alert) for alert in slow)


def _is_slowness(alert: Alert) -> bool:
    """Return whether the alert says that a run is slow: a run that has stopped or died is never minor."""
    return alert.name.startswith("TrainMfu") or alert.name in ("TrainStraggler", "TrainStalls", "NcclStraggler")
