"""MIG: whether the GPU is divided, its instances, their memory and their work.

Source: nvmlDeviceGetMigMode, nvmlDeviceGetMigDeviceHandleByIndex; of each instance nvmlDeviceGetName,
nvmlDeviceGetUUID, nvmlDeviceGetGpuInstanceId, nvmlDeviceGetMemoryInfo_v2 and, from Hopper on, nvmlGpmMigSampleGet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pyrometer_exporters.framework.metrics import Family, Sample
from pyrometer_exporters.node.gpu import families, profiling
from pyrometer_exporters.node.gpu.field_subject import FieldSubject, dcgm_family, own_family
from pyrometer_exporters.node.gpu.gpm import Gpm
from pyrometer_exporters.node.gpu.nvml import FieldKey, Handle, Memory, NvmlError
from pyrometer_exporters.node.gpu.readings import BYTES_PER_MIB
from pyrometer_exporters.node.gpu.subject import Opened, SubjectSpec, optional

# dcgm-exporter's labels for a GPU instance, beyond those of its GPU.
INSTANCE_LABELS = (*families.DCGM_LABELS, "GPU_I_PROFILE", "GPU_I_ID")

MODE = dcgm_family(
    "DCGM_FI_DEV_MIG_MODE",
    "gauge",
    "1 if the GPU is in MIG mode, else 0, from nvmlDeviceGetMigMode; absent where it can't be.",
    seldom=True,
)
INFO = own_family(
    "pyrometer_gpu_mig_instance_info",
    "gauge",
    "1; a MIG device: its GPU instance's id and profile, and the UUID under which CUDA and Kubernetes know it",
    "GPU_I_ID",
    "GPU_I_PROFILE",
    "mig_uuid",
    seldom=True,
)
# The names of the whole GPU's families, as dcgm-exporter has it: series with GPU_I_ID are instances, the one without is
# the GPU.
FB_FREE = Family("DCGM_FI_DEV_FB_FREE", "gauge", families.FB_FREE.help, INSTANCE_LABELS)
FB_USED = Family("DCGM_FI_DEV_FB_USED", "gauge", families.FB_USED.help, INSTANCE_LABELS)
FB_RESERVED = Family("DCGM_FI_DEV_FB_RESERVED", "gauge", families.FB_RESERVED.help, INSTANCE_LABELS)
# GPM's ratios, of the instance's own share of the GPU; a divided GPU has no DCGM_FI_DEV_GPU_UTIL.
RATIOS = {metric: replace(family, labels=INSTANCE_LABELS) for metric, family in profiling.RATIOS.items()}
_METRICS = tuple(RATIOS)
_MOST_PERCENT = 105  # as profiling allows it


@dataclass(frozen=True)
class Instance:
    """A GPU instance, by the first MIG device in it."""

    handle: Handle
    id: str
    profile: str
    """Such as ``1g.10gb``."""
    uuid: str


class _Mig(FieldSubject):
    def __init__(self) -> None:
        super().__init__()
        self._instances: dict[str, Instance] = {}
        self._gpms: dict[str, Gpm] = {}

    def open(self, gpu: Opened) -> None:
        """Samples from before a loss are of no use."""
        for gpm in self._gpms.values():
            gpm.release()
        self._gpms = {}
        super().open(gpu)

    def rare(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """Mode and instances; they are changed by hand."""
        self._instances = {}
        mode = self.ask("nvmlDeviceGetMigMode")
        if mode is not None:
            current = int(mode[0])
            yield self.gpu.dcgm(MODE, current)
            if current:
                yield from self._found()
        self._follow()

    def _follow(self) -> None:
        """Profiling of the instances that there are, and of no others."""
        for gone in self._gpms.keys() - self._instances.keys():
            self._gpms.pop(gone).release()
        for new in self._instances.keys() - self._gpms.keys():
            self._gpms[new] = Gpm()
            self._gpms[new].open(self.gpu.nvml, self.gpu.handle, int(new))

    def _found(self) -> Iterable[Sample]:
        for index in range(int(self.ask_number("nvmlDeviceGetMaxMigDeviceCount") or 0)):
            handle = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", index)  # NOT_FOUND where there is none
            instance = optional(lambda handle=handle: self._described(handle))  # type: ignore[misc]
            if instance is not None:
                # An instance can hold several compute instances, each a device of its own, over one memory.
                self._instances.setdefault(instance.id, instance)
                yield self.gpu.own(INFO, 1, instance.id, instance.profile, instance.uuid)

    def _described(self, handle: Handle | None) -> Instance | None:
        if handle is None:
            return None
        nvml = self.gpu.nvml
        found = str(nvml.ask("nvmlDeviceGetGpuInstanceId", handle))
        return Instance(handle, found, profile_of(nvml.text(handle, "Name")), nvml.text(handle, "UUID"))

    def now(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """The instances' memory and work."""
        for instance in self._instances.values():
            memory = self._memory_of(instance)
            if memory is None:
                self._gpms.pop(instance.id).release()
                self.again()
                continue
            sizes = ((FB_FREE, memory.free), (FB_USED, memory.used), (FB_RESERVED, memory.reserved))
            for family, size in sizes:
                yield self.gpu.dcgm(family, size // BYTES_PER_MIB, instance.profile, instance.id)
            yield from self._profiled(instance)

    def _memory_of(self, instance: Instance) -> Memory | None:
        """None where the instance was destroyed since it was found, even if another has its place and handle."""
        nvml = self.gpu.nvml
        try:
            return nvml.memory(instance.handle) if nvml.text(instance.handle, "UUID") == instance.uuid else None
        except NvmlError:  # whether the GPU itself is ill, its own calls tell
            return None

    def _profiled(self, instance: Instance) -> Iterable[Sample]:
        # Without a compute instance in it a GPU instance has no samples.
        found = self._gpms[instance.id].read(self.gpu.shared.clock.monotonic(), _METRICS) or {}
        for metric, family in RATIOS.items():
            if 0 <= found.get(metric, -1) <= _MOST_PERCENT:
                yield self.gpu.dcgm(family, found[metric] / 100, instance.profile, instance.id)


def profile_of(name: str) -> str:
    """The GPU instance's profile from a MIG device's name.

    >>> profile_of("NVIDIA H100 80GB HBM3 MIG 1c.2g.20gb")
    '2g.20gb'
    """
    profile = name.rpartition("MIG ")[2]
    slices, _, rest = profile.partition(".")
    return rest if slices.endswith("c") and rest else profile


SUBJECT = SubjectSpec("mig", (MODE, INFO, FB_FREE, FB_USED, FB_RESERVED, *RATIOS.values()), _Mig)
