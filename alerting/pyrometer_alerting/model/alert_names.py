"""Name the alerts with a special meaning: symptoms of slow runs, mass events, the heartbeat."""

from __future__ import annotations

from pyrometer_alerting.model.incident import Alert
from pyrometer_alerting.model.named_causes import NAMED_CAUSES

MASS_EVENT = "FabricMassEvent"  # the rule that means a whole switch, rail or host
# Components of hardware alerts. Such an alert that names a switch, a rail or a rack but no node is a possible cause
# whatever its name: an operator's own rule on a switch or a power feed has that form.
HARDWARE = frozenset({"gpu", "nic", "host"})
WIDE = ("switch", "rail", "rack")
FELL = "TrainMfuDropped"  # fires when a run becomes slower; the other symptoms detect a run that is slow or has stopped
LOW = "TrainMfuLow"  # the run was slow from its start
STALLS = "TrainStalls"  # the run is as fast as before between its stalls
# The alerts that one slow or stopped run raises one after the other: they form one incident whose cause is diagnosed.
RUN_SYMPTOMS = frozenset({
    FELL, LOW, STALLS, "TrainMfuUneven", "TrainStalled", "TrainStraggler", "TrainGarbageCollection", "TrainRunDied",
    "NcclHang", "NcclRankMissing", "NcclStraggler", "NcclBandwidthDropped",
})  # fmt: skip
WATCHDOG = "Watchdog"


def is_cause(alert: Alert) -> bool:
    """Return whether this alert can be the cause of a slow run."""
    labels = alert.labels
    wide = any(labels.get(name) for name in WIDE) and not labels.get("node") and not labels.get("run")
    return alert.name in NAMED_CAUSES or (wide and labels.get("component") in HARDWARE)
