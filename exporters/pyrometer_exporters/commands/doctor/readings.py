"""Index samples by family and label, and read GPUs, links and rings from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyrometer_exporters.commands.doctor.failures import NO_NVLINK, Failures, needs_driver, why_absent
from pyrometer_exporters.commands.doctor.report import Absent, GpuStatus
from pyrometer_exporters.framework.metrics import Down, Family, Sample
from pyrometer_exporters.node.gpu.collector import COLLECTOR
from pyrometer_exporters.node.gpu.subjects.dcgm_profiling import ENGINES

_LINKS_UP = "pyrometer_gpu_nvlinks_up"
# Families with labels other than a GPU's, or absent on every healthy GPU: nothing to explain.
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
        """Return labels and values of the family's samples that have these labels."""
        return [entry for entry in self._by_name.get(name, []) if labels.items() <= entry[0].items()]

    def summed(self, name: str, by: str) -> dict[str, int]:
        """Return the sums of a family's values by one label."""
        sums: dict[str, int] = {}
        for labels, value in self.of(name):
            sums[labels[by]] = sums.get(labels[by], 0) + int(value)
        return sums

    def families_of(self, gpu: str) -> set[str]:
        """Return the names of the families that a GPU has samples of."""
        return {name for name, entries in self._by_name.items() if any(e[0].get("gpu") == gpu for e in entries)}


def driver(readings: Readings) -> dict[str, str]:
    """Return the versions of driver, library and kernel module; empty where unknown."""
    entries = readings.of("pyrometer_gpu_driver_info")
    return dict(entries[0][0]) if entries else {"driver": "", "library": "", "kernel_module": ""}


def present(readings: Readings) -> dict[str, int]:
    """Return the number of GPUs by source."""
    return {labels["source"]: int(value) for labels, value in readings.of("pyrometer_gpus_present")}


def gpus(readings: Readings, downs: Mapping[str, Down], failures: Mapping[str, Failures]) -> list[GpuStatus]:
    """Return every GPU, in the order of their numbers.

    Args:
        readings: the samples.
        downs: the GPU collector's parts that are down, by part.
        failures: failed calls by UUID, as of :class:`Recording`.
    """
    version = driver(readings)["driver"]
    statuses = []
    for labels, _up in readings.of("pyrometer_gpu_up"):
        gpu, uuid = labels["gpu"], labels["uuid"]
        info = next(iter(readings.of("pyrometer_gpu_info", gpu=gpu)), ({}, 0.0))[0]
        methods = readings.of("pyrometer_gpu_clock_event_method_info", gpu=gpu)
        down = downs.get(gpu)
        has = readings.families_of(gpu)
        divided = is_divided(readings, gpu)
        absent = [] if down else list(_absent(has, version, failures.get(uuid, Failures()), divided=divided))
        events = {entry["reason"]: entry["method"] for entry, _ in methods}
        model, pci = info.get("model", ""), info.get("pci_bus_id", "")
        reason, detail = (down.reason, down.detail) if down else (None, "")
        statuses.append(GpuStatus(gpu, uuid, model, pci, reason, detail, len(has & _names()), events, absent))
    return sorted(statuses, key=lambda gpu: (len(gpu.gpu), gpu.gpu))


def is_divided(readings: Readings, gpu: str) -> bool:
    """Return whether the GPU is in MIG mode."""
    return any(value == 1 for _, value in readings.of("DCGM_FI_DEV_MIG_MODE", gpu=gpu))


def links(readings: Readings) -> dict[str, int]:
    """Count network ports and NVLinks, up and down."""
    ports = [value for _, value in readings.of("pyrometer_nic_link_up")]
    nvlinks = [value for _, value in readings.of("pyrometer_gpu_nvlink_up")]
    return {
        "ports_up": sum(value == 1 for value in ports),
        "ports_down": sum(value != 1 for value in ports),
        "nvlinks_up": sum(value == 1 for value in nvlinks),
        "nvlinks_down": sum(value != 1 for value in nvlinks),
    }


def rings(readings: Readings) -> dict[str, int]:
    """Count the training runs of this node, and their ranks."""
    ranks = [labels for labels, _ in readings.of("pyrometer_train_rank_info")]
    return {"runs": len({labels["run"] for labels in ranks}), "ranks": len(ranks)}


def _per_gpu() -> list[Family]:
    """Return the families that a GPU can have, each name once: a MIG device's have the GPU's names."""
    unique = {family.name: family for family in COLLECTOR.families if family.labels[:1] == ("gpu",)}
    return list(unique.values())


def _names() -> set[str]:
    return {family.name for family in _per_gpu()}


def _absent(has: set[str], version: str, failures: Failures, *, divided: bool) -> Iterable[Absent]:
    for family in _per_gpu():
        if family.name not in has and family.name not in _UNEXPLAINED:
            why = why_absent(family, version, failures, divided=divided)
            unlinked = "nvlink" in family.name.lower() and _LINKS_UP not in has and not needs_driver(family, version)
            yield Absent(family.name, NO_NVLINK if unlinked else why)
