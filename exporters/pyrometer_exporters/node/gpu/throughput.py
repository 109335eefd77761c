"""Choose among a driver's counters of bytes over PCIe and NVLink, and convert their units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyrometer_exporters.node.gpu.clock_events import version_numbers
from pyrometer_exporters.node.gpu.families import GpuFamilies
from pyrometer_exporters.node.gpu.nvml import FieldKey

# fmt: off
_ROWS = GpuFamilies()
PCIE_TRANSMITTED = _ROWS.counter("pyrometer_gpu_pcie_transmitted_bytes_total",
    "Bytes that the GPU sent over PCIe: GPM metric 255 on R595 and newer, else NVML field 197 (driver 555 and newer), "
    "from 4 GiB on.")
PCIE_RECEIVED = _ROWS.counter("pyrometer_gpu_pcie_received_bytes_total",
    "Bytes that the GPU received over PCIe: GPM metric 256 on R595 and newer, else NVML field 198 (driver 555 and "
    "newer), from 4 GiB on.")
# fmt: on

ALL_LINKS = 0xFFFFFFFF  # the scope that sums up a GPU's NVLinks
BYTES_PER_KIB = 1024
# A Gen5 x16 link fills 32 bits in 70 ms: whatever wraps there can't be read once per scrape.
MOST_IN_32_BITS = (1 << 32) - 1


class Traffic(NamedTuple):
    """Bytes since the driver was loaded."""

    transmitted: float
    received: float


def nvlink_fields(driver: str, link: int = ALL_LINKS) -> list[FieldKey]:
    """Return the field values to ask for on this driver; see :class:`NvlinkCounters`."""
    fields: list[FieldKey] = [(138, link), (139, link)]
    # NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES and _RCV_BYTES came with R560; before, nobody says what the ids mean.
    return [*fields, (202, link), (204, link)] if version_numbers(driver) >= (560,) else fields


class NvlinkCounters:
    """The bytes over all of a GPU's NVLinks, or over one of them.

    Up to Hopper NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and _RX (138, 139: payload in KiB), which is what DCGM reads;
    from NVLink 5 on NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES and _RCV_BYTES (202, 204). The first of them that has counted
    anything is kept to, so that the sum never jumps from one to the other.
    """

    def __init__(self, link: int = ALL_LINKS) -> None:
        self._sources = (((138, link), (139, link), BYTES_PER_KIB), ((202, link), (204, link), 1))
        self._chosen: tuple[tuple[int, int], tuple[int, int], int] | None = None

    def read(self, fields: Mapping[FieldKey, float]) -> Traffic | None:
        """Return the driver's counts; None without NVLinks."""
        there = [source for source in self._sources if source[0] in fields and source[1] in fields]
        if self._chosen is None:
            self._chosen = next((source for source in there if fields[source[0]] or fields[source[1]]), None)
        chosen = self._chosen or (there[0] if there else None)
        if chosen is None or chosen not in there:
            return None
        transmitted, received, unit = chosen
        return Traffic(fields[transmitted] * unit, fields[received] * unit)


def pcie_fields(driver: str) -> Sequence[FieldKey]:
    """Return NVML_FI_DEV_PCIE_COUNT_TX_BYTES and _RX_BYTES (197, 198), since R555."""
    return (197, 198) if version_numbers(driver) >= (555,) else ()


class PcieCounters:
    """The bytes over PCIe by the driver's field values, of which nvml.h says no more than that they can wrap.

    So they are believed only while they prove to be wider than 32 bits: served from 4 GiB on, and no longer once one
    went backwards while the GPU stayed open.
    """

    def __init__(self) -> None:
        self._last = Traffic(0, 0)
        self._wraps = False

    def read(self, fields: Mapping[FieldKey, float]) -> Traffic | None:
        """Return the driver's counts; None if there are none, or none that can be used."""
        if 197 not in fields or 198 not in fields:
            return None
        now, before = Traffic(fields[197], fields[198]), self._last
        self._last = now
        self._wraps |= now.transmitted < before.transmitted or now.received < before.received
        return now if not self._wraps and max(now) > MOST_IN_32_BITS else None
