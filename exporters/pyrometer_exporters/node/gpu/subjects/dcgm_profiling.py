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
from pyrometer_exporters.node.gpu.profiling import ENGINES, RATES, RATIOS
from pyrometer_exporters.node.gpu.subject import BoundSamples, OpenGpu, SubjectSpec
from pyrometer_exporters.node.gpu.throughput import (
    PCIE_RECEIVED,
    PCIE_TRANSMITTED,
    PcieCounters,
    Traffic,
    pcie_fields,
)

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
# fmt: on

BYTES_PER_MIB = 1 << 20
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


class _Bound(NamedTuple):
    """A metric and the series that it becomes on one GPU, its labels made up once: there are sixty."""

    metric: int
    family: Family
    labels: tuple[str, ...]


class Profiling:
    """One GPU's GPM; the counters of bytes over PCIe too, which come from GPM or else from field values."""

    def __init__(self) -> None:
        self._gpu: OpenGpu | None = None
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
        self._ratios = [_bound(metric, gpu.dcgm(family, 0)) for metric, family in RATIOS.items()]
        self._engines = [_bound(metric, gpu.dcgm(family, 0)) for metric, family in ENGINES.items()]
        self._rates = [_bound(metric, gpu.dcgm(family, 0)) for metric, family in RATES.items()]
        self._totals = BoundSamples({metric: gpu.own(family, 0, *more) for metric, family, more in _TOTALS})

    def fields(self) -> Sequence[FieldKey]:
        """Return the counters of bytes over PCIe."""
        return self._fields

    def read(self, fields: Mapping[FieldKey, float]) -> Iterable[Sample | Columns]:
        """Yield DCGM's averages since an earlier scrape, and our counters."""
        gpu = self._gpu
        if gpu is None:
            return
        found = self._gpm.read(gpu.context.clock.monotonic(), self._metrics)
        if found is not None:
            if (
                not found and self._pcie_from_gpm is None
            ):  # refused from the first: not again with what few drivers know
                self._metrics = _AVERAGES
            if self._pcie_from_gpm is None:
                self._pcie_from_gpm = _PCIE_TX in found and _PCIE_RX in found
            yield columns_of(self._averages(found))
            yield self._totals.read(found)
        traffic = self._pcie.read(fields) if self._pcie_from_gpm is False else _pcie_of(found or {})
        if traffic is not None:
            yield PCIE_TRANSMITTED.sample(traffic.transmitted, *gpu.labels)
            yield PCIE_RECEIVED.sample(traffic.received, *gpu.labels)

    def _averages(self, found: Mapping[int, float]) -> Iterable[Row]:
        worked = self._worked
        worked.update(metric for metric in ENGINES if found.get(metric, 0) > 0)
        shown = [*self._ratios, *(each for each in self._engines if each.metric in worked)] if worked else self._ratios
        for metric, family, labels in shown:
            ratio = found.get(metric, -1) / 100
            if 0 <= ratio <= _MOST_RATIO:
                yield family, labels, ratio
        for metric, family, labels in self._rates:
            if found.get(metric, -1) >= 0:
                yield family, labels, int(found[metric] * BYTES_PER_MIB)


def _bound(metric: int, sample: Sample) -> _Bound:
    return _Bound(metric, sample.family, sample.labels)


def _pcie_of(found: Mapping[int, float]) -> Traffic | None:
    return Traffic(found[_PCIE_TX], found[_PCIE_RX]) if _PCIE_TX in found and _PCIE_RX in found else None


SUBJECT = SubjectSpec(
    name="dcgm_profiling",
    families=(*RATIOS.values(), *RATES.values(), *ENGINES.values(), *_ROWS, PCIE_TRANSMITTED, PCIE_RECEIVED),
    make=Profiling,
)
