"""How the simulated driver's C functions fill what their callers point to."""

from __future__ import annotations

from typing import Any

from pyrometer_simulator.nvml.moment import Moment

SUCCESS = 0
UNSIGNED_INT = 1  # nvmlValueType_t
_U32, _U64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def put(out: Any, moment: Moment | None, value: int) -> int:  # noqa: ANN401
    """Write a number through a pointer made by byref(); -1 where the GPU lies."""
    target = out._obj  # noqa: SLF001
    target.value = -1 if moment is not None and moment.record.lies else value
    return SUCCESS


def put_text(text: bytes, buffer: Any, _length: object = None) -> int:  # noqa: ANN401
    """Write a text into a buffer made by create_string_buffer()."""
    buffer.value = text
    return SUCCESS


def pci_info(moment: Moment, out: Any) -> int:  # noqa: ANN401
    """Fill the caller's structure for nvmlDeviceGetPciInfo_v3."""
    info, address = out._obj, moment.record.pci_bus_id  # noqa: SLF001
    info.busId, info.busIdLegacy = address, address[4:]
    info.bus = int(address.split(b":")[1], 16)
    return SUCCESS


def clock(moment: Moment, which: Any, out: Any) -> int:  # noqa: ANN401
    """Fill the caller's structure for nvmlDeviceGetClockInfo."""
    # Memory has its own; the video engines' is four fifths of the SMs' (H100: 1545 and 1980 MHz).
    clocks = {2: int(moment.record.memory_clock), 3: moment.sm_clock() * 4 // 5}
    return put(out, moment, clocks.get(getattr(which, "value", which), moment.sm_clock()))


def temperature(moment: Moment, _sensor: object, out: Any) -> int:  # noqa: ANN401
    """Fill the caller's structure for nvmlDeviceGetTemperature."""
    return put(out, moment, moment.temperature())


def temperature_v(moment: Moment, out: Any) -> int:  # noqa: ANN401
    """Fill the caller's structure for nvmlDeviceGetTemperatureV."""
    out._obj.temperature = -1 if moment.record.lies else moment.temperature()  # noqa: SLF001
    return SUCCESS


def utilisation(moment: Moment, out: Any) -> int:  # noqa: ANN401
    """Fill the caller's structure for nvmlDeviceGetUtilizationRates."""
    rates = out._obj  # noqa: SLF001
    rates.gpu = _U32 if moment.record.lies else moment.utilisation()
    rates.memory = _U32 if moment.record.lies else moment.record.memory_utilisation
    return SUCCESS


def memory(moment: Moment, out: Any) -> int:  # noqa: ANN401
    """Fill the caller's structure for nvmlDeviceGetMemoryInfo_v2."""
    record, memory = moment.record, out._obj  # noqa: SLF001
    memory.total, memory.reserved, memory.used = record.memory_total, record.memory_reserved, record.memory_used
    memory.free = _U64 if record.lies else record.memory_total - record.memory_reserved - record.memory_used
    return SUCCESS


def fill_value(entry: Any, kind: int, value: int) -> None:  # noqa: ANN401
    """Write a field value's number as its type has it."""
    if kind == UNSIGNED_INT:
        entry.value.uiVal = value & _U32
    else:
        entry.value.ullVal = value
