"""The values of one GPU at one moment, checked: a driver in trouble returns nonsense before it stops answering.

A single number that can't be true is left out: on healthy A100s and H100s, about one NVML reading in a million of
utilisation or temperature is any number up to 32 bits wide (NVIDIA/DCGM#199, NVIDIA/dcgm-exporter#312 and #418). If
several calls of one read return such numbers, the whole read is rejected. Likewise a single call that fails without a
clear reason (UNKNOWN) costs its own values; if more calls fail than answer, the GPU is the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.gpu import families, number_calls
from pyrometer_exporters.node.gpu.number_calls import NumberCall
from pyrometer_exporters.node.gpu.nvml import FieldKey, Handle, Nvml, NvmlError

MEMORY_TEMP_FIELD = 82  # NVML_FI_DEV_MEMORY_TEMP, degrees Celsius
TOTAL_ENERGY_FIELD = 83  # NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, mJ since the driver was loaded
BYTES_PER_MIB = 1 << 20

# No value can be above these; -1 in an unsigned is above all of them.
MOST_CELSIUS = 200  # where DCGM draws the line as well
MOST_MEGAHERTZ = 20_000
MOST_WATTS = 20_000
MOST_PERCENT = 100
MOST_REASONS = 0xFFFF  # see sampler.NO_REASONS
MOST_COUNT = 1 << 63

T = TypeVar("T")


class Readings:
    """The values of one GPU at one moment; families that it doesn't support are left out."""

    def __init__(self, fields: dict[FieldKey, float]) -> None:
        self.fields = fields
        self.by_family: dict[Family, float] = {}
        self.doubts: list[str] = []
        """One text for each call that returned what can't be true."""
        self.failed: list[NvmlError] = []
        """The errors of calls that should have answered on this GPU."""
        self._answered = 0

    def attempt(self, read: Callable[[], T]) -> T | None:
        """Return what the call ``read`` returns; None where this value is unavailable or the call failed.

        Raises:
            NvmlError: no call on the GPU will do.
        """
        try:
            value = read()
        except NvmlError as error:
            self._note(error)
            return None
        self._answered += 1
        return value

    def _note(self, error: NvmlError) -> None:
        if error.about_whole_gpu:
            raise error
        if not error.about_one_value:
            self.failed.append(error)

    def add_number(self, gauge: Gauge, number: int | NvmlError) -> None:
        """Add the answer to a gauge's call.

        Raises:
            NvmlError: no call on the GPU will do.
        """
        if isinstance(number, NvmlError):
            self._note(number)
            return
        self._answered += 1
        value = number / gauge.scale if gauge.scale != 1 else number
        if 0 <= value <= gauge.most:
            self.by_family[gauge.family] = value
        else:
            self.doubts.append(_doubt(gauge.family, value))

    def check_answers(self) -> None:
        """Raise the first error if more calls failed than answered.

        Raises:
            NvmlError: the GPU or the driver is in trouble.
        """
        if len(self.failed) > self._answered:
            raise self.failed[0]

    def add(self, values: Mapping[Family, float], most: float) -> bool:
        """Add the values of one call if each lies between 0 and ``most``; return whether they do."""
        wrong = [_doubt(family, value) for family, value in values.items() if not 0 <= value <= most]
        if wrong:
            self.doubts += wrong[:1]
        else:
            self.by_family.update(values)
        return not wrong


@dataclass(frozen=True)
class Gauge:
    """A family whose value is one NVML call divided by ``scale``, and the largest value that can be true."""

    family: Family
    call: NumberCall
    most: float
    scale: int = 1


GAUGES = (
    Gauge(families.SM_CLOCK, number_calls.SM_CLOCK, MOST_MEGAHERTZ),
    Gauge(families.MEM_CLOCK, number_calls.MEMORY_CLOCK, MOST_MEGAHERTZ),
    Gauge(families.GPU_TEMP, number_calls.TEMPERATURE, MOST_CELSIUS),
    Gauge(families.POWER_USAGE, number_calls.POWER, MOST_WATTS, 1000),
    Gauge(families.ENFORCED_POWER_LIMIT, number_calls.ENFORCED_POWER_LIMIT, MOST_WATTS, 1000),
    Gauge(families.CLOCKS_EVENT_REASONS, number_calls.CLOCK_EVENT_REASONS, MOST_REASONS),
)


READ_FIELDS: tuple[FieldKey, ...] = (MEMORY_TEMP_FIELD, TOTAL_ENERGY_FIELD)
"""The field values that :class:`Everyday` itself wants."""


class Everyday:
    """Reads the values that every GPU has; valid as long as the handle of the open GPU."""

    def __init__(self, nvml: Nvml, handle: Handle) -> None:
        self._nvml, self._handle = nvml, handle
        self._numbers = nvml.numbers(handle, [gauge.call for gauge in GAUGES])

    def read(self, wanted: Sequence[FieldKey]) -> Readings:
        """Read them, and the field values in one call: ``wanted``, :data:`READ_FIELDS` among them.

        Raises:
            PartError: the GPU as a whole can't be read; ``implausible`` if more than one call returned what can't be
                true.
        """
        nvml, handle = self._nvml, self._handle
        # Before the bitmask: a counter that grew while the bit is off by now shows a pulse that is over.
        readings = Readings({})
        readings.fields = readings.attempt(lambda: nvml.fields(handle, wanted)) or {}
        for gauge, number in zip(GAUGES, self._numbers(), strict=True):
            readings.add_number(gauge, number)
        if families.CLOCKS_EVENT_REASONS in readings.by_family:
            readings.by_family[families.CLOCK_THROTTLE_REASONS] = readings.by_family[families.CLOCKS_EVENT_REASONS]
        rates = readings.attempt(lambda: nvml.utilisation_percent(handle))
        if rates is not None:
            readings.add({families.GPU_UTIL: rates[0], families.MEM_COPY_UTIL: rates[1]}, MOST_PERCENT)
        _add_memory(nvml, handle, readings)
        readings.check_answers()
        if not readings.by_family and not readings.fields and not readings.doubts:
            nvml.text(handle, "UUID")  # a GPU that returns nothing at all is broken; this call raises the reason
        _add_fields(readings)
        if len(readings.doubts) > 1:
            raise PartError("implausible", ", ".join(readings.doubts))
        return readings


def _doubt(family: Family, value: float) -> str:
    return f"{family.name} reads {value:g}"


def _add_memory(nvml: Nvml, handle: Handle, readings: Readings) -> None:
    memory = readings.attempt(lambda: nvml.memory(handle))
    if memory is None:
        return
    sizes = {
        families.FB_FREE: memory.free,
        families.FB_USED: memory.used,
        families.FB_RESERVED: memory.reserved,
        families.FB_TOTAL: memory.total,
    }
    if readings.add(sizes, memory.total):
        # Whole MiB, as DCGM gives them.
        readings.by_family.update((family, size // BYTES_PER_MIB) for family, size in sizes.items())
        if memory.total > memory.reserved:
            readings.by_family[families.FB_USED_PERCENT] = memory.used / (memory.total - memory.reserved)


def _add_fields(readings: Readings) -> None:
    energy = readings.fields.get(TOTAL_ENERGY_FIELD)
    if energy is not None:
        readings.add({families.TOTAL_ENERGY: energy}, MOST_COUNT)
    # GDDR boards answer 0 degrees instead of "not supported".
    if memory_temperature := readings.fields.get(MEMORY_TEMP_FIELD):
        readings.add({families.MEMORY_TEMP: memory_temperature}, MOST_CELSIUS)
