"""How much a GPU's NVLinks carried: as the counters that they are, and beside them in DCGM's way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.gpu.clock_events import version_numbers
from pyrometer_exporters.node.gpu.families import GpuFamilies
from pyrometer_exporters.node.gpu.nvml import FieldKey
from pyrometer_exporters.node.gpu.rate_window import RateWindow, Traffic
from pyrometer_exporters.node.gpu.subject import OpenGpu, SubjectSpec

# fmt: off
_ROWS = GpuFamilies()
TRANSMITTED = _ROWS.counter("pyrometer_gpu_nvlink_transmitted_bytes_total",
    "Bytes sent over all NVLinks since the driver was loaded, NVML field 138 (payload), from NVLink 5 on 202.")
RECEIVED = _ROWS.counter("pyrometer_gpu_nvlink_received_bytes_total",
    "Bytes received over all NVLinks since the driver was loaded, NVML field 139 (payload), from NVLink 5 on 204.")
BANDWIDTH_TOTAL = _ROWS.dcgm_counter("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "Both directions of all NVLinks in 1000 KiB/s since an earlier scrape: a rate, though DCGM calls it a counter; "
    "use rate() on pyrometer_gpu_nvlink_transmitted_bytes_total instead.")
BANDWIDTH_L0 = _ROWS.dcgm_counter("DCGM_FI_DEV_NVLINK_BANDWIDTH_L0",
    "Both directions of NVLink 0 in 1000 KiB/s since an earlier scrape: a rate, though DCGM calls it a counter.")
# fmt: on

ALL_LINKS = 0xFFFFFFFF  # the scope that sums up a GPU's NVLinks
BYTES_PER_KIB = 1024


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


class NvlinkThroughput:
    """Absent on GPUs without NVLink."""

    def __init__(self) -> None:
        self._gpu: OpenGpu | None = None
        self._wanted: Sequence[FieldKey] = ()
        self._begin()

    def open(self, gpu: OpenGpu) -> None:
        """Reset for another GPU or driver; else keep the counters that were chosen."""
        before, self._gpu = self._gpu, gpu
        driver = gpu.identity.driver
        self._wanted = [*nvlink_fields(driver, ALL_LINKS), *nvlink_fields(driver, 0)]
        if before is not None and (before.identity.uuid, before.identity.driver) != (gpu.identity.uuid, driver):
            self._begin()

    def _begin(self) -> None:
        self._all, self._link0 = NvlinkCounters(ALL_LINKS), NvlinkCounters(0)
        self._rates = {BANDWIDTH_TOTAL: _Rate(), BANDWIDTH_L0: _Rate()}

    def fields(self) -> Sequence[FieldKey]:
        """Return the fields of all links together, and of the first."""
        return self._wanted

    def read(self, fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """Yield counters from the first scrape on, DCGM's rates from the second."""
        gpu = self._gpu
        if gpu is None:
            return
        now = gpu.context.clock.monotonic()
        traffic = self._all.read(fields)
        if traffic is not None:
            yield TRANSMITTED.sample(traffic.transmitted, *gpu.labels)
            yield RECEIVED.sample(traffic.received, *gpu.labels)
        for family, counted in ((BANDWIDTH_TOTAL, traffic), (BANDWIDTH_L0, self._link0.read(fields))):
            rate = None if counted is None else self._rates[family].since_earlier(now, counted)
            if rate is not None:
                yield gpu.dcgm(family, rate)


class _Rate:
    def __init__(self) -> None:
        self._earlier: RateWindow[float] = RateWindow()
        self._last: float | None = None

    def since_earlier(self, now: float, traffic: Traffic) -> float | None:
        """DCGM's unit: KiB per second, divided by 1000, cut to a whole number."""
        if self._earlier.too_early(now):
            return self._last
        counted = sum(traffic)
        before = self._earlier.before(now)
        self._earlier.keep(now, counted)
        self._last = None
        if before is not None and counted >= before[1]:
            self._last = float(int((counted - before[1]) / BYTES_PER_KIB / 1000 / (now - before[0])))
        return self._last


SUBJECT = SubjectSpec("nvlink_throughput", tuple(_ROWS), NvlinkThroughput)
