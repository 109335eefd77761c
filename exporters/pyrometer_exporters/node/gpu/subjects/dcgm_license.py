"""DCGM's vGPU licence status: 1 if a virtual GPU has one; 0 on hardware that needs none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.gpu.families import GpuFamilies
from pyrometer_exporters.node.gpu.nvml import FieldKey, optional
from pyrometer_exporters.node.gpu.subject import OpenGpu, SubjectSpec

# fmt: off
VGPU_LICENSE_STATUS = GpuFamilies().dcgm_gauge("DCGM_FI_DEV_VGPU_LICENSE_STATUS",
    "1 if this virtual GPU has its licence, else 0, also where none is needed; nvmlDeviceGetGridLicensableFeatures.")
# fmt: on
_VGPU = 1  # NVML_GRID_LICENSE_FEATURE_CODE_VGPU
# Licences come and go with leases of hours.
REFRESH_SECONDS = 60.0


class License:
    """Asked once where there is nothing to license, else once a minute."""

    def __init__(self) -> None:
        self._gpu: OpenGpu | None = None
        self._status: float | None = None
        self._licensable = False
        self._asked_at = 0.0

    def open(self, gpu: OpenGpu) -> None:
        """Ask for the first time."""
        self._gpu = gpu
        self._ask(gpu)

    def fields(self) -> Sequence[FieldKey]:
        """Return none."""
        return ()

    def read(self, fields: Mapping[FieldKey, float]) -> Iterable[Sample]:  # noqa: ARG002  it has none
        """Yield DCGM's sample."""
        gpu = self._gpu
        if gpu is None:
            return
        if self._licensable and gpu.context.clock.monotonic() - self._asked_at >= REFRESH_SECONDS:
            self._ask(gpu)
        if self._status is not None:
            yield gpu.dcgm(VGPU_LICENSE_STATUS, self._status)

    def _ask(self, gpu: OpenGpu) -> None:
        self._asked_at = gpu.context.clock.monotonic()
        found = optional(lambda: gpu.nvml.ask("nvmlDeviceGetGridLicensableFeatures", gpu.handle))
        self._status = None
        if found is None:
            return
        self._licensable = bool(found.isGridLicenseSupported)
        if not self._licensable:
            self._status = 0.0
        for feature in found.gridLicensableFeatures[: found.licensableFeaturesCount]:
            if feature.featureCode == _VGPU:
                self._status = float(feature.featureState > 0)


SUBJECT = SubjectSpec(name="dcgm_license", families=(VGPU_LICENSE_STATUS,), make=License)
