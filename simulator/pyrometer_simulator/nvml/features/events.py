"""NVML's events: sets of events, and Xids that wait in them until they are fetched.

:func:`report_xid` is the director's side; it leaves ``set(xids=[[number, xid, gpu instance, compute instance], ...])``.
``set(errors={"nvmlDeviceRegisterEvents": 3})`` makes a driver without events.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from typing import Any

from pyrometer_simulator.nvml.abi import INVALID_ARGUMENT, NO_INSTANCE, SUCCESS, TIMEOUT, Body, Library
from pyrometer_simulator.nvml.gpu_state import GpuState
from pyrometer_simulator.nvml.gpus import SimulatedGpu

XID_EVENT = 0x8
_POLL_SECONDS = 0.01
_MAX_XIDS = 64


def report_xid(
    gpu: SimulatedGpu, xid: int, *, gpu_instance: int = NO_INSTANCE, compute_instance: int = NO_INSTANCE
) -> None:
    """Put an Xid into all event sets that listen for this GPU's."""
    known = gpu.get("xids", [])
    number = known[-1][0] + 1 if known else 1
    gpu.set(xids=[*known, [number, xid, gpu_instance, compute_instance]][-_MAX_XIDS:])


def functions(library: Library) -> dict[str, Body]:
    """Return the functions of event sets."""
    events = _Events(library)
    return {
        "nvmlEventSetCreate": events.create,
        "nvmlDeviceRegisterEvents": events.register,
        "nvmlEventSetWait_v2": events.wait,
        "nvmlEventSetFree": events.free,
    }


class _Events:
    """The event sets of one process."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._numbers = itertools.count(1)
        self._sets: dict[int, dict[int, list[Any]]] = {}  # set -> GPU's handle -> [handle, types, number of the last]
        self._xids = library.device_call(self._listed)

    def create(self, out: Any) -> int:  # noqa: ANN401  what byref() makes
        number = next(self._numbers)
        self._sets[number] = {}
        ctypes.c_void_p.from_address(ctypes.addressof(out._obj)).value = number  # noqa: SLF001
        return SUCCESS

    def register(self, handle: Any, types: Any, event_set: Any) -> int:  # noqa: ANN401  ctypes values
        known: list[list[int]] = []
        code = self._xids(handle, known)
        listeners = self._sets.get(_number(event_set))
        if code or listeners is None:
            return code or INVALID_ARGUMENT
        listeners[_number(handle)] = [handle, types.value, known[-1][0] if known else 0]
        return SUCCESS

    def wait(self, event_set: Any, out: Any, timeout: Any) -> int:  # noqa: ANN401  ctypes values
        until = time.monotonic() + timeout.value / 1000
        listeners = self._sets.get(_number(event_set))
        if listeners is None:
            return INVALID_ARGUMENT
        while True:
            for listener in listeners.values():
                code = self._next(listener, out._obj)  # noqa: SLF001
                if code != TIMEOUT:
                    return code
            left = until - time.monotonic()
            if left <= 0:
                return TIMEOUT
            time.sleep(min(_POLL_SECONDS, left))

    def free(self, event_set: Any) -> int:  # noqa: ANN401  a ctypes pointer
        return SUCCESS if self._sets.pop(_number(event_set), None) is not None else INVALID_ARGUMENT

    def _next(self, listener: list[Any], out: Any) -> int:  # noqa: ANN401  pynvml's structure
        handle, types, last = listener
        known: list[list[int]] = []
        if code := self._xids(handle, known):
            return code
        for number, xid, gpu_instance, compute_instance in known:
            if number > last and types & XID_EVENT:
                listener[2] = number
                out.device, out.eventType, out.eventData = handle, XID_EVENT, xid
                out.gpuInstanceId, out.computeInstanceId = gpu_instance, compute_instance
                return SUCCESS
        return TIMEOUT

    def _listed(self, gpu: GpuState, out: list[list[int]]) -> int:
        out.extend(self._library.setting(gpu, "xids", []))
        return SUCCESS


def _number(pointer: Any) -> int:  # noqa: ANN401  a ctypes pointer
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0
