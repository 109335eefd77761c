"""Name the alerts that mean something to the service: causes and symptoms of slow runs, mass events, the heartbeat."""

from __future__ import annotations

from pyrometer_alerting.model.incident import Alert

# Base score and wording of each alert that can be the cause of a slow run. The score counts before its time and the MFU
# curve are weighed; a cause must reach `diagnosis.causes.CONVINCING` to be named.
CAUSE_ALERTS = {
    "GpuLost": (120.0, "GPU lost"),
    # Below the others: the driver may merely have the wrong version, with which a running job keeps working.
    "GpuDriverDown": (80.0, "NVIDIA driver down"),
    "GpuXidCritical": (115.0, "critical Xid"),
    "NicLinkDown": (110.0, "link down"),
    "GpuRecoveryNeeded": (65.0, "a GPU that has to be reset"),
    "GpuEccUncorrected": (70.0, "uncorrected memory errors"),
    "GpuRowRemapFailed": (50.0, "a row of memory that can't be remapped"),
    "GpuPcieDegraded": (75.0, "PCIe link narrower or slower than it can be"),
    "NvlinkDown": (85.0, "NVLink down"),
    "NicLinkFlapping": (90.0, "link flapping"),
    "NicLinkDegraded": (60.0, "link degraded"),
    "NicPcieDegraded": (60.0, "PCIe link narrower or slower than it can be"),
    "GpuThrottledThermal": (90.0, "thermal throttling"),
    "GpuThrottledPowerBrake": (90.0, "power brake"),
    "GpuThrottledHardware": (85.0, "hardware slowdown"),
    "NvswitchFatalError": (110.0, "NVSwitch with a fatal error"),
    "GpuPowerCapOutlier": (70.0, "power cap, unlike its peers"),
    "GpuClockOutlier": (65.0, "clock lower than its peers"),
    "NicSymbolErrors": (50.0, "symbol errors on a link"),
    # Above any single link: in a list of 32 dead links nobody would find the switch.
    "FabricMassEvent": (115.0, "many links down at once"),
    # A little below our own collector's alerts: a plain node_exporter cannot tell a boot or a spare port from a fault.
    "NodeExporterNicLinkDown": (100.0, "link down"),
    "NodeExporterNicFlapping": (80.0, "link flapping"),
    "NodeExporterNicSymbolErrors": (45.0, "symbol errors on a link"),
}
MASS_EVENT = "FabricMassEvent"  # the rule that means a whole switch, rail or host
# Components of hardware alerts. Such an alert that names a switch, a rail or a rack but no node is a possible cause
# whatever its name: an operator's own rule on a switch or a power feed looks like that.
HARDWARE = frozenset({"gpu", "nic", "host"})
WIDE = ("switch", "rail", "rack")
FELL = "TrainMfuDropped"  # fires when a run becomes slower; the other symptoms see a run that is slow or has stopped
# The alerts that one slow or stopped run raises one after the other: they form one incident, whose cause is sought.
RUN_SYMPTOMS = frozenset({FELL, "TrainMfuLow", "TrainStalled", "TrainStraggler", "TrainGarbageCollection"})
WATCHDOG = "Watchdog"


def is_cause(alert: Alert) -> bool:
    """Return whether this alert can be the cause of a slow run."""
    labels = alert.labels
    wide = any(labels.get(name) for name in WIDE) and not labels.get("node") and not labels.get("run")
    return alert.name in CAUSE_ALERTS or (wide and labels.get("component") in HARDWARE)
