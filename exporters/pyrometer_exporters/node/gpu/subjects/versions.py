"""Versions of a GPU's parts and of NVML: DCGM's optional labels, but as one series for each GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.gpu.families import GpuFamilies
from pyrometer_exporters.node.gpu.field_subject import FieldSubject
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


class _Versions(FieldSubject):
    _sample: Sample

    def open(self, gpu: OpenGpu) -> None:
        """Ask for all versions: none of them changes while the driver is loaded."""
        super().open(gpu)
        brand = self.ask_number("nvmlDeviceGetBrand")
        self._sample = VERSIONS.sample(
            1,
            *gpu.labels,
            _text(optional(gpu.nvml.library_version)),
            _BRANDS[int(brand)] if brand is not None and brand < len(_BRANDS) else "",
            _text(self.ask("nvmlDeviceGetInforomImageVersion")),
            *(_text(self.ask("nvmlDeviceGetInforomVersion", part)) for part in (_OEM, _ECC, _POWER)),
        )

    def now(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """Return the one series."""
        return (self._sample,)


def _text(answer: object) -> str:
    # Older releases of the binding give bytes.
    return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer or "")


SUBJECT = SubjectSpec("versions", (VERSIONS,), _Versions)
