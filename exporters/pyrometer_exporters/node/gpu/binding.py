"""The driver's library through nvidia-ml-py, and without its Python where a scrape would pay for it.

Every call goes through ctypes' ``CDLL``, which releases the GIL while the driver is at it: a call that hangs holds
up the thread that made it and no other. Nothing here is called at import time.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import pynvml

from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.gpu.field_values import FieldRequests
from pyrometer_exporters.node.gpu.number_calls import NumberCall, NumberCalls, missing
from pyrometer_exporters.node.gpu.nvml import (
    ABOUT_ONE_VALUE,
    Code,
    EventData,
    FieldKey,
    Handle,
    Memory,
    NvmlError,
)

_CLOCK_EVENT_CALLS = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"

# Calls whose last argument receives one unsigned int. Made without the binding, which costs more, above all where a
# board doesn't have the value, as it raises an exception of its own.
_NUMBERS = frozenset(
    {
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetPcieReplayCounter",
        "nvmlDeviceGetPowerManagementLimit",
    }
)

# The same, with two numbers.
_PAIRS = frozenset({"nvmlDeviceGetMigMode"})
# nvmlUtilization_t: gpu, memory; nvmlMemory_v2_t: version, total, reserved, free, used.
_RATES, _MEMORY = struct.Struct("=II"), struct.Struct("=I4xQQQQ")


class Pynvml:
    """NVML through nvidia-ml-py."""

    def __init__(self) -> None:
        self._requests = FieldRequests()

    def init(self) -> None:
        """nvmlInitWithFlags(0)."""
        _call(pynvml.nvmlInit)

    def shutdown(self) -> None:
        """Call nvmlShutdown."""
        _call(pynvml.nvmlShutdown)

    def driver_version(self) -> str:
        """Call nvmlSystemGetDriverVersion."""
        return str(_call(pynvml.nvmlSystemGetDriverVersion))

    def library_version(self) -> str:
        """Call nvmlSystemGetNVMLVersion, which needs no nvmlInit."""
        return str(_call(pynvml.nvmlSystemGetNVMLVersion))

    def device_count(self) -> int:
        """nvmlDeviceGetCount_v2."""
        return int(_call(pynvml.nvmlDeviceGetCount))

    def open_index(self, index: int) -> Handle:
        """nvmlDeviceGetHandleByIndex_v2."""
        return Handle(_call(pynvml.nvmlDeviceGetHandleByIndex, index))

    def open_pci(self, pci_bus_id: str) -> Handle:
        """nvmlDeviceGetHandleByPciBusId_v2."""
        return Handle(_call(pynvml.nvmlDeviceGetHandleByPciBusId, pci_bus_id))

    def index(self, handle: Handle) -> int:
        """Call nvmlDeviceGetIndex."""
        return int(_call(pynvml.nvmlDeviceGetIndex, handle))

    def text(self, handle: Handle, what: str) -> str:
        """nvmlDeviceGetUUID, nvmlDeviceGetName, nvmlDeviceGetSerial, nvmlDeviceGetVbiosVersion."""
        return str(_call(getattr(pynvml, f"nvmlDeviceGet{what}"), handle))

    def pci_bus_id(self, handle: Handle) -> str:
        """nvmlDeviceGetPciInfo_v3."""
        address = _call(pynvml.nvmlDeviceGetPciInfo, handle).busId
        return (
            address.decode() if isinstance(address, bytes) else str(address)
        )  # bytes in older releases of the binding

    def numbers(self, handle: Handle, calls: Sequence[NumberCall]) -> Callable[[], list[int | NvmlError]]:
        """Bind the calls to the library; see NumberCalls."""
        return NumberCalls(handle, calls).read

    def utilisation_percent(self, handle: Handle) -> tuple[int, int]:
        """Call nvmlDeviceGetUtilizationRates."""
        rates = pynvml.c_nvmlUtilization_t()
        _call_directly("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(rates))
        gpu, memory = _RATES.unpack(rates)
        return gpu, memory

    def memory(self, handle: Handle) -> Memory:
        """nvmlDeviceGetMemoryInfo_v2: version 1 counts what is reserved as used."""
        sizes = pynvml.c_nvmlMemory_v2_t.from_buffer_copy(_MEMORY.pack(pynvml.nvmlMemory_v2, 0, 0, 0, 0))
        _call_directly("nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(sizes))
        return Memory(*_MEMORY.unpack(sizes)[1:])

    def clock_event_reader(self, handle: Handle) -> Callable[[], int]:
        """Return a reader that makes these calls on one reused number: the binding makes two objects for each call."""
        newer, older = _CLOCK_EVENT_CALLS
        library, mask = pynvml.nvmlLib, ctypes.c_ulonglong()
        function = getattr(library, newer, getattr(library, older, missing))
        pointer = ctypes.byref(mask)

        def read() -> int:
            code = function(handle, pointer)
            if code != pynvml.NVML_SUCCESS:
                raise NvmlError(code, _CLOCK_EVENT_CALLS[0])
            return mask.value

        return read

    def event(self, event_set: object, milliseconds: int) -> EventData | None:
        """Call nvmlEventSetWait_v2 directly: usually there is no event, for which the binding raises an exception."""
        data = pynvml.c_nvmlEventData_t()
        wait = getattr(pynvml.nvmlLib, "nvmlEventSetWait_v2", missing)
        code = wait(event_set, ctypes.byref(data), ctypes.c_uint(milliseconds))
        if code == Code.TIMEOUT:
            return None
        if code != pynvml.NVML_SUCCESS:
            raise NvmlError(code, "nvmlEventSetWait_v2")
        return cast("EventData", data)

    def ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401  pynvml is untyped
        """Call a function; one that this release of the binding lacks counts as one that the driver lacks."""
        if function in _NUMBERS:
            return _number(function, *arguments)
        if function in _PAIRS:
            return _pair(function, *arguments)
        try:
            call = getattr(pynvml, function)
        except AttributeError:
            raise NvmlError(Code.FUNCTION_NOT_FOUND, function) from None
        return _call(call, *arguments)

    def fields(self, handle: Handle, keys: Sequence[FieldKey]) -> dict[FieldKey, float]:
        """nvmlDeviceGetFieldValues: one call, and a return code of its own in every entry."""
        function = getattr(pynvml.nvmlLib, "nvmlDeviceGetFieldValues", missing)
        code, values = self._requests.ask(tuple(keys), partial(function, handle))
        if code != pynvml.NVML_SUCCESS and code not in ABOUT_ONE_VALUE:
            raise NvmlError(code, "nvmlDeviceGetFieldValues")
        return values


def _number(function: str, *arguments: object) -> int:
    """Make a call of :data:`_NUMBERS` and return its number."""
    number = ctypes.c_uint()
    _call_directly(function, *arguments, ctypes.byref(number))
    return number.value


def _pair(function: str, handle: object) -> tuple[int, int]:
    """Make a call of :data:`_PAIRS` and return its numbers."""
    first, second = ctypes.c_uint(), ctypes.c_uint()
    _call_directly(function, handle, ctypes.byref(first), ctypes.byref(second))
    return first.value, second.value


def _call_directly(function: str, *arguments: object) -> None:
    """Make a call without the binding."""
    code = getattr(pynvml.nvmlLib, function, missing)(*arguments)
    if code != pynvml.NVML_SUCCESS:
        raise NvmlError(code, function)


def _call(function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  pynvml is untyped
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        # pynvml declares no attributes: NVMLError.__new__ sets the value.
        raise NvmlError(error.value, function.__name__) from None  # pyright: ignore[reportAttributeAccessIssue]
    except UnicodeDecodeError:
        raise PartError("implausible", f"{function.__name__} returned no text") from None
