"""NVML behind a protocol: pynvml's untyped functions get types, and its error codes become reason words.

``binding.py`` is the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, NewType, Protocol, TypeVar

from pyrometer_exporters.framework.outcome import PartError

T = TypeVar("T")

Handle = NewType("Handle", object)
"""NVML's handle of a GPU, valid until the library is initialised again."""


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
ABOUT_ONE_VALUE = frozenset(
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

# These say that no call on the GPU will do; any other code, from a call for one optional value, speaks of that call.
ABOUT_THE_WHOLE_GPU = frozenset(
    {Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.TIMEOUT, Code.GPU_IS_LOST, Code.RESET_REQUIRED}
)

FieldKey = int | tuple[int, int]
"""A field id, or a field id with its scope (such as a link number)."""

# Hints for operators, beside the number; the landing page and the log show them.
_HINTS: dict[int, str] = {
    Code.NO_DRIVER: "no libnvidia-ml.so.1, so there is no NVIDIA driver on this node",
    Code.DRIVER_NOT_LOADED: "the NVIDIA kernel module is not loaded",
    Code.DRIVER_VERSION_MISMATCH: "the library and the loaded kernel module differ; reload the driver or reboot",
    Code.GPU_IS_LOST: "the GPU has fallen off the bus",
    Code.RESET_REQUIRED: "the GPU needs a reset",
    Code.NO_PERMISSION: "this user lacks permission, or can't open /dev/nvidia*",
    Code.UNKNOWN_ERROR: "no details from the driver; see the kernel's log (in a container, its devices may be gone)",
}


class NvmlError(PartError):
    """A failed NVML ``call``; ``reason`` is a :class:`Code` in lower case, or ``nvml_error_<code>``."""

    def __init__(self, code: int, call: str) -> None:
        hint = _HINTS.get(code)
        super().__init__(_reason(code), f"{call} returned {code}: {hint}" if hint else f"{call} returned {code}")
        self.call = call
        self.about_one_value = code in ABOUT_ONE_VALUE
        self.about_whole_gpu = code in ABOUT_THE_WHOLE_GPU
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


class EventData(Protocol):
    """nvmlEventData_t, as far as it is used here."""

    eventType: int  # noqa: N815  the header's name
    eventData: int  # noqa: N815
    gpuInstanceId: int  # noqa: N815
    computeInstanceId: int  # noqa: N815


class Nvml(Protocol):
    """The part of NVML that is used here; every method raises :class:`NvmlError`."""

    def init(self) -> None:
        """Load the library and attach to the driver."""

    def shutdown(self) -> None:
        """Detach from the driver; all handles become invalid."""

    def driver_version(self) -> str:
        """Return the version, such as ``590.48.01``."""
        ...

    def library_version(self) -> str:
        """Return the library's own version, such as ``13.590.48.01``; answers even where :meth:`init` failed."""
        ...

    def device_count(self) -> int:
        """Return the number of GPUs that the driver presents to this process."""
        ...

    def open_index(self, index: int) -> Handle:
        """Return the handle of a GPU by NVML's index; initialises that GPU."""
        ...

    def open_pci(self, pci_bus_id: str) -> Handle:
        """Return the handle of a GPU by PCI address, ``0000:18:00.0``; initialises that GPU and no other."""
        ...

    def index(self, handle: Handle) -> int:
        """Return NVML's index of a GPU, which nvidia-smi and DCGM call its number."""
        ...

    def text(self, handle: Handle, what: str) -> str:
        """Return the ``UUID``, ``Name``, ``Serial`` or ``VbiosVersion``."""
        ...

    def pci_bus_id(self, handle: Handle) -> str:
        """Return the PCI address in NVML's spelling, ``00000000:18:00.0``."""
        ...

    def numbers(self, handle: Handle, calls: Sequence[Any]) -> Callable[[], list[int | NvmlError]]:
        """Return a reader of these calls (number_calls.NumberCall): their numbers, errors in place of some.

        One thread at a time may read; until the library is initialised again.
        """
        ...

    def utilisation_percent(self, handle: Handle) -> tuple[int, int]:
        """Return the share of the last sample period with a kernel running, and with memory being read or written."""
        ...

    def memory(self, handle: Handle) -> Memory:
        """Return the sizes of the frame buffer."""
        ...

    def clock_event_reader(self, handle: Handle) -> Callable[[], int]:
        """Return a function that reads the bitmask of the reasons for the present clocks; one call at a time."""
        ...

    def fields(self, handle: Handle, keys: Sequence[FieldKey]) -> dict[FieldKey, float]:
        """Read field values in one call; those that this GPU or driver doesn't have are left out."""
        ...

    def event(self, event_set: object, milliseconds: int) -> EventData | None:
        """Return the next event of a set; None if none came in that time."""
        ...

    def ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401  pynvml is untyped
        """Call the binding's function of that name, for values that only one subject needs; typed where it is used."""
        ...


def value_or_none(read: Callable[[], T]) -> T | None:
    """Return what ``read`` returns; None where this value is unavailable though the GPU is well.

    Raises:
        NvmlError: the GPU or the driver is in trouble.
    """
    try:
        return read()
    except NvmlError as error:
        if error.about_one_value:
            return None
        raise


def optional(read: Callable[[], T]) -> T | None:
    """Do as :func:`value_or_none` for calls that few boards and drivers know: None for any error that isn't the GPU's.

    An exotic call that ends in UNKNOWN or returns an undecodable text must not take temperature and clocks along; where
    the GPU itself is ill, the everyday calls report it.

    Raises:
        NvmlError: no call on the GPU will do.
    """
    try:
        return read()
    except PartError as error:
        if isinstance(error, NvmlError) and error.about_whole_gpu:
            raise
        return None


def number_or_none(answer: int | NvmlError) -> int | None:
    """Return the number of an answer from :meth:`Nvml.numbers`; None where it is unavailable, as :func:`optional`.

    Raises:
        NvmlError: no call on the GPU will do.
    """
    if not isinstance(answer, NvmlError):
        return answer
    if answer.about_whole_gpu:
        raise answer
    return None
