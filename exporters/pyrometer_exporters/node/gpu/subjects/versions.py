"""Versions of a GPU's parts and of NVML: DCGM's optional labels, but as one series for each GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.gpu.families import GpuFamilies
from pyrometer_exporters.node.gpu.nvml import FieldKey, optional
from pyrometer_exporters.node.gpu.subject import OpenGpu, SubjectSpec

# fmt: off
VERSIONS = GpuFamilies().gauge("pyrometer_gpu_versions_info",
    "1; versions of NVML (nvmlSystemGetNVMLVersion) and of the board's InfoROM (nvmlDeviceGetInforomImageVersion, "
    "nvmlDeviceGetInforomVersion), and the brand (nvmlDeviceGetBrand); empty where there is none.",
    "nvml", "brand", "inforom_image", "inforom_oem", "inforom_ecc", "inforom_power")
# fmt: on
_OEM, _ECC, _POWER = 0, 1, 2  # nvml.h, nvmlInforomObject_t

# nvml.h, nvmlBrandType_t, in its order.
_BRANDS = (
    "", "Quadro", "Tesla", "NVS", "GRID", "GeForce", "Titan", "NVIDIA vApps", "NVIDIA vPC", "NVIDIA vCS", "NVIDIA vWS",
    "NVIDIA Cloud Gaming", "Quadro RTX", "NVIDIA RTX", "NVIDIA", "GeForce RTX", "Titan RTX", "NVIDIA DLA",
    "NVIDIA vGameDev", "NVIDIA NPU",
)  # fmt: skip


class Versions:
    """Read when the GPU is opened: none of it changes while the driver is loaded."""

    def __init__(self) -> None:
        self._sample: Sample | None = None

    def open(self, gpu: OpenGpu) -> None:
        """Ask for all of them."""
        brand = optional(lambda: int(gpu.nvml.ask("nvmlDeviceGetBrand", gpu.handle)))
        self._sample = VERSIONS.sample(
            1,
            *gpu.labels,
            _text(optional(gpu.nvml.library_version)),
            _BRANDS[brand] if brand is not None and brand < len(_BRANDS) else "",
            _text(optional(lambda: gpu.nvml.ask("nvmlDeviceGetInforomImageVersion", gpu.handle))),
            *(_inforom(gpu, part) for part in (_OEM, _ECC, _POWER)),
        )

    def fields(self) -> Sequence[FieldKey]:
        """Return none."""
        return ()

    def read(self, fields: Mapping[FieldKey, float]) -> Iterable[Sample]:  # noqa: ARG002  it has none
        """Yield the one series."""
        if self._sample is not None:
            yield self._sample


def _inforom(gpu: OpenGpu, part: int) -> str:
    return _text(optional(lambda: gpu.nvml.ask("nvmlDeviceGetInforomVersion", gpu.handle, part)))


def _text(found: object) -> str:
    # Older releases of the binding give bytes.
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found or "")


SUBJECT = SubjectSpec(name="versions", families=(VERSIONS,), make=Versions)
