"""The values of one GPU at one moment, checked: a driver in trouble answers nonsense before it stops to answer.

A single number that can't be true is no trouble: of healthy A100s and H100s, NVML gives about one reading in a million
of utilisation or temperature as anything up to 32 bits wide (NVIDIA/DCGM#199, NVIDIA/dcgm-exporter#312 and #418). It is
left out. Where several calls of one read do so, nothing that the GPU says is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.framework.outcome import PartError
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
MOST_REASONS = 0xFFFF  # see sampler.NO_REASONS
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
    Gauge(families.CLOCKS_EVENT_REASONS, lambda nvml, handle: nvml.clock_event_reasons(handle), MOST_REASONS),
)


READ_FIELDS: tuple[FieldKey, ...] = (MEMORY_TEMP_FIELD, TOTAL_ENERGY_FIELD)
"""What :func:`read_values` itself wants."""


def read_values(nvml: Nvml, handle: Handle, wanted: Sequence[FieldKey]) -> Values:
    """All values of a GPU, the field values in one call: ``wanted``, :data:`READ_FIELDS` among them.

    Errors: PartError for the GPU as a whole; ``implausible`` where more than one call gave what can't be true.
    """
    # Before the bitmask: a counter that grew while the bit is off by now tells of a pulse that is over.
    fields = nvml.fields(handle, wanted)
    sieve = _Sieve()
    for gauge in GAUGES:
        value = value_or_none(lambda gauge=gauge: gauge.read(nvml, handle))  # type: ignore[misc]
        if value is not None:
            sieve.take({gauge.family: value}, gauge.most)
    found = sieve.found
    if families.CLOCKS_EVENT_REASONS in found:
        found[families.CLOCK_THROTTLE_REASONS] = found[families.CLOCKS_EVENT_REASONS]
    sieve.take(_utilisation(nvml, handle), MOST_PERCENT)
    _memory(nvml, handle, sieve)
    if not found and not fields and not sieve.doubts:
        nvml.text(handle, "UUID")  # a GPU that tells nothing at all is not one that merely lacks values: raises why
    energy = fields.get(TOTAL_ENERGY_FIELD)
    if energy is not None:
        sieve.take({families.TOTAL_ENERGY: energy}, MOST_COUNT)
    # GDDR boards answer 0 degrees instead of "not supported".
    if memory_temperature := fields.get(MEMORY_TEMP_FIELD):
        sieve.take({families.MEMORY_TEMP: memory_temperature}, MOST_CELSIUS)
    sieve.judge()
    return Values(found, found.get(families.TOTAL_ENERGY), fields)


class _Sieve:
    """Keeps what can be true of a read, and counts the calls that gave something else."""

    def __init__(self) -> None:
        self.found: dict[Family, float] = {}
        self.doubts: list[str] = []

    def take(self, values: Mapping[Family, float], most: float) -> bool:
        """The values of one call, if each lies between 0 and ``most``; whether they do."""
        wrong = [f"{family.name} reads {value:g}" for family, value in values.items() if not 0 <= value <= most]
        if wrong:
            self.doubts += wrong[:1]
        else:
            self.found.update(values)
        return not wrong

    def judge(self) -> None:
        """Errors: PartError ``implausible``."""
        if len(self.doubts) > 1:
            raise PartError("implausible", ", ".join(self.doubts))


def _utilisation(nvml: Nvml, handle: Handle) -> dict[Family, float]:
    rates = value_or_none(lambda: nvml.utilisation_percent(handle))
    return {} if rates is None else {families.GPU_UTIL: rates[0], families.MEM_COPY_UTIL: rates[1]}


def _memory(nvml: Nvml, handle: Handle, sieve: _Sieve) -> None:
    memory = value_or_none(lambda: nvml.memory(handle))
    if memory is None:
        return
    sizes = {
        families.FB_FREE: memory.free,
        families.FB_USED: memory.used,
        families.FB_RESERVED: memory.reserved,
        families.FB_TOTAL: memory.total,
    }
    if sieve.take(sizes, memory.total):
        # Whole MiB, as DCGM gives them.
        sieve.found.update((family, size // BYTES_PER_MIB) for family, size in sizes.items())
        if memory.total > memory.reserved:
            sieve.found[families.FB_USED_PERCENT] = memory.used / (memory.total - memory.reserved)
