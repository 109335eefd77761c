"""NVML's C interface as the simulated driver sees it: codes, output pointers, and the library's face to its features.

Signatures and codes are those of nvml.h.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from pyrometer_simulator.nvml.gpu_state import GpuState

# nvmlReturn_t
SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 0, 1, 2, 3, 4, 6
INSUFFICIENT_SIZE, TIMEOUT, FUNCTION_NOT_FOUND, GPU_IS_LOST, ARGUMENT_VERSION_MISMATCH = 7, 10, 13, 15, 25
# nvmlValueType_t
DOUBLE, UNSIGNED_INT, UNSIGNED_LONG_LONG = 0, 1, 3
UNTOUCHED = -1  # in place of a type: SUCCESS, and nothing written, as drivers do for ECC counters with ECC off
NO_INSTANCE = 0xFFFFFFFF
ALL_LINKS = 0xFFFFFFFF  # scope of a field value that sums over all NVLinks
U32_MAX, U64_MAX = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF

Body = Callable[..., int]
"""A C function: takes what ctypes would pass, returns an nvmlReturn_t."""


class Library(Protocol):
    """The part of the simulated library that the modules in ``features/`` may use."""

    @property
    def driver_version(self) -> tuple[int, ...]:
        """The simulated driver's version, such as (590, 48, 1)."""
        ...

    @property
    def model(self) -> str:
        """The model of all GPUs of the node, such as ``NVIDIA H100 80GB HBM3``."""
        ...

    @property
    def monotonic(self) -> float:
        """The monotonic time that state is computed for, in seconds."""
        ...

    def setting(self, gpu: GpuState, name: str, default: Any = None) -> Any:  # noqa: ANN401  whatever JSON can hold
        """Return what ``SimulatedGpu.set`` stored under a name, else ``default``."""
        ...

    def device_call(self, body: Body, capability: str | None = None) -> Body:
        """Return a C function of a GPU's handle that checks handle and faults, then calls ``body(gpu, ...)``."""
        ...

    def mig_handle(self, gpu: GpuState, number: int) -> int:
        """Return the handle of a GPU's MIG device, counted from 1."""
        ...


def write_number(out: Any, gpu: GpuState | None, value: int) -> int:  # noqa: ANN401
    """Write a number through a pointer made by byref(); -1 where the GPU returns garbage."""
    target = out._obj  # noqa: SLF001  how a pointer made by byref() is followed
    target.value = -1 if gpu is not None and gpu.record.lies else value
    return SUCCESS


def write_text(text: bytes, buffer: Any, _length: object = None) -> int:  # noqa: ANN401
    """Write a text into a buffer made by create_string_buffer()."""
    buffer.value = text
    return SUCCESS


def write_field_value(entry: Any, kind: int, value: int) -> None:  # noqa: ANN401
    """Write the number of an nvmlFieldValue_t in the member that its type uses."""
    if kind == UNSIGNED_INT:
        entry.value.uiVal = value & U32_MAX
    else:
        entry.value.ullVal = value


def since_driver(library: Library, version: tuple[int, ...], body: Body) -> Body:
    """Return a function that drivers before ``version`` lack."""

    def call(*arguments: object) -> int:
        return body(*arguments) if library.driver_version >= version else FUNCTION_NOT_FOUND

    return call
