"""MIG: the mode of the GPU, its instances, their memory and their work.

Source: nvmlDeviceGetMigMode, nvmlDeviceGetMigDeviceHandleByIndex; of each instance nvmlDeviceGetName,
nvmlDeviceGetUUID, nvmlDeviceGetGpuInstanceId, nvmlDeviceGetMemoryInfo_v2 and, from Hopper on, nvmlGpmMigSampleGet.

Instances come and go while a scheduler divides a GPU differently for each job. NVML counts none of this: its number of
MIG devices is the largest possible, and a handle may belong to another instance than before. So every scrape asks a GPU
that can be divided for its mode, and one that is divided for the UUID at each place; only new ones are asked for more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from pyrometer_exporters.framework.metrics import Family, Sample
from pyrometer_exporters.node.gpu import families
from pyrometer_exporters.node.gpu.families import GpuFamilies
from pyrometer_exporters.node.gpu.field_subject import FieldSubject
from pyrometer_exporters.node.gpu.gpm import Gpm
from pyrometer_exporters.node.gpu.nvml import FieldKey, Handle, NvmlError
from pyrometer_exporters.node.gpu.readings import BYTES_PER_MIB
from pyrometer_exporters.node.gpu.subject import OpenGpu, SubjectSpec
from pyrometer_exporters.node.gpu.subjects import dcgm_profiling

T = TypeVar("T")

# dcgm-exporter's labels for a GPU instance, beyond those of its GPU.
INSTANCE_LABELS = (*families.DCGM_LABELS, "GPU_I_PROFILE", "GPU_I_ID")

# fmt: off
_ROWS = GpuFamilies()
MODE = _ROWS.dcgm_gauge("DCGM_FI_DEV_MIG_MODE",
    "1 if the GPU is in MIG mode, else 0, from nvmlDeviceGetMigMode; absent where it can't be.")
INFO = _ROWS.gauge("pyrometer_gpu_mig_instance_info",
    "1; a MIG device: its GPU instance's id and profile, and the UUID under which CUDA and Kubernetes know it",
    "GPU_I_ID", "GPU_I_PROFILE", "mig_uuid")
# fmt: on
# The names of the whole GPU's families, as dcgm-exporter has it: series with GPU_I_ID are instances, the one without is
# the GPU.
FB_FREE = Family("DCGM_FI_DEV_FB_FREE", "gauge", families.FB_FREE.help, INSTANCE_LABELS)
FB_USED = Family("DCGM_FI_DEV_FB_USED", "gauge", families.FB_USED.help, INSTANCE_LABELS)
FB_RESERVED = Family("DCGM_FI_DEV_FB_RESERVED", "gauge", families.FB_RESERVED.help, INSTANCE_LABELS)
# GPM's ratios, of the instance's own share of the GPU; a divided GPU has no DCGM_FI_DEV_GPU_UTIL.
RATIOS = {metric: replace(family, labels=INSTANCE_LABELS) for metric, family in dcgm_profiling.RATIOS.items()}
_METRICS = tuple(RATIOS)
_MOST_PERCENT = 105  # as profiling allows it


class Instance(NamedTuple):
    """A MIG device: a compute instance, and the GPU instance that it is in."""

    id: str
    """The GPU instance's."""
    profile: str
    """Such as ``1g.10gb``."""
    uuid: str


class _Mig(FieldSubject):
    def __init__(self) -> None:
        super().__init__()
        self._capable = True
        self._places = 0
        self._known: dict[str, Instance] = {}
        """By UUID, those of the last scrape."""
        self._gpms: dict[str, Gpm] = {}
        """By the UUID of the device whose GPU instance is profiled."""

    def open(self, gpu: OpenGpu) -> None:
        """Drop the samples from before a loss."""
        super().open(gpu)
        self._profile({})
        self._known, self._capable = {}, True

    def now(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """Yield mode and instances, and their memory and work."""
        mode = self.ask("nvmlDeviceGetMigMode") if self._capable or self.due else None
        self._capable = mode is not None
        divided = mode is not None and int(mode[0]) != 0
        if mode is not None:
            yield self.gpu.dcgm(MODE, int(mode[0]))
        handles = self._handles() if divided else {}
        self._known = {
            uuid: instance for uuid, handle in handles.items() if (instance := self._described(uuid, handle))
        }
        # An instance can hold several compute instances, each a device of its own, over one memory.
        first = {instance.id: instance for instance in reversed(self._known.values())}
        self._profile(first)
        for instance in self._known.values():
            yield self.gpu.own(INFO, 1, instance.id, instance.profile, instance.uuid)
        for instance in first.values():
            yield from self._of(instance, handles[instance.uuid])

    def _handles(self) -> dict[str, Handle]:
        """Return the handles of the present MIG devices, by UUID."""
        if not self._known or self.due:
            self._places = int(self.ask_number("nvmlDeviceGetMaxMigDeviceCount") or 0)
        handles: dict[str, Handle] = {}
        for place in range(self._places):
            handle = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", place)  # NOT_FOUND where there is none
            if handle is None:
                continue
            uuid = _there(partial(self.gpu.nvml.text, handle, "UUID"))
            if uuid is not None:
                handles[uuid] = handle
        return handles

    def _described(self, uuid: str, handle: Handle) -> Instance | None:
        instance = None if self.due else self._known.get(uuid)  # old drivers make UUIDs of nothing but the two ids
        return instance or _there(lambda: self._asked(uuid, handle))

    def _asked(self, uuid: str, handle: Handle) -> Instance:
        nvml = self.gpu.nvml
        return Instance(
            str(nvml.ask("nvmlDeviceGetGpuInstanceId", handle)), profile_of(nvml.text(handle, "Name")), uuid
        )

    def _profile(self, instances: Mapping[str, Instance]) -> None:
        """Profile these GPU instances and no others."""
        ids = {instance.uuid: instance.id for instance in instances.values()}
        for gone in self._gpms.keys() - ids.keys():
            self._gpms.pop(gone).release(self.gpu.generation)
        for new in ids.keys() - self._gpms.keys():
            self._gpms[new] = Gpm()
            self._gpms[new].open(self.gpu, int(ids[new]))

    def _of(self, instance: Instance, handle: Handle) -> Iterable[Sample]:
        memory = _there(lambda: self.gpu.nvml.memory(handle))
        if memory is None:
            return
        for family, size in ((FB_FREE, memory.free), (FB_USED, memory.used), (FB_RESERVED, memory.reserved)):
            yield self.gpu.dcgm(family, size // BYTES_PER_MIB, instance.profile, instance.id)
        yield from self._profiled(instance)

    def _profiled(self, instance: Instance) -> Iterable[Sample]:
        # Without a compute instance in it a GPU instance has no samples.
        metrics = self._gpms[instance.uuid].read(self.gpu.context.clock.monotonic(), _METRICS) or {}
        for metric, family in RATIOS.items():
            if 0 <= metrics.get(metric, -1) <= _MOST_PERCENT:
                yield self.gpu.dcgm(family, metrics[metric] / 100, instance.profile, instance.id)


def _there(read: Callable[[], T]) -> T | None:
    """Read a value of an instance; None if it was destroyed a moment ago. The GPU's own calls report its health."""
    try:
        return read()
    except NvmlError:
        return None


def profile_of(name: str) -> str:
    """Return the GPU instance's profile from a MIG device's name.

    >>> profile_of("NVIDIA H100 80GB HBM3 MIG 1c.2g.20gb")
    '2g.20gb'
    """
    profile = name.rpartition("MIG ")[2]
    slices, _, rest = profile.partition(".")
    return rest if slices.endswith("c") and rest else profile


SUBJECT = SubjectSpec("mig", (MODE, INFO, FB_FREE, FB_USED, FB_RESERVED, *RATIOS.values()), _Mig)
