"""Alerts with a special meaning: causes of slow runs and their symptoms, mass events, the heartbeat.

`NAMED_CAUSES` is the only place that knows the causes: the alerts in it join a run's incident, and its diagnosis ranks
them. The severity of each is on a scale of its own, 0 to 120, which `diagnosis/weights.py` turns into a prior.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyrometer_alerting.model.incident import Alert

NAMED_CAUSES: Mapping[str, tuple[float, str]] = {
    "GpuLost": (120.0, "GPU lost"),
    # Less than the others: where only the driver's version is wrong, a running job continues.
    "GpuDriverDown": (80.0, "NVIDIA driver down"),
    "GpuXidCritical": (115.0, "critical Xid"),
    "NicLinkDown": (110.0, "link down"),
    "NicLost": (115.0, "network card lost"),
    "NicNotAnswering": (50.0, "network card that does not answer"),
    "NicAckTimeouts": (55.0, "packets without acknowledgement"),
    "NicReceiveErrors": (50.0, "corrupt packets received"),
    "NicLinkRecoveries": (55.0, "link that keeps recovering"),
    "NicPauseStorm": (60.0, "pause frame storm"),
    "NicCongested": (45.0, "congestion, unlike its rail"),
    "NicBondDegraded": (30.0, "bond with a lost member"),
    "GpuRecoveryNeeded": (65.0, "a GPU that needs a reset"),
    "GpuEccUncorrected": (70.0, "uncorrected memory errors"),
    "GpuAnswersRarely": (75.0, "a GPU that answers only intermittently"),
    "GpuLimitLowered": (75.0, "lowered power limit or manually set clocks"),
    "GpuThermalMarginGone": (70.0, "no thermal margin left"),
    "HostOutOfMemory": (80.0, "a process killed for lack of memory"),
    "HostMachineCheck": (60.0, "machine checks"),
    "HostPcieErrors": (60.0, "PCIe errors"),
    "HostDiskErrors": (55.0, "disk errors"),
    "HostKernelErrors": (55.0, "trouble that the kernel reports"),
    "NicDriverErrors": (65.0, "errors of a network card's driver"),
    "GpuRowRemapFailed": (50.0, "a row of memory that can't be remapped"),
    "GpuPcieDegraded": (75.0, "PCIe link with fewer lanes or less speed than possible"),
    "NvlinkDown": (85.0, "NVLink down"),
    "NicLinkFlapping": (90.0, "link flapping"),
    "NicLinkDegraded": (60.0, "link degraded"),
    "NicPcieDegraded": (60.0, "PCIe link with fewer lanes or less speed than possible"),
    "GpuThrottledThermal": (90.0, "thermal throttling"),
    "GpuThrottledPowerBrake": (90.0, "power brake"),
    "GpuThrottledHardware": (85.0, "hardware slowdown"),
    "NvswitchFatalError": (110.0, "NVSwitch with a fatal error"),
    "GpuPowerCapOutlier": (70.0, "power cap, unlike its peers"),
    "GpuClockOutlier": (65.0, "clock lower than its peers"),
    "NicSymbolErrors": (50.0, "symbol errors on a link"),
    # More than any of its links, so that the switch is named before 32 links that are down.
    "FabricMassEvent": (115.0, "many links down at once"),
    # Less than the same by our own collector: a plain node_exporter can't recognise a boot or a spare port.
    "NodeExporterNicLinkDown": (100.0, "link down"),
    "NodeExporterNicFlapping": (80.0, "link flapping"),
    "NodeExporterNicSymbolErrors": (45.0, "symbol errors on a link"),
}


MASS_EVENT = "FabricMassEvent"  # the rule that means a whole switch, rail or host
# Components of hardware alerts. Such an alert that names a switch, a rail or a rack but no node is a possible cause
# whatever its name: an operator's own rule on a switch or a power feed has that form.
HARDWARE = frozenset({"gpu", "nic", "host"})
WIDE = ("switch", "rail", "rack")
FELL = "TrainMfuDropped"  # fires when a run becomes slower; the other symptoms detect a run that is slow or has stopped
LOW = "TrainMfuLow"  # the run was slow from its start
STALLS = "TrainStalls"  # the run is as fast as before between its stalls
DEATH = "TrainRunDied"
# The channel sees these at once, also in a message that it has: the first of each kind. A death may follow a hang.
AT_ONCE: Mapping[str, str] = {
    DEATH: "death", "TrainStalled": "hang", "NcclHang": "hang", "NcclRankMissing": "loss", "TrainLossNotFinite": "ruin",
    "GpuLost": "loss", "NicLost": "loss", "NodeExporterDown": "loss",
}  # fmt: skip
# The alerts that one slow or stopped run raises one after the other: they form one incident whose cause is diagnosed.
RUN_SYMPTOMS = frozenset({
    FELL, LOW, STALLS, "TrainMfuUneven", "TrainStalled", "TrainStraggler", "TrainGarbageCollection", DEATH,
    "NcclHang", "NcclRankMissing", "NcclStraggler", "NcclBandwidthDropped",
})  # fmt: skip
WATCHDOG = "Watchdog"
# Each alert of our rules has one of these components.
COMPONENTS = frozenset({"gpu", "nic", "train", "host", "stack"})
# kube-prometheus' alert by which Alertmanager mutes others. It always fires where anything of severity info does.
INFO_INHIBITOR = "InfoInhibitor"


def is_signal(labels: Mapping[str, str]) -> bool:
    """Return whether the alert is for programs alone: a heartbeat, or what inhibits others; it is no incident."""
    return labels.get("alertname") in (WATCHDOG, INFO_INHIBITOR) or labels.get("severity") == "none"


def is_cause(alert: Alert) -> bool:
    """Return whether this alert can be the cause of a slow run."""
    labels = alert.labels
    wide = any(labels.get(name) for name in WIDE) and not labels.get("node") and not labels.get("run")
    return alert.name in NAMED_CAUSES or (wide and labels.get("component") in HARDWARE)


def may_explain(alert: Alert) -> bool:
    """Return whether a run's diagnosis may find that this alert is its cause: also a node that is silent."""
    return is_cause(alert) or AT_ONCE.get(alert.name) == "loss"
