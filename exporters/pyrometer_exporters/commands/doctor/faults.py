"""List the faults of the hardware and the driver, each with what to do next and the alert whose runbook says more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyrometer_exporters.commands.doctor.readings import Readings
from pyrometer_exporters.commands.doctor.report import Fault, GpuStatus, Report

NO_DRIVER = ("no_driver", "driver_not_loaded")
"""The reasons that are no fault if the bus has no GPU either."""
_MISMATCH: Final = "driver_version_mismatch"

# The next step for a GPU that can't be read, by the reason; docs/alerts.md says the same at more length. nvidia-smi is
# given the PCI address where it is known: while a GPU is lost, the numbers of those after it can be others.
_GPU_STEPS = {
    "gpu_is_lost": "drain the node and reboot it, as a reset can't reach the GPU; replace the GPU if it "
    "happens twice within a week",
    "reset_required": "drain the node, then nvidia-smi --gpu-reset -i {gpu}",
    "deadline": "the driver is waiting for the GPU: look for Xids 119 and 120 on the host (journalctl -k | grep Xid), "
    "drain and reboot",
}
_GPU_STEP = "read the kernel log for Xids of this GPU, drain the node and reset the GPU, else reboot"
_DRIVER_STEPS = {
    _MISMATCH: "drain the node and reboot it, or reload the kernel module; hold the driver's packages",
    "no_driver": "install the driver's libraries; in a container, start it with the NVIDIA runtime",
    "driver_not_loaded": "modprobe nvidia, then dmesg | grep NVRM; in a container, start it with the NVIDIA runtime",
    "no_permission": "let this user open /dev/nvidia*; in a container, restart it with its devices declared",
}
_RUNTIME = "start it with the NVIDIA runtime: docker run --gpus=all, or runtimeClassName: nvidia"
_DRIVER_STEP = "read the kernel log for NVRM and Xids 79, 119 and 120; drain the node and reboot it"
# NVML field 230, nvmlDeviceGpuRecoveryAction_t.
_RECOVERY = {
    1: "end the processes on the GPU, then nvidia-smi --gpu-reset -i {gpu}",
    2: "drain the node and reboot it",
    3: "end the jobs that reach the GPU peer to peer",
    4: "drain the node, then nvidia-smi --gpu-reset -i {gpu}",
    5: "recover the IMEX domain: restart nvidia-imex on all its nodes",
    6: "drain the node and reset the GPU's bus, else reboot",
    7: "power-cycle the system: drain the node first",
}


@dataclass(frozen=True)
class _Sign:
    """A family whose value above 0 is a fault of the GPU."""

    family: str
    what: str
    step: str
    alert: str


_RESET = "drain the node at the next checkpoint, then nvidia-smi --gpu-reset -i {gpu}"
_REPLACE = "drain the node and replace the GPU"
_SIGNS = (
    _Sign("DCGM_FI_DEV_ROW_REMAP_FAILURE", "a memory row could not be remapped", _REPLACE, "GpuRowRemapFailed"),
    _Sign("DCGM_FI_DEV_ROW_REMAP_PENDING", "memory rows are waiting for a reset to be "
                                           "remapped", _RESET, "GpuEccUncorrected"),
    _Sign("DCGM_FI_DEV_RETIRED_PENDING", "memory pages are waiting for a reset to be "
                                         "retired", _RESET, "GpuEccUncorrected"),
    _Sign("pyrometer_gpu_bank_remapping_pending", "a memory bank is waiting for a reset", _RESET, "GpuEccUncorrected"),
    _Sign("pyrometer_gpu_repair_pending", "a repair is waiting for a reset", _RESET, "GpuRecoveryNeeded"),
    _Sign("pyrometer_gpu_unrepairable_memory", "memory that can't be repaired", _REPLACE, "GpuRowRemapFailed"),
    _Sign("pyrometer_gpu_sram_ecc_threshold_exceeded", "SRAM errors beyond the limit for replacement", _REPLACE,
          "GpuEccUncorrected"),
    _Sign("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "uncorrected memory errors since the driver was loaded",
          "restart affected jobs from a checkpoint before them; " + _RESET, "GpuEccUncorrected"),
)  # fmt: skip


def faults(report: Report, readings: Readings, on_bus: Sequence[str] | None) -> list[Fault]:
    """List the faults, those of the driver as a whole first.

    Args:
        report: the report so far.
        readings: the samples.
        on_bus: PCI addresses of the node's GPUs (``0000:18:00.0``); None where the bus can't be read.
    """
    unclaimed = _unclaimed(report, on_bus or ())
    places = _places(report, on_bus or ())
    return [
        *_of_the_driver(report, readings),
        *_missing(report, unclaimed, len(on_bus or ())),
        *(_unreadable(gpu, places.get(gpu.gpu, ""), unclaimed) for gpu in report.gpus if gpu.down),
        *_recoveries(readings, places),
        *_signs(readings, places),
    ]


def has_no_gpus(report: Report) -> bool:
    """Return whether no source reports a GPU on this node, and none is expected."""
    wanted = report.present.get("expected", 0) or _no_runtime(report)
    return report.driver_down in NO_DRIVER and report.present.get("pci") == 0 and not wanted


def _no_runtime(report: Report) -> bool:
    """Return whether the kernel has NVIDIA's module and this file system lacks the library."""
    return report.driver_down == "no_driver" and bool(report.driver["kernel_module"])


def _of_the_driver(report: Report, readings: Readings) -> Iterator[Fault]:
    mismatch = any(value for _, value in readings.of("pyrometer_gpu_driver_mismatch"))
    if mismatch:
        library, module = (report.driver[name] or "unknown" for name in ("library", "kernel_module"))
        what = f"NVML library and kernel module belong to different drivers, {library} and {module}"
        yield Fault(what, _DRIVER_STEPS[_MISMATCH], "GpuDriverDown")
    if report.driver_down and not has_no_gpus(report) and not (mismatch and report.driver_down == _MISMATCH):
        on_bus = report.present.get("pci")
        there = f"{on_bus} GPUs on the PCI bus, but " if on_bus else ""
        why = _why(report.driver_down, report.driver_detail)
        step = _DRIVER_STEPS.get(report.driver_down, _DRIVER_STEP)
        if _no_runtime(report):
            module = report.driver["kernel_module"]
            why = f"the kernel module {module} is loaded, but libnvidia-ml.so.1 is missing, "
            why += "as in a container without the NVIDIA runtime"
            step = f"{_RUNTIME}; outside of containers install the driver's libraries in version {module}"
        yield Fault(f"{there}the NVIDIA driver can't be used: {why}", step, "GpuDriverDown")


def _missing(report: Report, unclaimed: Sequence[str], on_bus: int) -> Iterator[Fault]:
    """Yield what is missing against the bus, with its address, and against what is expected."""
    presented, expected = report.present.get("nvml"), report.present.get("expected")
    if presented is None:
        return
    if len(unclaimed) == on_bus - presented:  # else a GPU whose address is not known is one of them
        for address in unclaimed:
            what = f"the GPU at {address} is on the PCI bus, but the driver doesn't list it"
            yield Fault(what, f"dmesg | grep -e NVRM -e {address}, drain the node and reboot it", "GpuLost")
    if expected is not None and presented != expected:
        what = f"the driver lists {presented} GPUs, {expected} are expected"
        yield Fault(
            what, "drain the node; compare lspci -d 10de: with its usual output, then reseat or replace", "GpuLost"
        )


def _unclaimed(report: Report, on_bus: Sequence[str]) -> list[str]:
    """Return the addresses on the bus of which no GPU that was read has one."""
    claimed = {_short(gpu.pci_bus_id) for gpu in report.gpus if gpu.pci_bus_id}
    return [address for address in on_bus if _short(address) not in claimed]


def _places(report: Report, on_bus: Sequence[str]) -> dict[str, str]:
    """Return the PCI addresses of the GPUs by number, as far as they are known.

    GPUs are asked for by their addresses, in the bus's order. So where each one that was read is at the place of its
    number, one that never was is too.
    """
    addresses = {gpu.gpu: gpu.pci_bus_id for gpu in report.gpus if gpu.pci_bus_id}
    in_order = dict(zip(map(str, range(len(on_bus))), on_bus, strict=True))
    ordered = all(_short(in_order.get(gpu, "")) == _short(address) for gpu, address in addresses.items())
    same = {gpu.gpu for gpu in report.gpus} == in_order.keys()
    return {**in_order, **addresses} if addresses and ordered and same else addresses


def _unreadable(gpu: GpuStatus, address: str, unclaimed: Sequence[str]) -> Fault:
    """Name the GPU with its address; where that isn't known, with those that it can have."""
    step = _GPU_STEPS.get(gpu.down or "", _GPU_STEP).format(gpu=address or gpu.gpu)
    named = _named(gpu.gpu, address or " or ".join(unclaimed))
    return Fault(f"{named} can't be read: {_why(gpu.down or '', gpu.detail)}", step, "GpuLost")


def _named(gpu: str, address: str) -> str:
    return f"GPU {gpu} ({address})" if address else f"GPU {gpu}"


def _recoveries(readings: Readings, places: Mapping[str, str]) -> Iterator[Fault]:
    for labels, value in readings.of("pyrometer_gpu_recovery_action"):
        if value > 0:
            gpu = labels["gpu"]
            step = _RECOVERY.get(int(value), "see nvidia-smi -q for the action").format(gpu=places.get(gpu, gpu))
            what = f"{_named(gpu, places.get(gpu, ''))}: the driver requests recovery ({value:.0f})"
            yield Fault(what, step, "GpuRecoveryNeeded")


def _signs(readings: Readings, places: Mapping[str, str]) -> Iterator[Fault]:
    for sign in _SIGNS:
        for gpu, value in sorted(_by_gpu(readings.of(sign.family)).items()):
            if value > 0:
                count = f": {value:.0f}" if sign.family.endswith("_TOTAL") else ""
                what = f"{_named(gpu, places.get(gpu, ''))}: {sign.what}{count}"
                yield Fault(what, sign.step.format(gpu=places.get(gpu, gpu)), sign.alert)


def _by_gpu(entries: Iterable[tuple[dict[str, str], float]]) -> dict[str, float]:
    """Return the highest value of each GPU: a family can have further labels."""
    highest: dict[str, float] = {}
    for labels, value in entries:
        highest[labels["gpu"]] = max(value, highest.get(labels["gpu"], value))
    return highest


def _short(pci_bus_id: str) -> str:
    """Return an address without its domain's leading zeros: NVML writes eight digits, sysfs four.

    >>> _short("00000000:18:00.0") == _short("0000:18:00.0")
    True
    """
    return pci_bus_id.lower().lstrip("0")


def _why(reason: str, detail: str) -> str:
    return f"{reason} ({detail})" if detail and detail != reason else reason
