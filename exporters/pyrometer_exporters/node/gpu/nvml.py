"""NVML behind a protocol: pynvml's untyped functions get types, and its error codes become reason words.

Every call goes through ctypes' ``CDLL``, which releases the GIL while the driver is at it: a call that hangs holds
up the thread that made it and no other. Nothing here is called at import time.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, NewType, Protocol

import pynvml

from pyrometer_exporters.framework.worker import PartError

Handle = NewType("Handle", object)
"""What NVML knows a GPU by until the library is initialised again."""


class Code(IntEnum):
    """nvmlReturn_t, as nvml.h numbers it: not taken from pynvml, older releases of which lack the newer names."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    ALREADY_INITIALIZED = 5
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    INSUFFICIENT_POWER = 8
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    IRQ_ISSUE = 11
    NO_DRIVER = 12  # NVML_ERROR_LIBRARY_NOT_FOUND: the library is part of the driver
    FUNCTION_NOT_FOUND = 13
    CORRUPTED_INFOROM = 14
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    DRIVER_VERSION_MISMATCH = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH: upgraded under a running kernel module
    IN_USE = 19
    OUT_OF_MEMORY = 20  # NVML_ERROR_MEMORY
    NO_DATA = 21
    VGPU_ECC_NOT_SUPPORTED = 22
    INSUFFICIENT_RESOURCES = 23
    FREQ_NOT_SUPPORTED = 24
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    NOT_READY = 27
    GPU_NOT_FOUND = 28
    INVALID_STATE = 29
    UNKNOWN_ERROR = 999  # NVML_ERROR_UNKNOWN


# These say that one value can't be had here; the GPU itself is well. Every other code is about the GPU or the driver.
_ABOUT_ONE_VALUE = frozenset(
    {
        Code.INVALID_ARGUMENT,  # an id or sensor that this driver doesn't know
        Code.NOT_SUPPORTED,
        Code.NO_PERMISSION,
        Code.FUNCTION_NOT_FOUND,  # a library older than the function
        Code.CORRUPTED_INFOROM,
        Code.NO_DATA,
        Code.VGPU_ECC_NOT_SUPPORTED,
        Code.FREQ_NOT_SUPPORTED,
        Code.ARGUMENT_VERSION_MISMATCH,
        Code.DEPRECATED,
    }
)

_TEMPERATURE_CALLS = "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"
_CLOCK_EVENT_CALLS = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"

# These say that no call on the GPU will do; any other code, from a call for one optional value, speaks of that call.
_ABOUT_THE_WHOLE_GPU = frozenset(
    {Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.TIMEOUT, Code.GPU_IS_LOST, Code.RESET_REQUIRED}
)

# c_nvmlFieldValue_t: fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value. Packed and unpacked at
# once: the binding's structures run Python for each member, which made a request of 54 fields cost 90 us, now 25.
_ENTRY, _WORD = struct.Struct("=IIqqIIQ"), struct.Struct("=Q")
_MOST_REQUESTS = 64
# The value for each NVML_VALUE_TYPE_* (nvml.h, nvmlValueType_t): double to unsigned short.
_VALUE_TYPES = tuple(struct.Struct(f"={kind}") for kind in "dIQQqiH")
_DOUBLE, _UNSIGNED_LONG_LONG = 0, 3
_LEAST_DOUBLE_BITS = 1 << 52  # of the smallest normal double, 2e-308

# Calls whose last argument is where one unsigned int goes. Made without the binding, which costs twice as much, and
# three times as much (10 us) where a board doesn't have the value, as it raises an exception of its own.
_NUMBERS = frozenset(
    {
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetCurrPcieLinkGeneration",
        "nvmlDeviceGetCurrPcieLinkWidth",
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetFanSpeed",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetPcieReplayCounter",
        "nvmlDeviceGetPerformanceState",
        "nvmlDeviceGetPowerManagementLimit",
        "nvmlDeviceGetPowerUsage",
    }
)

# NVML_FI_DEV_ECC_SBE_VOL_TOTAL to ..._DBE_AGG_CBU: unsigned long long whatever valueType a driver tells (NVIDIA bug
# 2032468). R545 tells none for the memory's temperature (bug 4300930), which makes it a double, too small to be one.
_ECC_COUNTER_FIELDS = range(3, 29)


FieldKey = int | tuple[int, int]
"""A field id, or a field id with its scope (such as a link number)."""

# What an operator needs to know beside the number; the landing page and the log show it.
_HINTS: dict[int, str] = {
    Code.NO_DRIVER: "no libnvidia-ml.so.1, so no NVIDIA driver on this node",
    Code.DRIVER_NOT_LOADED: "the NVIDIA kernel module is not loaded",
    Code.DRIVER_VERSION_MISMATCH: "the library and the loaded kernel module differ; reload the driver or reboot",
    Code.GPU_IS_LOST: "the GPU has fallen off the bus",
    Code.RESET_REQUIRED: "the GPU needs a reset",
    Code.NO_PERMISSION: "not for this user, or /dev/nvidia* are closed to it",
    Code.UNKNOWN_ERROR: "the driver says no more; the kernel's log may (in a container: devices are gone)",
}


class NvmlError(PartError):
    """An NVML call that failed; ``reason`` is a :class:`Code` in lower case, or ``nvml_error_<code>``."""

    def __init__(self, code: int, call: str) -> None:
        hint = _HINTS.get(code)
        super().__init__(_reason(code), f"{call} returned {code}: {hint}" if hint else f"{call} returned {code}")
        self.about_one_value = code in _ABOUT_ONE_VALUE
        self.about_whole_gpu = code in _ABOUT_THE_WHOLE_GPU
        self.driver_gone = code in (Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED)


_REASONS = {int(code): code.name.lower() for code in Code}


def _reason(code: int) -> str:
    return _REASONS.get(code) or f"nvml_error_{code}"


class Memory(NamedTuple):
    """Frame buffer in bytes; ``used`` does not contain ``reserved``."""

    total: int
    reserved: int
    free: int
    used: int


class Nvml(Protocol):
    """The part of NVML that is used here; every method raises :class:`NvmlError`."""

    def init(self) -> None:
        """Load the library and attach to the driver."""

    def shutdown(self) -> None:
        """Detach from the driver; all handles become invalid."""

    def driver_version(self) -> str:
        """Such as ``590.48.01``."""

    def library_version(self) -> str:
        """The library's own, such as ``13.590.48.01``; answers even where :meth:`init` failed."""

    def device_count(self) -> int:
        """GPUs that the driver presents to this process."""

    def open_index(self, index: int) -> Handle:
        """The handle of a GPU by NVML's index; initialises that GPU."""

    def open_pci(self, pci_bus_id: str) -> Handle:
        """The handle of a GPU by PCI address, ``0000:18:00.0``; initialises that GPU and no other."""

    def index(self, handle: Handle) -> int:
        """NVML's index of a GPU: what nvidia-smi and DCGM call its number."""

    def text(self, handle: Handle, what: str) -> str:
        """``UUID``, ``Name``, ``Serial`` or ``VbiosVersion``."""

    def pci_bus_id(self, handle: Handle) -> str:
        """NVML's spelling, ``00000000:18:00.0``."""

    def sm_clock_mhz(self, handle: Handle) -> int:
        """The streaming multiprocessors' clock now."""

    def memory_clock_mhz(self, handle: Handle) -> int:
        """The memory's clock now."""

    def temperature_celsius(self, handle: Handle) -> int:
        """The GPU die's sensor."""

    def power_milliwatts(self, handle: Handle) -> int:
        """Mean over the last second on Ampere (but GA100) and newer, of the moment on older ones."""

    def enforced_power_limit_milliwatts(self, handle: Handle) -> int:
        """The lowest of all limits in force."""

    def utilisation_percent(self, handle: Handle) -> tuple[int, int]:
        """Share of the last sample period with a kernel running, and with memory being read or written."""

    def memory(self, handle: Handle) -> Memory:
        """The frame buffer."""

    def clock_event_reasons(self, handle: Handle) -> int:
        """The bitmask of why clocks are where they are."""

    def clock_event_reader(self, handle: Handle) -> Callable[[], int]:
        """What reads :meth:`clock_event_reasons` again and again, one call at a time, at the least cost."""

    def fields(self, handle: Handle, keys: Sequence[FieldKey]) -> dict[FieldKey, float]:
        """Field values in one call; those that this GPU or driver doesn't have are left out."""

    def ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401  pynvml is untyped
        """The binding's function of that name, for what only one subject needs; typed where it is used."""


class Pynvml:
    """NVML through nvidia-ml-py."""

    def __init__(self) -> None:
        self._requests: dict[tuple[FieldKey, ...], bytes] = {}

    def init(self) -> None:
        """nvmlInitWithFlags(0)."""
        _call(pynvml.nvmlInit)

    def shutdown(self) -> None:
        """Calls nvmlShutdown."""
        _call(pynvml.nvmlShutdown)

    def driver_version(self) -> str:
        """Calls nvmlSystemGetDriverVersion."""
        return str(_call(pynvml.nvmlSystemGetDriverVersion))

    def library_version(self) -> str:
        """Calls nvmlSystemGetNVMLVersion, which needs no nvmlInit."""
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
        """Calls nvmlDeviceGetIndex."""
        return int(_call(pynvml.nvmlDeviceGetIndex, handle))

    def text(self, handle: Handle, what: str) -> str:
        """nvmlDeviceGetUUID, nvmlDeviceGetName, nvmlDeviceGetSerial, nvmlDeviceGetVbiosVersion."""
        return str(_call(getattr(pynvml, f"nvmlDeviceGet{what}"), handle))

    def pci_bus_id(self, handle: Handle) -> str:
        """nvmlDeviceGetPciInfo_v3."""
        found = _call(pynvml.nvmlDeviceGetPciInfo, handle).busId
        return found.decode() if isinstance(found, bytes) else str(found)  # bytes in older releases of the binding

    def sm_clock_mhz(self, handle: Handle) -> int:
        """nvmlDeviceGetClockInfo(NVML_CLOCK_SM)."""
        return _number("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM)

    def memory_clock_mhz(self, handle: Handle) -> int:
        """nvmlDeviceGetClockInfo(NVML_CLOCK_MEM)."""
        return _number("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_MEM)

    def temperature_celsius(self, handle: Handle) -> int:
        """From driver 570 on nvmlDeviceGetTemperatureV, where that is to be had; else nvmlDeviceGetTemperature."""
        return int(_newer_or_older(*_TEMPERATURE_CALLS, handle, pynvml.NVML_TEMPERATURE_GPU))

    def power_milliwatts(self, handle: Handle) -> int:
        """Calls nvmlDeviceGetPowerUsage."""
        return _number("nvmlDeviceGetPowerUsage", handle)

    def enforced_power_limit_milliwatts(self, handle: Handle) -> int:
        """Calls nvmlDeviceGetEnforcedPowerLimit."""
        return _number("nvmlDeviceGetEnforcedPowerLimit", handle)

    def utilisation_percent(self, handle: Handle) -> tuple[int, int]:
        """Calls nvmlDeviceGetUtilizationRates."""
        rates = _call(pynvml.nvmlDeviceGetUtilizationRates, handle)
        return int(rates.gpu), int(rates.memory)

    def memory(self, handle: Handle) -> Memory:
        """nvmlDeviceGetMemoryInfo_v2: version 1 counts what is reserved as used."""
        found = _call(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
        return Memory(int(found.total), int(found.reserved), int(found.free), int(found.used))

    def clock_event_reasons(self, handle: Handle) -> int:
        """nvmlDeviceGetCurrentClocksEventReasons; before driver 535, ...ClocksThrottleReasons, the same bits."""
        return int(_newer_or_older(*_CLOCK_EVENT_CALLS, handle))

    def clock_event_reader(self, handle: Handle) -> Callable[[], int]:
        """The same calls on one number kept for the answer: the binding's own makes two objects for each."""
        newer, older = _CLOCK_EVENT_CALLS
        library, mask = pynvml.nvmlLib, ctypes.c_ulonglong()
        function = getattr(library, newer, getattr(library, older, _missing))
        pointer = ctypes.byref(mask)

        def read() -> int:
            code = function(handle, pointer)
            if code != pynvml.NVML_SUCCESS:
                raise NvmlError(code, _CLOCK_EVENT_CALLS[0])
            return mask.value

        return read

    def ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401  pynvml is untyped
        """A function that this release of the binding lacks counts as one that the driver lacks."""
        if function in _NUMBERS:
            return _number(function, *arguments)
        try:
            found = getattr(pynvml, function)
        except AttributeError:
            raise NvmlError(Code.FUNCTION_NOT_FOUND, function) from None
        return _call(found, *arguments)

    def fields(self, handle: Handle, keys: Sequence[FieldKey]) -> dict[FieldKey, float]:
        """nvmlDeviceGetFieldValues: one call, and a return code of its own in every entry."""
        wanted = tuple(keys)
        request = self._requests.get(wanted) or self._requested(wanted)
        entries = (pynvml.c_nvmlFieldValue_t * len(wanted)).from_buffer_copy(request)
        function = getattr(pynvml.nvmlLib, "nvmlDeviceGetFieldValues", _missing)
        code = function(handle, ctypes.c_int32(len(wanted)), ctypes.byref(entries))
        if code != pynvml.NVML_SUCCESS:
            if code in _ABOUT_ONE_VALUE:
                return {}
            raise NvmlError(code, "nvmlDeviceGetFieldValues")
        return _entry_values(wanted, entries)

    def _requested(self, keys: tuple[FieldKey, ...]) -> bytes:
        """What goes to the driver for these fields; kept, for the same are asked at every scrape."""
        if len(self._requests) >= _MOST_REQUESTS:
            self._requests.clear()
        ids = (key if isinstance(key, tuple) else (key, 0) for key in keys)
        request = self._requests[keys] = b"".join(_ENTRY.pack(*key, 0, 0, 0, 0, 0) for key in ids)
        return request


def _entry_values(keys: Iterable[FieldKey], entries: Any) -> dict[FieldKey, float]:  # noqa: ANN401  an array
    found: dict[FieldKey, float] = {}
    for key, (field, _scope, at, took, kind, code, value) in zip(keys, _ENTRY.iter_unpack(entries), strict=True):
        if code != pynvml.NVML_SUCCESS:
            if code in _ABOUT_THE_WHOLE_GPU:
                raise NvmlError(code, f"field {field}")
        elif kind == _UNSIGNED_LONG_LONG:
            found[key] = value
        # A driver may call an entry good that it never filled in, and the value is whatever the memory held: so it is
        # for ECC counters while ECC is off (NVIDIA bug 2009232).
        elif kind != _DOUBLE or at or took:
            if field in _ECC_COUNTER_FIELDS or (kind == _DOUBLE and value < _LEAST_DOUBLE_BITS):
                found[key] = value
            elif kind < len(_VALUE_TYPES):
                found[key] = _VALUE_TYPES[kind].unpack_from(_WORD.pack(value))[0]
    return found


def _number(function: str, *arguments: object) -> int:
    """What a call of :data:`_NUMBERS` writes."""
    number = ctypes.c_uint()
    code = getattr(pynvml.nvmlLib, function, _missing)(*arguments, ctypes.byref(number))
    if code != pynvml.NVML_SUCCESS:
        raise NvmlError(code, function)
    return number.value


def _missing(*_arguments: object) -> int:
    """In place of a function that the library doesn't have, or of all while there is no library."""
    return Code.UNINITIALIZED if pynvml.nvmlLib is None else Code.FUNCTION_NOT_FOUND


def _call(function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  pynvml is untyped
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        raise NvmlError(error.value, function.__name__) from None
    except UnicodeDecodeError:
        raise PartError("implausible", f"{function.__name__} gave no text") from None


def _newer_or_older(newer: str, older: str, *arguments: object) -> Any:  # noqa: ANN401  pynvml is untyped
    """The newer of two calls for one value, or the older where library, binding or board don't have the newer."""
    with contextlib.suppress(AttributeError):
        try:
            return _call(getattr(pynvml, newer), *arguments)
        except NvmlError as error:
            if not error.about_one_value:
                raise
    return _call(getattr(pynvml, older), *arguments)
