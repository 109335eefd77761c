"""Calls of the driver that answer with one number each, bound once to a GPU: two hundred in each scrape of a node.

Through the binding each makes three objects and looks up two names; bound, it is the call and a look at what it filled
in (``benchmarks/bench_gpu.py``). One thread at a time reads a GPU, so each call has one place for its answer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pynvml

from pyrometer_exporters.node.gpu.nvml import ABOUT_ONE_VALUE, Code, NvmlError


@dataclass(frozen=True)
class NumberCall:
    """A function of the library that fills in numbers, of which the first one counts.

    Attributes:
        function: the name in the library.
        arguments: what comes between the GPU's handle and the places for the numbers.
        places: make the places, in order; AttributeError: this release of the binding has no such structure.
        member: where in its place the number is.
        older: asked where library, binding or board lack this one.
    """

    function: str
    arguments: tuple[int, ...] = ()
    places: tuple[Callable[[], Any], ...] = field(default=(ctypes.c_uint,))
    member: str = "value"
    older: NumberCall | None = None


class _Bound(NamedTuple):
    call: NumberCall
    function: Callable[..., int]
    arguments: tuple[object, ...]
    place: Any


class NumberCalls:
    """Some calls, bound to the library as it is now and to the handle of a GPU."""

    def __init__(self, handle: object, calls: Sequence[NumberCall]) -> None:
        self._handle = handle
        self._bound = [_bound(handle, call) for call in calls]

    def read(self) -> list[int | NvmlError]:
        """Make all calls; return their numbers, and in place of those that failed the errors."""
        return [
            getattr(place, call.member) if not (code := function(*arguments)) else self._failed(call, code)
            for call, function, arguments, place in self._bound
        ]

    def _failed(self, call: NumberCall, code: int) -> int | NvmlError:
        """Ask the older function, if there is one, for a value that this one can't report."""
        if call.older is None or code not in ABOUT_ONE_VALUE:
            return NvmlError(code, call.function)
        return NumberCalls(self._handle, [call.older]).read()[0]


def _bound(handle: object, call: NumberCall) -> _Bound:
    function = getattr(pynvml.nvmlLib, call.function, missing)
    try:
        places = [make() for make in call.places]
    except (AttributeError, NameError):  # the latter in 13.615, for one structure
        function, places = missing, [None]
    pointers = [ctypes.byref(place) for place in places if place is not None]
    numbers = map(ctypes.c_uint, call.arguments)
    return _Bound(call, function, (handle, *numbers, *pointers), places[0])


def missing(*_arguments: object) -> int:
    """Stand in for a function that the library doesn't have, or for all while there is no library."""
    return Code.UNINITIALIZED if pynvml.nvmlLib is None else Code.FUNCTION_NOT_FOUND


def _structure(name: str, version: str) -> Callable[[], Any]:
    def make() -> Any:  # noqa: ANN401  pynvml is untyped
        structure = getattr(pynvml, name)()
        structure.version = getattr(pynvml, version)
        return structure

    return make


# nvml.h: nvmlClockType_t.
SM_CLOCK = NumberCall("nvmlDeviceGetClockInfo", (1,))
MEMORY_CLOCK = NumberCall("nvmlDeviceGetClockInfo", (2,))
VIDEO_CLOCK = NumberCall("nvmlDeviceGetClockInfo", (3,))
# The die's temperature: nvmlTemperatureSensors_t 0, also in the new structure. Since driver 570.
TEMPERATURE = NumberCall(
    "nvmlDeviceGetTemperatureV",
    (),
    (_structure("c_nvmlTemperature_v1_t", "nvmlTemperature_v1"),),
    "temperature",
    NumberCall("nvmlDeviceGetTemperature", (0,)),
)
MARGIN_TEMPERATURE = NumberCall(
    "nvmlDeviceGetMarginTemperature",
    (),
    (_structure("c_nvmlMarginTemperature_v1_t", "nvmlMarginTemperature_v1"),),
    "marginTemperature",
)
# Milliwatts: the mean of the last second on Ampere (but GA100) and newer, the present value on older GPUs.
POWER = NumberCall("nvmlDeviceGetPowerUsage")
# Milliwatts: the lowest of all limits in force.
ENFORCED_POWER_LIMIT = NumberCall("nvmlDeviceGetEnforcedPowerLimit")
# The same bits under the name from before driver 535.
CLOCK_EVENT_REASONS = NumberCall(
    "nvmlDeviceGetCurrentClocksEventReasons",
    places=(ctypes.c_ulonglong,),
    older=NumberCall("nvmlDeviceGetCurrentClocksThrottleReasons", places=(ctypes.c_ulonglong,)),
)
PERFORMANCE_STATE = NumberCall("nvmlDeviceGetPerformanceState")
FAN_SPEED = NumberCall("nvmlDeviceGetFanSpeed")
# Percent, and of how many microseconds.
ENCODER_UTILISATION = NumberCall("nvmlDeviceGetEncoderUtilization", places=(ctypes.c_uint, ctypes.c_uint))
DECODER_UTILISATION = NumberCall("nvmlDeviceGetDecoderUtilization", places=(ctypes.c_uint, ctypes.c_uint))
LINK_WIDTH = NumberCall("nvmlDeviceGetCurrPcieLinkWidth")
LINK_GENERATION = NumberCall("nvmlDeviceGetCurrPcieLinkGeneration")
