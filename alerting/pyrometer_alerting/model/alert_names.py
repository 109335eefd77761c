"""Alerts by their names: which may be the cause of a slow run, which are its symptoms, which mean more than one part."""

from __future__ import annotations

from pyrometer_alerting.model.incident import Alert

# Base score and wording of each alert that may be the cause of a slow run. A score is what the alert is worth before
# its time and the MFU curve are weighed; a cause must reach `diagnosis.causes.CONVINCING` to be named.
CAUSE_ALERTS = {
    "GpuLost": (120.0, "GPU lost"),
    # As the driver's version may merely be the wrong one, with which a running job goes on, less than the others.
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
    # More than any of its links: in a list of 32 links that are down nobody reads the switch.
    "FabricMassEvent": (115.0, "many links down at once"),
    # As the same by our own collector, a little less: a plain node_exporter can't tell a boot or a spare port.
    "NodeExporterNicLinkDown": (100.0, "link down"),
    "NodeExporterNicFlapping": (80.0, "link flapping"),
    "NodeExporterNicSymbolErrors": (45.0, "symbol errors on a link"),
}
MASS_EVENT = "FabricMassEvent"  # the rule that means a whole switch, rail or host
# The component of alerts on hardware; one that names a switch, a rail or a rack and no node is a possible cause too,
# whatever its name: that is how an operator's own rule on a switch or a power feed looks.
HARDWARE = frozenset({"gpu", "nic", "host"})
WIDE = ("switch", "rail", "rack")
FELL = "TrainMfuDropped"  # the rule that sees a run become slower; the others see one that is slow or stands
# What one slow or standing run shows itself as, one after the other: one incident, and a cause to be looked for.
RUN_SYMPTOMS = frozenset({FELL, "TrainMfuLow", "TrainStalled", "TrainStraggler", "TrainGarbageCollection"})
WATCHDOG = "Watchdog"


def is_cause(alert: Alert) -> bool:
    """Whether this alert may be what slows a run down."""
    labels = alert.labels
    wide = any(labels.get(name) for name in WIDE) and not labels.get("node") and not labels.get("run")
    return alert.name in CAUSE_ALERTS or (wide and labels.get("component") in HARDWARE)
