"""DCGM's vGPU licence status: 1 if a virtual GPU has one; 0 on hardware that needs none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.gpu.families import GpuFamilies
from pyrometer_exporters.node.gpu.field_subject import FieldSubject
from pyrometer_exporters.node.gpu.nvml import FieldKey
from pyrometer_exporters.node.gpu.subject import SubjectSpec

# fmt: off
VGPU_LICENSE_STATUS = GpuFamilies().dcgm_gauge("DCGM_FI_DEV_VGPU_LICENSE_STATUS",
    "1 if this virtual GPU has its licence, else 0, also where none is needed; nvmlDeviceGetGridLicensableFeatures.")
# fmt: on
_VGPU = 1  # NVML_GRID_LICENSE_FEATURE_CODE_VGPU


class _License(FieldSubject):
    def rare(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """Yield the status; licences come and go with leases of hours."""
        licensable = self.ask("nvmlDeviceGetGridLicensableFeatures")
        if licensable is None:
            return
        features = licensable.gridLicensableFeatures[: licensable.licensableFeaturesCount]
        states = [feature.featureState > 0 for feature in features if feature.featureCode == _VGPU]
        if states or not licensable.isGridLicenseSupported:
            yield self.gpu.dcgm(VGPU_LICENSE_STATUS, float(any(states)))


SUBJECT = SubjectSpec("dcgm_license", (VGPU_LICENSE_STATUS,), _License)
