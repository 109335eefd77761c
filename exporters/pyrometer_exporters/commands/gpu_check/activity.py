"""Experiment c: tensor, SM and DRAM activity and bytes over PCIe against loads whose truth is known."""

from __future__ import annotations

import time
from typing import Any

import pynvml

from pyrometer_exporters.commands.gpu_check.check import Check, Experiment, Report
from pyrometer_exporters.commands.gpu_check.exporter import Exporter, Page, exporter
from pyrometer_exporters.commands.gpu_check.load import DEVICE_COPY, HOST_COPY, PRODUCTS
from pyrometer_exporters.commands.gpu_check.place import Child, Place

_SM, _TENSOR, _DRAM = (f"DCGM_FI_PROF_{name}" for name in ("SM_ACTIVE", "PIPE_TENSOR_ACTIVE", "DRAM_ACTIVE"))
_RECEIVED = "pyrometer_gpu_pcie_received_bytes_total"
_DUTIES, _PERIODS = (0.0, 0.25, 0.5, 0.75, 1.0), (0.02, 2.0)
_LEAD_SECONDS, _ROOM_SECONDS = 0.7, 0.8
_POINTS, _PCIE_SHARE = 3.0, 0.02
# Dense bf16 FLOPs of one SM in one cycle: NVIDIA's white papers, peak / (SMs x boost clock).
_FLOPS_PER_CYCLE = {(8, 0): 2048, (9, 0): 4096, (10, 0): 8192}
CHECKS = (
    Check("sm", "SM activity at a duty cycle of 0 to 100 %, periods of 20 ms and 2 s", "within 3 points"),
    Check("tensor", "tensor activity in the same phases, against FLOPs counted by hand", "within 3 points"),
    Check("dram_duty", "DRAM activity in the same phases, against its share of that at 100 %", "within 3 points"),
    Check("dram", "DRAM activity of a device copy of known bytes", "within 3 points"),
    Check("pcie", "PCIe bytes of a host copy of known bytes", "within 2 %"),
)  # fmt: skip


def run(place: Place, report: Report) -> None:
    """Run all phases in one load and scrape at the ends of each."""
    if not place.loads:
        report.skipped_rest("no PyTorch with CUDA: no load")
        return
    phases = [*_duty_phases(place), *_copy_phases(place)]
    rows = []
    with exporter(place) as ours, place.nvml() as handle, place.child("load", phases=phases) as load:
        load.line()
        for phase in phases:
            row = _phase(place, ours, load, handle, phase)
            report.raw(phase["name"], row)
            rows.append(row)
    duties = rows[:-2]
    device = capability(place)
    _sm(report, duties)
    _tensor(report, duties, device)
    _dram_of_products(report, duties)
    _dram_of_copy(place, report, rows[-2])
    _pcie(report, rows[-1])


def _duty_phases(place: Place) -> list[dict[str, Any]]:
    # Windows of whole periods: 4 s are two of 2 s.
    return [
        _with_times(place, 4.0 if period > 1 else 2.0, name=f"duty {duty:.0%}, period {period:g} s", kind=PRODUCTS,
                    duty=duty, period=period)
        for period in _PERIODS for duty in _DUTIES if duty or period < 1
    ]  # fmt: skip


def _copy_phases(place: Place) -> list[dict[str, Any]]:
    return [_with_times(place, 2.0, name=kind, kind=kind) for kind in (DEVICE_COPY, HOST_COPY)]


def _with_times(place: Place, window: float, **phase: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
    """Return the phase with its length, which leaves room around the window for two scrapes of a busy machine."""
    return {**phase, "window": place.seconds(window), "seconds": place.seconds(window + _LEAD_SECONDS) + _ROOM_SECONDS}


def _phase(place: Place, ours: Exporter, load: Child, handle: Any, phase: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """Run one phase; return what we said, the truth, and the clocks."""
    before = ours.scrape()
    load.go()
    load.line()
    # The average of the second scrape begins with the first, which has to be in the phase, and a second old or more.
    time.sleep(place.seconds(_LEAD_SECONDS))
    first = ours.scrape()
    clocks = _clocks(handle, first.at + phase["window"])
    second = ours.scrape()
    truth = load.line()["truth"]
    truth.pop("periods", None)
    time.sleep(0.2)
    after = ours.scrape()
    return {
        "phase": phase, "truth": truth, "sm_clock_mhz": clocks,
        "sm": second.value(_SM), "tensor": second.value(_TENSOR), "dram": second.value(_DRAM),
        "pcie_bytes": _grown(before, after, _RECEIVED), "exact": _exact(first, second),
    }  # fmt: skip


def _clocks(handle: Any, until: float) -> float:  # noqa: ANN401
    """Return the mean SM clock in MHz until then."""
    read: list[int] = []
    while not read or time.monotonic() < until:
        read.append(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
        time.sleep(min(0.02, max(0.0, until - time.monotonic())))
    return sum(read) / len(read)


def _grown(first: Page, second: Page, name: str, **labels: str) -> float | None:
    begin, end = first.value(name, **labels), second.value(name, **labels)
    return None if begin is None or end is None else end - begin


def _exact(first: Page, second: Page) -> dict[str, float]:
    """Return the shares by the counters of cycles, which drivers from 595 on have."""
    cycles = _grown(first, second, "pyrometer_gpu_sm_cycles_total")
    active = _grown(first, second, "pyrometer_gpu_sm_active_cycles_total")
    tensor = _grown(first, second, "pyrometer_gpu_pipe_active_cycles_total", pipe="tensor")
    return {
        name: value / cycles
        for name, value in (("sm", active), ("tensor", tensor))
        if value is not None and cycles
    }  # fmt: skip


def _points(report: Report, check: str, pairs: list[tuple[str, float | None, float]]) -> None:
    """Record the largest distance of (name, ours, truth) in percentage points."""
    unknown = [name for name, ours, _ in pairs if ours is None]
    distances = [(abs(100 * (ours - truth)), name, ours, truth) for name, ours, truth in pairs if ours is not None]
    if not distances:
        report.skipped(check, "the exporter has no such value here: no GPM on this GPU (before Hopper, or MIG)")
        return
    worst, name, ours, truth = max(distances)
    measured = f"{worst:.1f} points at most ({name}: {100 * ours:.1f} for {100 * truth:.1f} %)"
    report.passed(
        check, measured, ok=worst <= _POINTS and not unknown, note=f"absent in {len(unknown)}" if unknown else ""
    )


def _sm(report: Report, rows: list[dict[str, Any]]) -> None:
    _points(report, "sm", [(row["phase"]["name"], row["sm"], row["truth"]["busy"]) for row in rows])


def _tensor(report: Report, rows: list[dict[str, Any]], device: tuple[float, int] | None) -> None:
    if device is None:
        report.skipped("tensor", "the tensor cores' FLOPs per cycle aren't known for this GPU")
        return
    flops_per_cycle, multiprocessors = device
    pairs = []
    for row in rows:
        most = flops_per_cycle * multiprocessors * row["sm_clock_mhz"] * 1e6
        pairs.append((row["phase"]["name"], row["tensor"], row["truth"]["flops"] / most if most else 0.0))
    _points(report, "tensor", pairs)


def capability(place: Place) -> tuple[float, int] | None:
    """Return FLOPs per cycle and SM, and the number of SMs; None where that isn't known."""
    if place.capability is not None:
        return place.capability
    torch: Any = place.torch()
    properties = torch.cuda.get_device_properties(0)
    flops = _FLOPS_PER_CYCLE.get((properties.major, properties.minor))
    return None if flops is None else (float(flops), properties.multi_processor_count)


def _dram_of_products(report: Report, rows: list[dict[str, Any]]) -> None:
    pairs = []
    for period in _PERIODS:
        group = [row for row in rows if row["phase"]["period"] == period]
        whole, busy = group[-1]["dram"], group[-1]["truth"]["busy"]
        if whole is not None and busy:
            pairs += [(row["phase"]["name"], row["dram"], whole * row["truth"]["busy"] / busy) for row in group]
    _points(report, "dram_duty", pairs)


def _dram_of_copy(place: Place, report: Report, row: dict[str, Any]) -> None:
    bandwidth = _bandwidth(place)
    if bandwidth is None:
        report.skipped("dram", "the driver doesn't say how wide the memory's bus is")
        return
    # Each byte is read and written.
    _points(report, "dram", [(row["phase"]["name"], row["dram"], 2 * row["truth"]["bytes_per_second"] / bandwidth)])


def _bandwidth(place: Place) -> float | None:
    """Return the bytes per second that the memory's interface can transfer."""
    if place.bandwidth is not None:
        return place.bandwidth
    with place.nvml() as handle:
        try:
            bits = pynvml.nvmlDeviceGetMemoryBusWidth(handle)
            clock = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM)
        except (pynvml.NVMLError, AttributeError):
            return None
    return float(bits * clock * 1e6 * 2 / 8)


def _pcie(report: Report, row: dict[str, Any]) -> None:
    ours, truth = row["pcie_bytes"], row["truth"]["bytes"]
    if ours is None:
        report.skipped("pcie", "the exporter has no PCIe counters here")
        return
    measured = f"{ours / 1e9:.2f} GB for {truth / 1e9:.2f} ({100 * (ours / truth - 1):+.1f} %)"
    report.passed(
        "pcie", measured, ok=abs(ours / truth - 1) <= _PCIE_SHARE, note="headers of PCIe's packets are counted"
    )


EXPERIMENT = Experiment("c", "Activity", 95, CHECKS, run)
