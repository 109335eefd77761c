"""The PCIe link: how wide and fast it is, how wide and fast it could be, and its errors.

Source: nvmlDeviceGetCurrPcieLinkWidth and its three sisters; nvmlDeviceGetFieldValues, fields 169 and 173-183 (nvml.h,
NVML_FI_DEV_PCIE_*).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.gpu import number_calls
from pyrometer_exporters.node.gpu.families import GpuFamilies, seldom
from pyrometer_exporters.node.gpu.field_subject import FieldSample, FieldSubject
from pyrometer_exporters.node.gpu.nvml import FieldKey, NvmlError, number_or_none
from pyrometer_exporters.node.gpu.subject import OpenGpu, SubjectSpec

# fmt: off
_ROWS = GpuFamilies()
LINK_WIDTH = _ROWS.dcgm_gauge("DCGM_FI_DEV_PCIE_LINK_WIDTH",
    "Lanes of the PCIe link in use, from nvmlDeviceGetCurrPcieLinkWidth.")
LINK_GEN = _ROWS.dcgm_gauge("DCGM_FI_DEV_PCIE_LINK_GEN",
    "Generation of PCIe in use, from nvmlDeviceGetCurrPcieLinkGeneration; lower while the GPU is idle, to save power.")
MAX_LINK_WIDTH = _ROWS.dcgm_gauge("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH",
    seldom("Most lanes that GPU and slot can have, from nvmlDeviceGetMaxPcieLinkWidth."))
MAX_LINK_GEN = _ROWS.dcgm_gauge("DCGM_FI_DEV_PCIE_MAX_LINK_GEN",
    seldom("Newest generation of PCIe that GPU and slot can have, from nvmlDeviceGetMaxPcieLinkGeneration."))
ERRORS = _ROWS.counter("pyrometer_gpu_pcie_errors_total",
    seldom("Errors of the PCIe link as the GPU counts them, from NVML fields 169 and 173-183; l0_to_recovery are "
    "retrainings."), "error")
# fmt: on

_ERRORS = {
    169: "l0_to_recovery",
    173: "correctable",
    174: "naks_received",
    175: "receiver",
    176: "bad_tlp",
    177: "naks_sent",
    178: "bad_dllp",
    179: "non_fatal",
    180: "fatal",
    181: "unsupported_request",
    182: "lcrc",
    183: "lane",
}
# No link has more; 0 and -1 in an unsigned mean that there is no link, or that the driver doesn't know.
_MOST_LANES, _MOST_GENERATION = 32, 15
_NOW = ((LINK_WIDTH, _MOST_LANES), (LINK_GEN, _MOST_GENERATION))


class _PcieLink(FieldSubject):
    def __init__(self) -> None:
        super().__init__(seldom=[FieldSample(field, ERRORS, (error,)) for field, error in _ERRORS.items()])
        self._numbers: Callable[[], list[int | NvmlError]] = list

    def open(self, gpu: OpenGpu) -> None:
        """See FieldSubject."""
        super().open(gpu)
        self._numbers = gpu.nvml.numbers(gpu.handle, [number_calls.LINK_WIDTH, number_calls.LINK_GENERATION])

    def now(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """Yield the present width and generation."""
        for (family, most), answer in zip(_NOW, self._numbers(), strict=True):
            number = number_or_none(answer)
            if number is not None and 1 <= number <= most:
                yield self.gpu.dcgm(family, number)

    def rare(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """Yield the largest width and generation."""
        yield from self.dcgm_number(MAX_LINK_WIDTH, "nvmlDeviceGetMaxPcieLinkWidth", _MOST_LANES)
        yield from self.dcgm_number(MAX_LINK_GEN, "nvmlDeviceGetMaxPcieLinkGeneration", _MOST_GENERATION)


SUBJECT = SubjectSpec("pcie_link", tuple(_ROWS), _PcieLink)
