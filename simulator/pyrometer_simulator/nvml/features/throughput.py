"""Bytes over NVLink and PCIe.

State: ``nvlinks`` (how many; 18, or 0 on boards whose model says PCIe), ``nvlink_bytes=[sent, received]`` and
``pcie_bytes=[sent, received]`` since the driver was loaded. Left alone, they grow with the work done.
"""

from __future__ import annotations

from pyrometer_simulator.nvml.library import UNSIGNED_LONG_LONG, FakeLibrary
from pyrometer_simulator.nvml.moment import Moment

ALL_LINKS = 0xFFFFFFFF
_IDLE_MILLIWATTS = 72_000  # what SimulatedGpu.idle draws
# At 650 W about 150 GB/s over NVLink and 5 GB/s over PCIe in each direction, as in training.
_NVLINK_BYTES_PER_MJ, _PCIE_BYTES_PER_MJ = 230_000, 8_000


def busy_mj(moment: Moment) -> float:
    """The energy used while the GPU wasn't idle, in millijoules: the measure of work done."""
    return max(0.0, moment.energy_mj() - _IDLE_MILLIWATTS * moment.reason_seconds(0))


def nvlinks(library: FakeLibrary, moment: Moment) -> int:
    """How many NVLinks the GPU has."""
    return int(library.extra(moment, "nvlinks", 0 if "PCIe" in library.model else 18))


def nvlink_bytes(library: FakeLibrary, moment: Moment) -> tuple[int, int]:
    """Sent and received, over all links."""
    done = int(busy_mj(moment) * _NVLINK_BYTES_PER_MJ)
    sent, received = library.extra(moment, "nvlink_bytes", (done, done))
    return sent, received


def pcie_bytes(library: FakeLibrary, moment: Moment) -> tuple[int, int]:
    """Sent and received."""
    done = int(busy_mj(moment) * _PCIE_BYTES_PER_MJ)
    sent, received = library.extra(moment, "pcie_bytes", (done, done))
    return sent, received


def field(library: FakeLibrary, moment: Moment, field: int, scope: int) -> tuple[int, int] | None:
    """NVLink in KiB up to Hopper (138, 139) and in bytes from Blackwell on (202, 204); PCIe in bytes (197, 198)."""
    if field in (197, 198) and library.driver >= (555,):
        return UNSIGNED_LONG_LONG, pcie_bytes(library, moment)[field == 198]
    blackwell = "B200" in library.model or "B300" in library.model
    if field in (138, 139) and not blackwell:
        return _nvlink(library, moment, scope, field == 139, 1024)
    if field in (202, 204) and blackwell and library.driver >= (560,):
        return _nvlink(library, moment, scope, field == 204, 1)
    return None


def _nvlink(library: FakeLibrary, moment: Moment, scope: int, received: bool, unit: int) -> tuple[int, int] | None:
    links = nvlinks(library, moment)
    if not links or (scope != ALL_LINKS and scope >= links):
        return None
    share = 1 if scope == ALL_LINKS else links
    return UNSIGNED_LONG_LONG, nvlink_bytes(library, moment)[received] // share // unit
