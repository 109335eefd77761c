"""Identity, clocks, temperature, power, utilisation, memory and clock-event reasons: the record's own values.

Also the trap of the renumbered field ids: where some drivers have throttle counters, others have power-smoothing
settings. R570 has these at 251 to 268, R575 up to 580.65 at 256 to 273, 580.82 and later at 251 to 268 again; all read
1 here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pyrometer_simulator.nvml.abi import (
    SUCCESS,
    U32_MAX,
    U64_MAX,
    UNSIGNED_INT,
    UNSIGNED_LONG_LONG,
    Body,
    Library,
    write_number,
    write_text,
)
from pyrometer_simulator.nvml.gpu_state import GpuState


def functions(library: Library) -> dict[str, Body]:
    """Return the functions that read the GPU's record."""

    def reasons(gpu: GpuState, out: Any) -> int:  # noqa: ANN401
        # The last two bits came with R615.
        return write_number(out, gpu, gpu.reasons() & (0x7FF if library.driver_version >= (615,) else 0x1FF))

    bodies: dict[str, tuple[Body, str | None]] = {
        "nvmlDeviceGetUUID": (lambda gpu, *out: write_text(gpu.record.uuid, *out), None),
        "nvmlDeviceGetName": (lambda _gpu, *out: write_text(library.model.encode(), *out), None),
        "nvmlDeviceGetSerial": (lambda gpu, *out: write_text(gpu.record.serial, *out), "serial"),
        "nvmlDeviceGetVbiosVersion": (lambda gpu, *out: write_text(gpu.record.vbios, *out), None),
        "nvmlDeviceGetPciInfo_v3": (_pci_info, None),
        "nvmlDeviceGetClockInfo": (_clock, "clocks"),
        "nvmlDeviceGetTemperature": (_temperature, "temperature"),
        "nvmlDeviceGetTemperatureV": (_temperature_v, "temperature"),
        "nvmlDeviceGetPowerUsage": (lambda gpu, out: write_number(out, gpu, gpu.power_mw()), "power"),
        "nvmlDeviceGetEnforcedPowerLimit": (
            lambda gpu, out: write_number(out, gpu, gpu.record.power_limit_mw),
            "power_limit",
        ),
        "nvmlDeviceGetTotalEnergyConsumption": (lambda gpu, out: write_number(out, gpu, gpu.energy_mj()), "energy"),
        "nvmlDeviceGetUtilizationRates": (_utilisation, "utilisation"),
        "nvmlDeviceGetMemoryInfo_v2": (_memory, "memory"),
        "nvmlDeviceGetCurrentClocksEventReasons": (reasons, "reasons"),
        "nvmlDeviceGetCurrentClocksThrottleReasons": (reasons, "reasons"),
    }
    return {name: library.device_call(body, capability) for name, (body, capability) in bodies.items()}


def field(library: Library, gpu: GpuState, field: int, _scope: int) -> tuple[int, int] | None:
    """Return memory temperature (82), energy (83), the nanosecond counters and the power-smoothing settings."""
    if field == 82:
        return (UNSIGNED_INT, int(gpu.record.memory_temperature)) if gpu.has("memory_temperature") else None
    if field == 83:
        return (UNSIGNED_LONG_LONG, gpu.energy_mj()) if gpu.has("energy") else None
    bit = _counter_bits(library.driver_version).get(field)
    if bit is not None and gpu.has("counters"):
        return UNSIGNED_LONG_LONG, max(0, int(gpu.reason_seconds(bit) * 1e9))
    first = _power_smoothing_start(library.driver_version)
    return (UNSIGNED_INT, 1) if first is not None and first <= field < first + 18 else None


@cache
def _counter_bits(version: tuple[int, ...]) -> dict[int, int]:
    """Return the reason bit of each nanosecond counter by field id, as this driver numbers them."""
    fields = {74: 2, 76: 4, 77: 9, 78: 0, 79: 10}
    if (575,) <= version < (580, 66):
        fields |= {251: 5, 252: 6, 253: 7}
    elif version >= (580, 82):
        fields |= {269: 5, 270: 6, 271: 7}
    return fields


def _power_smoothing_start(version: tuple[int, ...]) -> int | None:
    if version < (570,):
        return None
    return 256 if (575,) <= version < (580, 82) else 251


def _pci_info(gpu: GpuState, out: Any) -> int:  # noqa: ANN401
    info, address = out._obj, gpu.record.pci_bus_id  # noqa: SLF001
    info.busId, info.busIdLegacy = address, address[4:]
    info.bus = int(address.split(b":")[1], 16)
    return SUCCESS


def _clock(gpu: GpuState, which: Any, out: Any) -> int:  # noqa: ANN401
    # Memory has its own; the video engines' is four fifths of the SMs' (H100: 1545 and 1980 MHz).
    clocks = {2: int(gpu.record.memory_clock), 3: gpu.sm_clock() * 4 // 5}
    return write_number(out, gpu, clocks.get(getattr(which, "value", which), gpu.sm_clock()))


def _temperature(gpu: GpuState, _sensor: object, out: Any) -> int:  # noqa: ANN401
    return write_number(out, gpu, gpu.temperature())


def _temperature_v(gpu: GpuState, out: Any) -> int:  # noqa: ANN401
    out._obj.temperature = -1 if gpu.record.lies else gpu.temperature()  # noqa: SLF001
    return SUCCESS


def _utilisation(gpu: GpuState, out: Any) -> int:  # noqa: ANN401
    rates = out._obj  # noqa: SLF001
    rates.gpu = U32_MAX if gpu.record.lies else gpu.utilisation()
    rates.memory = U32_MAX if gpu.record.lies else gpu.record.memory_utilisation
    return SUCCESS


def _memory(gpu: GpuState, out: Any) -> int:  # noqa: ANN401
    record, memory = gpu.record, out._obj  # noqa: SLF001
    memory.total, memory.reserved, memory.used = record.memory_total, record.memory_reserved, record.memory_used
    memory.free = U64_MAX if record.lies else record.memory_total - record.memory_reserved - record.memory_used
    return SUCCESS
