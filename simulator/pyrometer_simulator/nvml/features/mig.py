"""MIG.

``set(mig=[{"id": 7, "profile": "1g.10gb", "used_mib": 12, "total_mib": 9984}])``: the GPU is in MIG mode with these
instances; an entry may be None for a place without one, and a profile may name a compute instance (``1c.2g.20gb``). An
entry's ``gpm`` is as that of the GPU (``gpm.py``). An empty list is MIG mode without instances, None no MIG mode.
``set(mig="incapable")``: a GPU that has no MIG.
"""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

from pyrometer_simulator.nvml.library import NOT_FOUND, NOT_SUPPORTED, SUCCESS, Body, FakeLibrary, put, put_text
from pyrometer_simulator.nvml.moment import Moment

MIB = 1 << 20
MOST_DEVICES = 7
_RESERVED_MIB = 16

# What a GPU as a whole no longer answers while it is divided (and, the last, while instances exist).
_NOT_IN_MIG = frozenset(
    {
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetEncoderUtilization",
        "nvmlDeviceGetDecoderUtilization",
        "nvmlDeviceGetPcieThroughput",
        "nvmlDeviceGetRemappedRows",
    }
)


def functions(library: FakeLibrary) -> dict[str, Body]:
    """Mode and enumeration."""

    def mode(moment: Moment, current: Any, pending: Any) -> int:  # noqa: ANN401
        instances = library.extra(moment, "mig")
        if instances == "incapable":
            return NOT_SUPPORTED
        put(pending, moment, int(instances is not None))
        return put(current, moment, int(instances is not None))

    def open_device(moment: Moment, index: Any, out: Any) -> int:  # noqa: ANN401
        instances = library.extra(moment, "mig") or []
        if index.value >= len(instances) or instances[index.value] is None:
            return NOT_FOUND
        address = ctypes.addressof(out._obj)  # noqa: SLF001
        ctypes.c_void_p.from_address(address).value = library.part_handle(moment, 1 + index.value)
        return SUCCESS

    return {
        "nvmlDeviceGetMigMode": library.device(mode),
        "nvmlDeviceGetMaxMigDeviceCount": library.device(lambda moment, out: put(out, moment, MOST_DEVICES)),
        "nvmlDeviceGetMigDeviceHandleByIndex": library.device(open_device),
        "nvmlDeviceGetGpuInstanceId": library.device(lambda _moment, _out: NOT_SUPPORTED),  # of a whole GPU
    }


def before(library: FakeLibrary, moment: Moment, name: str, arguments: tuple[Any, ...]) -> int | None:
    """What MIG devices answer, and what divided GPUs don't."""
    instances = library.extra(moment, "mig")
    if not moment.part:
        return NOT_SUPPORTED if name in _NOT_IN_MIG and isinstance(instances, list) else None
    instance = dict(enumerate(instances or [], 1)).get(moment.part)
    if instance is None:
        return NOT_FOUND
    return _of_device(library, moment, instance, name, arguments)


def _of_device(
    library: FakeLibrary, moment: Moment, instance: dict[str, Any], name: str, arguments: tuple[Any, ...]
) -> int:
    if name == "nvmlDeviceGetGpuInstanceId":
        return put(arguments[0], moment, instance["id"])
    if name == "nvmlDeviceGetUUID":
        # Its own as long as it exists: one that is made anew in its place, or with another profile, has another.
        made = zlib.crc32(f"{moment.part} {instance['id']} {instance['profile']}".encode())
        return put_text(f"MIG-{made:08x}{moment.record.uuid.decode()[12:]}".encode(), *arguments)
    if name == "nvmlDeviceGetName":
        return put_text(f"{library.model} MIG {instance['profile']}".encode(), *arguments)
    if name == "nvmlDeviceGetMemoryInfo_v2":
        memory = arguments[0]._obj  # noqa: SLF001
        memory.total, memory.used = instance.get("total_mib", 9984) * MIB, instance.get("used_mib", 12) * MIB
        memory.reserved = _RESERVED_MIB * MIB
        memory.free = memory.total - memory.used - memory.reserved
        return SUCCESS
    return NOT_SUPPORTED
