"""Samples, read for what an operator wants to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyrometer_exporters.doctor.needs import NEEDS, Need
from pyrometer_exporters.doctor.report import Absent, GpuFound, Report
from pyrometer_exporters.doctor.why import why_absent
from pyrometer_exporters.framework.metrics import Family, Sample
from pyrometer_exporters.node.gpu.collector import COLLECTOR
from pyrometer_exporters.node.gpu.profiling import ENGINES

# Parts of other labels than a GPU's, or absent wherever all is well: nothing to explain.
_UNEXPLAINED = {"pyrometer_gpu_xid_consequences_total", "pyrometer_gpu_xid_last_timestamp_seconds",
                "pyrometer_gpu_xid_last_info", "pyrometer_gpu_job_info", "pyrometer_gpu_processes",
                *(family.name for family in ENGINES.values())}  # fmt: skip


class Readings:
    """Samples by family and label."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._by_name: dict[str, list[tuple[dict[str, str], float]]] = {}
        for sample in samples:
            labels = dict(zip(sample.family.labels, sample.labels, strict=True))
            self._by_name.setdefault(sample.family.name, []).append((labels, sample.value))

    def of(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Labels and values of a family's samples that have these labels."""
        return [entry for entry in self._by_name.get(name, []) if labels.items() <= entry[0].items()]

    def summed(self, name: str, by: str) -> dict[str, int]:
        """A family's values added up by one label."""
        sums: dict[str, int] = {}
        for labels, value in self.of(name):
            sums[labels[by]] = sums.get(labels[by], 0) + int(value)
        return sums

    def families_of(self, gpu: str) -> set[str]:
        """Names of the families that a GPU has samples of."""
        return {name for name, entries in self._by_name.items() if any(e[0].get("gpu") == gpu for e in entries)}


def driver(readings: Readings) -> dict[str, str]:
    """Versions of driver, library and kernel module."""
    found = readings.of("pyrometer_gpu_driver_info")
    return dict(found[0][0]) if found else {"driver": "", "library": "", "kernel_module": ""}


def present(readings: Readings) -> dict[str, int]:
    """How many GPUs there are, by who says so."""
    return {labels["source"]: int(value) for labels, value in readings.of("pyrometer_gpus_present")}


def gpus(
    readings: Readings, down: Mapping[tuple[str, str], str], failures: Mapping[str, Mapping[str, str]]
) -> list[GpuFound]:
    """Every GPU; ``down`` is the reason by collector and part, ``failures`` as of :class:`Recording`."""
    version = driver(readings)["driver"]
    found = []
    for labels, _up in readings.of("pyrometer_gpu_up"):
        gpu, uuid = labels["gpu"], labels["uuid"]
        info = next(iter(readings.of("pyrometer_gpu_info", gpu=gpu)), ({}, 0.0))[0]
        methods = readings.of("pyrometer_gpu_clock_event_method_info", gpu=gpu)
        reason = down.get(("gpu", gpu))
        has = readings.families_of(gpu)
        absent = [] if reason else list(_absent(has, version, failures.get(uuid, {})))
        events = {entry["reason"]: entry["method"] for entry, _ in methods}
        model, pci = info.get("model", ""), info.get("pci_bus_id", "")
        found.append(GpuFound(gpu, uuid, model, pci, reason, len(has & _names()), events, absent))
    return sorted(found, key=lambda gpu: (len(gpu.gpu), gpu.gpu))


def links(readings: Readings) -> dict[str, int]:
    """Network ports and NVLinks, up and down."""
    ports = [value for _, value in readings.of("pyrometer_nic_link_up")]
    nvlinks = [value for _, value in readings.of("pyrometer_gpu_nvlink_up")]
    return {
        "ports_up": sum(value == 1 for value in ports),
        "ports_down": sum(value != 1 for value in ports),
        "nvlinks_up": sum(value == 1 for value in nvlinks),
        "nvlinks_down": sum(value != 1 for value in nvlinks),
    }


def rings(readings: Readings) -> dict[str, int]:
    """Training runs of this node, and their ranks."""
    ranks = [labels for labels, _ in readings.of("pyrometer_train_rank_info")]
    return {"runs": len({labels["run"] for labels in ranks}), "ranks": len(ranks)}


def problems(report: Report, readings: Readings) -> list[str]:
    """What the alert rules need and don't get."""
    found = []
    on_bus, told = report.present.get("pci"), report.present.get("nvml")
    expected = report.present.get("expected")
    if on_bus and told is None:
        found.append(f"{on_bus} GPUs on the PCI bus and no answer from the driver")
    if told is not None and expected is not None and told != expected:
        found.append(f"the driver presents {told} GPUs, {expected} are expected")
    if readings.of("pyrometer_gpu_driver_mismatch") and readings.of("pyrometer_gpu_driver_mismatch")[0][1]:
        versions = f"{report.driver['library']} and {report.driver['kernel_module']}"
        found.append(f"NVML library and kernel module are of different drivers: {versions}")
    found.extend(f"GPU {gpu.gpu} can't be read: {gpu.down}" for gpu in report.gpus if gpu.down)
    for need in NEEDS:
        without = [gpu.gpu for gpu in report.gpus if not gpu.down and not _has(readings, gpu.gpu, need)]
        if without:
            found.append(f"GPU {', '.join(without)}: no {need.name}, which {need.alerts} needs")
    return found


def log_problems(report: Report) -> list[str]:
    """What the alert rules need of the kernel's log and don't get."""
    why = [collector.down["kmsg"] for collector in report.collectors if "kmsg" in collector.down]
    if not why:
        return []
    needed = "no SXids and no Xids of lost GPUs, which NvswitchFatalError and GpuXidCritical need"
    return [f"the kernel's log can't be read ({why[0]}): {needed}"]


def notes(report: Report) -> list[str]:
    """What an operator should know though no alert hangs on it."""
    found = []
    if report.attribution.cgroups != "readable":
        found.append(f"cgroups of other processes can't be read ({report.attribution.cgroups}): no job_info")
    if hidden := report.attribution.processes.get("hidden"):
        found.append(f"{hidden} processes on GPUs can't be seen from here: run in the host's PID namespace")
    on_bus, told = report.present.get("pci"), report.present.get("nvml")
    if on_bus is not None and told is not None and on_bus != told:
        found.append(f"the PCI bus has {on_bus} GPUs, the driver presents {told}")
    return found


def _has(readings: Readings, gpu: str, need: Need) -> bool:
    labels = {"gpu": gpu, "reason": need.reason} if need.reason else {"gpu": gpu}
    return bool(readings.of(need.family, **labels))


def _per_gpu() -> list[Family]:
    """The families that a GPU can have; those of a MIG device share the names of the GPU's own."""
    unique = {family.name: family for family in COLLECTOR.families if family.labels[:1] == ("gpu",)}
    return list(unique.values())


def _names() -> set[str]:
    return {family.name for family in _per_gpu()}


def _absent(has: set[str], version: str, failures: Mapping[str, str]) -> Iterable[Absent]:
    for family in _per_gpu():
        if family.name not in has and family.name not in _UNEXPLAINED:
            yield Absent(family.name, why_absent(family, version, failures))
