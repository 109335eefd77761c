"""The values of one GPU at one moment, checked: a driver in trouble answers nonsense before it stops to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.framework.worker import PartError
from pyrometer_exporters.node.gpu import families
from pyrometer_exporters.node.gpu.nvml import FieldKey, Handle, Nvml
from pyrometer_exporters.node.gpu.subject import value_or_none

MEMORY_TEMP_FIELD = 82  # NVML_FI_DEV_MEMORY_TEMP, degrees Celsius
TOTAL_ENERGY_FIELD = 83  # NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, mJ since the driver was loaded
BYTES_PER_MIB = 1 << 20

# No value can be above these; -1 in an unsigned is above all of them.
MOST_CELSIUS = 200  # where DCGM draws the line as well
MOST_MEGAHERTZ = 20_000
MOST_WATTS = 20_000
MOST_PERCENT = 100
MOST_COUNT = 1 << 63


@dataclass(frozen=True)
class Values:
    """What a GPU said; families that it doesn't support are left out."""

    by_family: dict[Family, float]
    energy_millijoules: float | None
    fields: dict[FieldKey, float]


@dataclass(frozen=True)
class Gauge:
    """A family whose value is one NVML call, and the most that can be true."""

    family: Family
    read: Callable[[Nvml, Handle], float]
    most: float


GAUGES = (
    Gauge(families.SM_CLOCK, lambda nvml, handle: nvml.sm_clock_mhz(handle), MOST_MEGAHERTZ),
    Gauge(families.MEM_CLOCK, lambda nvml, handle: nvml.memory_clock_mhz(handle), MOST_MEGAHERTZ),
    Gauge(families.GPU_TEMP, lambda nvml, handle: nvml.temperature_celsius(handle), MOST_CELSIUS),
    Gauge(families.POWER_USAGE, lambda nvml, handle: nvml.power_milliwatts(handle) / 1000, MOST_WATTS),
    Gauge(
        families.ENFORCED_POWER_LIMIT,
        lambda nvml, handle: nvml.enforced_power_limit_milliwatts(handle) / 1000,
        MOST_WATTS,
    ),
    Gauge(families.CLOCKS_EVENT_REASONS, lambda nvml, handle: nvml.clock_event_reasons(handle), MOST_COUNT),
)


READ_FIELDS: tuple[FieldKey, ...] = (MEMORY_TEMP_FIELD, TOTAL_ENERGY_FIELD)
"""What :func:`read_values` itself wants."""


def read_values(nvml: Nvml, handle: Handle, wanted: Sequence[FieldKey]) -> Values:
    """All values of a GPU, the field values in one call: ``wanted``, :data:`READ_FIELDS` among them.

    Errors: PartError for the GPU as a whole; ``implausible`` where one value can't be true, for then none is trusted.
    """
    # Before the bitmask: a counter that grew while the bit is off by now tells of a pulse that is over.
    fields = nvml.fields(handle, wanted)
    found: dict[Family, float] = {}
    for gauge in GAUGES:
        value = value_or_none(lambda gauge=gauge: gauge.read(nvml, handle))  # type: ignore[misc]
        if value is not None:
            found[gauge.family] = checked(gauge.family.name, value, gauge.most)
    if families.CLOCKS_EVENT_REASONS in found:
        found[families.CLOCK_THROTTLE_REASONS] = found[families.CLOCKS_EVENT_REASONS]
    found.update(_utilisation(nvml, handle))
    found.update(_memory(nvml, handle))
    if not found and not fields:
        nvml.text(handle, "UUID")  # a GPU that tells nothing at all is not one that merely lacks values: raises why
    energy = fields.get(TOTAL_ENERGY_FIELD)
    if energy is not None:
        found[families.TOTAL_ENERGY] = checked(families.TOTAL_ENERGY.name, energy, MOST_COUNT)
    # GDDR boards answer 0 degrees instead of "not supported".
    if memory_temperature := fields.get(MEMORY_TEMP_FIELD):
        found[families.MEMORY_TEMP] = checked(families.MEMORY_TEMP.name, memory_temperature, MOST_CELSIUS)
    return Values(found, energy, fields)


def _utilisation(nvml: Nvml, handle: Handle) -> Iterable[tuple[Family, float]]:
    rates = value_or_none(lambda: nvml.utilisation_percent(handle))
    if rates is not None:
        yield families.GPU_UTIL, checked(families.GPU_UTIL.name, rates[0], MOST_PERCENT)
        yield families.MEM_COPY_UTIL, checked(families.MEM_COPY_UTIL.name, rates[1], MOST_PERCENT)


def _memory(nvml: Nvml, handle: Handle) -> Iterable[tuple[Family, float]]:
    memory = value_or_none(lambda: nvml.memory(handle))
    if memory is not None:
        for family, size in (
            (families.FB_FREE, memory.free),
            (families.FB_USED, memory.used),
            (families.FB_RESERVED, memory.reserved),
        ):
            # Whole MiB, as DCGM gives them.
            yield family, checked(family.name, size, memory.total) // BYTES_PER_MIB
        yield families.FB_TOTAL, memory.total // BYTES_PER_MIB
        if memory.total > memory.reserved:
            yield families.FB_USED_PERCENT, memory.used / (memory.total - memory.reserved)


def checked(name: str, value: float, most: float) -> float:
    """``value`` if it lies between 0 and ``most``. Errors: PartError ``implausible``."""
    if 0 <= value <= most:
        return value
    raise PartError("implausible", f"{name} reads {value:g}")
