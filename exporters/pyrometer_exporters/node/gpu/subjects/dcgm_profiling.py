"""How busy the GPU's units really were: DCGM's profiling fields and exact counters of cycles, both from GPM.

``DCGM_FI_DEV_GPU_UTIL`` says that a kernel ran; these say whether it used the GPU. From Hopper on; older GPUs need
DCGM's own profiling module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pyrometer_exporters.framework.metrics import Columns, Family, Row, Sample, columns_of
from pyrometer_exporters.node.gpu.clock_events import version_numbers
from pyrometer_exporters.node.gpu.families import GpuFamilies
from pyrometer_exporters.node.gpu.gpm import Gpm
from pyrometer_exporters.node.gpu.nvml import FieldKey
from pyrometer_exporters.node.gpu.rate_window import Traffic
from pyrometer_exporters.node.gpu.readings import BYTES_PER_MIB
from pyrometer_exporters.node.gpu.subject import BoundSamples, OpenGpu, SubjectSpec

_DCGM = GpuFamilies()


def _ratio(name: str, what: str, metric: int) -> Family:
    return _DCGM.dcgm_gauge(name, f"Share of {what}, 0 to 1, GPM metric {metric}; the average since an earlier scrape.")


def _rate(name: str, what: str, metric: int) -> Family:
    return _DCGM.dcgm_gauge(name, f"Bytes per second {what}, GPM metric {metric}; the average since an earlier scrape.")


def _engine(name: str, what: str, metric: int) -> Family:
    text = f"Share of time in which {what} was busy, 0 to 1, GPM metric {metric}; the average since an earlier scrape, "
    return _DCGM.dcgm_gauge(name, f"{text}absent until it has worked once.")


_TENSOR = "time in which the tensor cores did"

# GPM gives percent; DCGM and we divide by 100.
RATIOS = {
    1: _ratio("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "time in which a compute or graphics engine was busy", 1),
    2: _ratio("DCGM_FI_PROF_SM_ACTIVE", "time in which the streaming multiprocessors had work, averaged over them", 2),
    3: _ratio("DCGM_FI_PROF_SM_OCCUPANCY", "warps resident of those that would fit", 3),
    5: _ratio("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "time in which the tensor cores were busy", 5),
    7: _ratio("DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE", f"{_TENSOR} half-precision products", 7),
    9: _ratio("DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE", f"{_TENSOR} integer products", 9),
    6: _ratio("DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE", f"{_TENSOR} double-precision products", 6),
    4: _ratio("DCGM_FI_PROF_PIPE_INT_ACTIVE", "time in which the integer pipes were busy", 4),
    11: _ratio("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "time in which the double-precision pipes were busy", 11),
    12: _ratio("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "time in which the single-precision pipes were busy", 12),
    13: _ratio("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "time in which the half-precision pipes were busy", 13),
    10: _ratio("DCGM_FI_PROF_DRAM_ACTIVE", "what the device memory's interface can transfer", 10),
}
# GPM gives MiB/s.
RATES = {
    20: _rate("DCGM_FI_PROF_PCIE_TX_BYTES", "sent over PCIe, headers included", 20),
    21: _rate("DCGM_FI_PROF_PCIE_RX_BYTES", "received over PCIe, headers included", 21),
    61: _rate("DCGM_FI_PROF_NVLINK_TX_BYTES", "sent over all NVLinks, headers included", 61),
    60: _rate("DCGM_FI_PROF_NVLINK_RX_BYTES", "received over all NVLinks, headers included", 60),
}
# Few GPUs in a cluster ever use these; zeros of all 15 that an H100 has would be a tenth of its series.
ENGINES = {
    30: _engine("DCGM_FI_PROF_NVDEC0_ACTIVE", "video decoder 0", 30),
    31: _engine("DCGM_FI_PROF_NVDEC1_ACTIVE", "video decoder 1", 31),
    32: _engine("DCGM_FI_PROF_NVDEC2_ACTIVE", "video decoder 2", 32),
    33: _engine("DCGM_FI_PROF_NVDEC3_ACTIVE", "video decoder 3", 33),
    34: _engine("DCGM_FI_PROF_NVDEC4_ACTIVE", "video decoder 4", 34),
    35: _engine("DCGM_FI_PROF_NVDEC5_ACTIVE", "video decoder 5", 35),
    36: _engine("DCGM_FI_PROF_NVDEC6_ACTIVE", "video decoder 6", 36),
    37: _engine("DCGM_FI_PROF_NVDEC7_ACTIVE", "video decoder 7", 37),
    40: _engine("DCGM_FI_PROF_NVJPG0_ACTIVE", "JPEG decoder 0", 40),
    41: _engine("DCGM_FI_PROF_NVJPG1_ACTIVE", "JPEG decoder 1", 41),
    42: _engine("DCGM_FI_PROF_NVJPG2_ACTIVE", "JPEG decoder 2", 42),
    43: _engine("DCGM_FI_PROF_NVJPG3_ACTIVE", "JPEG decoder 3", 43),
    44: _engine("DCGM_FI_PROF_NVJPG4_ACTIVE", "JPEG decoder 4", 44),
    45: _engine("DCGM_FI_PROF_NVJPG5_ACTIVE", "JPEG decoder 5", 45),
    46: _engine("DCGM_FI_PROF_NVJPG6_ACTIVE", "JPEG decoder 6", 46),
    47: _engine("DCGM_FI_PROF_NVJPG7_ACTIVE", "JPEG decoder 7", 47),
    50: _engine("DCGM_FI_PROF_NVOFA0_ACTIVE", "optical flow accelerator 0", 50),
    51: _engine("DCGM_FI_PROF_NVOFA1_ACTIVE", "optical flow accelerator 1", 51),
}
# fmt: off
_ROWS = GpuFamilies()
SM_CYCLES = _ROWS.counter("pyrometer_gpu_sm_cycles_total",
    "Cycles of the streaming multiprocessors since the node was booted, GPM metric 248; R595 and newer.")
SM_ACTIVE_CYCLES = _ROWS.counter("pyrometer_gpu_sm_active_cycles_total",
    "Cycles in which the streaming multiprocessors had work, GPM metric 249; divided by pyrometer_gpu_sm_cycles_total "
    "it is the exact average over any time; R595 and newer.")
PIPE_ACTIVE_CYCLES = _ROWS.counter("pyrometer_gpu_pipe_active_cycles_total",
    "Cycles in which a pipe of the streaming multiprocessors was busy, GPM metrics 250 to 260; pipe=tensor is all of "
    "the tensor cores' work, pipe=tensor_hmma and the like are its kinds; R595 and newer.", "pipe")
NVLINK_LINK_TRANSMITTED = _ROWS.counter("pyrometer_gpu_nvlink_link_transmitted_bytes_total",
    "Bytes sent over one NVLink since the node was booted, GPM metrics from 262 on; R595 and newer.", "link")
NVLINK_LINK_RECEIVED = _ROWS.counter("pyrometer_gpu_nvlink_link_received_bytes_total",
    "Bytes received over one NVLink since the node was booted, GPM metrics from 261 on; R595 and newer.", "link")
PCIE_TRANSMITTED = _ROWS.counter("pyrometer_gpu_pcie_transmitted_bytes_total",
    "Bytes that the GPU sent over PCIe: GPM metric 255 on R595 and newer, else NVML field 197 (driver 555 and newer), "
    "from 4 GiB on.")
PCIE_RECEIVED = _ROWS.counter("pyrometer_gpu_pcie_received_bytes_total",
    "Bytes that the GPU received over PCIe: GPM metric 256 on R595 and newer, else NVML field 198 (driver 555 and "
    "newer), from 4 GiB on.")
# fmt: on

# A Gen5 x16 link fills 32 bits in 70 ms: whatever wraps there can't be read once per scrape.
MOST_IN_32_BITS = (1 << 32) - 1
_SM_CYCLES, _SM_ACTIVE_CYCLES = 248, 249
_PIPES = {
    250: "tensor", 251: "tensor_dmma", 252: "tensor_hmma", 253: "tensor_imma", 254: "tensor_dfma",
    257: "int", 258: "fp64", 259: "fp32", 260: "fp16",
}  # fmt: skip
_PCIE_TX, _PCIE_RX = 255, 256
_FIRST_LINK_RX = 261  # received by link 0, sent by link 0, received by link 1, ...
_LINKS = 18  # of Hopper and Blackwell

_TOTALS: tuple[tuple[int, Family, tuple[str, ...]], ...] = (
    (_SM_CYCLES, SM_CYCLES, ()),
    (_SM_ACTIVE_CYCLES, SM_ACTIVE_CYCLES, ()),
    *((metric, PIPE_ACTIVE_CYCLES, (pipe,)) for metric, pipe in _PIPES.items()),
    *((_FIRST_LINK_RX + 2 * link, NVLINK_LINK_RECEIVED, (str(link),)) for link in range(_LINKS)),
    *((_FIRST_LINK_RX + 2 * link + 1, NVLINK_LINK_TRANSMITTED, (str(link),)) for link in range(_LINKS)),
)

_AVERAGES = (*RATIOS, *RATES, *ENGINES)
_SINCE_BOOT = (*(metric for metric, _family, _labels in _TOTALS), _PCIE_TX, _PCIE_RX)
# Only a little above what can be: two counters that aren't read at the same instant may give 100.1 %.
_MOST_RATIO = 1.05


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


class _Bound(NamedTuple):
    """A metric and the series that it becomes on one GPU, its labels made up once: there are sixty."""

    metric: int
    family: Family
    labels: tuple[str, ...]


class Profiling:
    """One GPU's GPM; the counters of bytes over PCIe too, which come from GPM or else from field values."""

    _gpu: OpenGpu

    def __init__(self) -> None:
        self._gpm = Gpm()
        self._fields: Sequence[FieldKey] = ()
        self._metrics: Sequence[int] = ()
        self._pcie = PcieCounters()
        self._pcie_from_gpm: bool | None = False  # None while that isn't known
        self._ratios: list[_Bound] = []
        self._engines: list[_Bound] = []
        self._rates: list[_Bound] = []
        self._totals = BoundSamples({})
        self._worked: set[int] = set()
        """Media engines that have worked since the GPU was first opened, by GPM metric."""

    def open(self, gpu: OpenGpu) -> None:
        """Ask whether the GPU has GPM; drop earlier samples."""
        self._gpu = gpu
        self._fields = pcie_fields(gpu.identity.driver)
        supported = self._gpm.open(gpu)
        has_totals = supported and version_numbers(gpu.identity.driver) >= (595,)
        self._metrics = (*_AVERAGES, *_SINCE_BOOT) if has_totals else _AVERAGES
        self._pcie = PcieCounters()
        self._pcie_from_gpm = None if has_totals else False
        self._ratios, self._engines, self._rates = (
            [_Bound(metric, *gpu.dcgm(family, 0)[:2]) for metric, family in table.items()]
            for table in (RATIOS, ENGINES, RATES)
        )
        self._totals = BoundSamples({metric: gpu.own(family, 0, *more) for metric, family, more in _TOTALS})

    def fields(self) -> Sequence[FieldKey]:
        """Return the counters of bytes over PCIe."""
        return self._fields

    def read(self, fields: Mapping[FieldKey, float]) -> Iterable[Sample | Columns]:
        """Yield DCGM's averages since an earlier scrape, and our counters."""
        gpu = self._gpu
        metrics = self._gpm.read(gpu.context.clock.monotonic(), self._metrics)
        if metrics is not None:
            if self._pcie_from_gpm is None:
                if not metrics:  # refused from the first: not again with what few drivers know
                    self._metrics = _AVERAGES
                self._pcie_from_gpm = _PCIE_TX in metrics and _PCIE_RX in metrics
            yield columns_of(self._averages(metrics))
            yield self._totals.read(metrics)
        traffic = self._pcie.read(fields) if self._pcie_from_gpm is False else _pcie_of(metrics or {})
        if traffic is not None:
            yield PCIE_TRANSMITTED.sample(traffic.transmitted, *gpu.labels)
            yield PCIE_RECEIVED.sample(traffic.received, *gpu.labels)

    def _averages(self, metrics: Mapping[int, float]) -> Iterable[Row]:
        worked = self._worked
        worked.update(metric for metric in ENGINES if metrics.get(metric, 0) > 0)
        engines = (engine for engine in self._engines if engine.metric in worked)
        for metric, family, labels in (*self._ratios, *engines):
            ratio = metrics.get(metric, -1) / 100
            if 0 <= ratio <= _MOST_RATIO:
                yield family, labels, ratio
        for metric, family, labels in self._rates:
            if metrics.get(metric, -1) >= 0:
                yield family, labels, int(metrics[metric] * BYTES_PER_MIB)


def _pcie_of(metrics: Mapping[int, float]) -> Traffic | None:
    return Traffic(metrics[_PCIE_TX], metrics[_PCIE_RX]) if _PCIE_TX in metrics and _PCIE_RX in metrics else None


SUBJECT = SubjectSpec("dcgm_profiling", (*_DCGM, *_ROWS), Profiling)
