"""MIG.

``set(mig=[{"id": 7, "profile": "1g.10gb", "used_mib": 12, "total_mib": 9984}])``: the GPU is in MIG mode with these
instances; an entry may be None for an empty slot, and a profile may name a compute instance (``1c.2g.20gb``). An
entry's ``gpm`` is as that of the GPU (``gpm.py``). An empty list is MIG mode without instances, None no MIG mode.
``set(mig="incapable")``: a GPU that has no MIG.
"""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

from pyrometer_simulator.nvml.abi import NOT_FOUND, NOT_SUPPORTED, SUCCESS, Body, Library, write_number, write_text
from pyrometer_simulator.nvml.gpu_state import GpuState

MIB = 1 << 20
_MAX_DEVICES = 7
_RESERVED_MIB = 16

# Functions that a GPU in MIG mode no longer supports (the last of them only while instances exist).
_NOT_IN_MIG = frozenset(
    {
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetEncoderUtilization",
        "nvmlDeviceGetDecoderUtilization",
        "nvmlDeviceGetPcieThroughput",
        "nvmlDeviceGetRemappedRows",
    }
)


def functions(library: Library) -> dict[str, Body]:
    """Return MIG mode and the enumeration of MIG devices."""

    def mode(gpu: GpuState, current: Any, pending: Any) -> int:  # noqa: ANN401
        instances = library.setting(gpu, "mig")
        if instances == "incapable":
            return NOT_SUPPORTED
        write_number(pending, gpu, int(instances is not None))
        return write_number(current, gpu, int(instances is not None))

    def open_device(gpu: GpuState, index: Any, out: Any) -> int:  # noqa: ANN401
        instances = library.setting(gpu, "mig") or []
        if index.value >= len(instances) or instances[index.value] is None:
            return NOT_FOUND
        address = ctypes.addressof(out._obj)  # noqa: SLF001
        ctypes.c_void_p.from_address(address).value = library.mig_handle(gpu, 1 + index.value)
        return SUCCESS

    return {
        "nvmlDeviceGetMigMode": library.device_call(mode),
        "nvmlDeviceGetMaxMigDeviceCount": library.device_call(lambda gpu, out: write_number(out, gpu, _MAX_DEVICES)),
        "nvmlDeviceGetMigDeviceHandleByIndex": library.device_call(open_device),
        "nvmlDeviceGetGpuInstanceId": library.device_call(lambda _gpu, _out: NOT_SUPPORTED),  # of a whole GPU
    }


def before(library: Library, gpu: GpuState, name: str, arguments: tuple[Any, ...]) -> int | None:
    """Answer for MIG devices, and refuse what a GPU in MIG mode no longer supports."""
    instances = library.setting(gpu, "mig")
    if not gpu.mig_device:
        return NOT_SUPPORTED if name in _NOT_IN_MIG and isinstance(instances, list) else None
    instance = dict(enumerate(instances or [], 1)).get(gpu.mig_device)
    if instance is None:
        return NOT_FOUND
    return _of_device(library, gpu, instance, name, arguments)


def _of_device(library: Library, gpu: GpuState, instance: dict[str, Any], name: str, arguments: tuple[Any, ...]) -> int:
    if name == "nvmlDeviceGetGpuInstanceId":
        return write_number(arguments[0], gpu, instance["id"])
    if name == "nvmlDeviceGetUUID":
        # Stable while the instance exists: a successor in the same slot, or with another profile, gets another UUID.
        made = zlib.crc32(f"{gpu.mig_device} {instance['id']} {instance['profile']}".encode())
        return write_text(f"MIG-{made:08x}{gpu.record.uuid.decode()[12:]}".encode(), *arguments)
    if name == "nvmlDeviceGetName":
        return write_text(f"{library.model} MIG {instance['profile']}".encode(), *arguments)
    if name == "nvmlDeviceGetMemoryInfo_v2":
        memory = arguments[0]._obj  # noqa: SLF001
        memory.total, memory.used = instance.get("total_mib", 9984) * MIB, instance.get("used_mib", 12) * MIB
        memory.reserved = _RESERVED_MIB * MIB
        memory.free = memory.total - memory.used - memory.reserved
        return SUCCESS
    return NOT_SUPPORTED
