"""Bytes over NVLink and PCIe.

State: ``nvlinks`` (how many; 18, or 0 on boards whose model says PCIe), ``nvlink_bytes=[sent, received]`` and
``pcie_bytes=[sent, received]`` since the driver was loaded. By default they grow with the work done.
"""

from __future__ import annotations

from pyrometer_simulator.nvml.abi import ALL_LINKS, UNSIGNED_LONG_LONG, Library
from pyrometer_simulator.nvml.gpu_state import GpuState

_IDLE_MILLIWATTS = 72_000  # what SimulatedGpu.idle draws
# At 650 W about 150 GB/s over NVLink and 5 GB/s over PCIe in each direction, as in training.
_NVLINK_BYTES_PER_MJ, _PCIE_BYTES_PER_MJ = 230_000, 8_000


def busy_mj(gpu: GpuState) -> float:
    """Return the energy used while the GPU wasn't idle, in millijoules, as a measure of work done."""
    return max(0.0, gpu.energy_mj() - _IDLE_MILLIWATTS * gpu.reason_seconds(0))


def nvlinks(library: Library, gpu: GpuState) -> int:
    """Return the number of NVLinks of the GPU."""
    return int(library.setting(gpu, "nvlinks", 0 if "PCIe" in library.model else 18))


def nvlink_bytes(library: Library, gpu: GpuState) -> tuple[int, int]:
    """Return bytes sent and received over all links."""
    done = int(busy_mj(gpu) * _NVLINK_BYTES_PER_MJ)
    sent, received = library.setting(gpu, "nvlink_bytes", (done, done))
    return sent, received


def pcie_bytes(library: Library, gpu: GpuState) -> tuple[int, int]:
    """Return bytes sent and received."""
    done = int(busy_mj(gpu) * _PCIE_BYTES_PER_MJ)
    sent, received = library.setting(gpu, "pcie_bytes", (done, done))
    return sent, received


def field(library: Library, gpu: GpuState, field: int, scope: int) -> tuple[int, int] | None:
    """Return NVLink in KiB up to Hopper (138, 139), in bytes from Blackwell on (202, 204); PCIe in bytes (197, 198)."""
    if field in (197, 198) and library.driver_version >= (555,):
        return UNSIGNED_LONG_LONG, pcie_bytes(library, gpu)[field == 198]
    blackwell = "B200" in library.model or "B300" in library.model
    if field in (138, 139) and not blackwell:
        return _nvlink(library, gpu, scope, field == 139, 1024)
    if field in (202, 204) and blackwell and library.driver_version >= (560,):
        return _nvlink(library, gpu, scope, field == 204, 1)
    return None


def _nvlink(library: Library, gpu: GpuState, scope: int, received: bool, unit: int) -> tuple[int, int] | None:
    links = nvlinks(library, gpu)
    if not links or (scope != ALL_LINKS and scope >= links):
        return None
    share = 1 if scope == ALL_LINKS else links
    return UNSIGNED_LONG_LONG, nvlink_bytes(library, gpu)[received] // share // unit
