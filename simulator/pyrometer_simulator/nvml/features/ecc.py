"""Memory errors, retired pages and remapped rows.

``set(ecc="off")``: no ECC, and the counters' entries are left untouched; ``"unset"``: the entries of the mode, too;
``"mistyped"``: counters with a wrong valueType. Default ``"on"``.
``set(ecc_errors={"volatile/device_memory/uncorrected": 2})``: counts by counter (volatile, aggregate), place (l1_cache,
l2_cache, device_memory, register_file, texture_memory, cbu, sram) and type (corrected, uncorrected).
``set(sram_exceeded=1)``. ``set(retired={"sbe": 1, "dbe": 0, "pending": 1})``: a GPU older than Ampere.
``set(remapped={"corrected": 1, "uncorrected": 1, "pending": 1, "failure": 1})``, and of drivers 610 and 615
``inactive_corrected``, ``inactive_uncorrected``, ``banks``, ``inactive_banks``, ``banks_pending``.
``set(spare_banks=[2559, 1, 0, 0, 0])``: banks with all, most, a part, few and none of their spare rows.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pyrometer_simulator.nvml.abi import (
    DOUBLE,
    NOT_SUPPORTED,
    SUCCESS,
    UNSIGNED_INT,
    UNSIGNED_LONG_LONG,
    UNTOUCHED,
    Body,
    Library,
    since_driver,
    write_number,
)
from pyrometer_simulator.nvml.gpu_state import GpuState

_PLACES = ("l1_cache", "l2_cache", "device_memory", "register_file", "texture_memory")
_COUNTERS = ("volatile", "aggregate")
_TYPES = ("corrected", "uncorrected")
_TOTALS = {
    3: "volatile//corrected",
    4: "volatile//uncorrected",
    5: "aggregate//corrected",
    6: "aggregate//uncorrected",
}
_BY_PLACE = {
    **{7 + 2 * n + k: f"volatile/{place}/{kind}" for n, place in enumerate(_PLACES) for k, kind in enumerate(_TYPES)},
    17: "volatile/cbu/uncorrected",
    **{18 + 2 * n + k: f"aggregate/{place}/{kind}" for n, place in enumerate(_PLACES) for k, kind in enumerate(_TYPES)},
    28: "aggregate/cbu/uncorrected",
}
_RETIRED = {29: "sbe", 30: "dbe", 31: "pending"}
_REMAPPED = {142: "corrected", 143: "uncorrected", 144: "pending", 145: "failure"}
_REMAPPED_610 = {301: "inactive_corrected", 302: "inactive_uncorrected"}
_REMAPPED_615 = {303: "banks", 304: "inactive_banks", 307: "banks_pending"}
# nvmlMemoryLocation_t of this generation: the DRAM and all of the chip's own.
_LOCATIONS = {2: "device_memory", 7: "sram"}
_OFF = ("off", "unset")
_H100_BANKS = (2560, 0, 0, 0, 0)


def functions(library: Library) -> dict[str, Body]:
    """Return ECC mode, error counts, spare rows and the SRAM threshold."""

    def row_histogram(gpu: GpuState, out: Any) -> int:  # noqa: ANN401
        banks = library.setting(gpu, "spare_banks", _H100_BANKS)
        target = out._obj  # noqa: SLF001
        target.max, target.high, target.partial, target.low, target.none = banks
        return SUCCESS

    def memory_errors(gpu: GpuState, kind: Any, counter: Any, location: Any, out: Any) -> int:  # noqa: ANN401
        place = _LOCATIONS.get(location.value)
        if place is None or library.setting(gpu, "ecc", "on") in _OFF:
            return NOT_SUPPORTED
        return write_number(out, gpu, _errors(library, gpu, f"{_COUNTERS[counter.value]}/{place}/{_TYPES[kind.value]}"))

    def sram_status(gpu: GpuState, out: Any) -> int:  # noqa: ANN401
        if library.setting(gpu, "ecc", "on") in _OFF:
            return NOT_SUPPORTED
        out._obj.bThresholdExceeded = library.setting(gpu, "sram_exceeded", 0)  # noqa: SLF001
        return SUCCESS

    def ecc_mode(gpu: GpuState, current: Any, pending: Any) -> int:  # noqa: ANN401
        on = int(library.setting(gpu, "ecc", "on") not in _OFF)
        write_number(current, gpu, on)
        return write_number(pending, gpu, on)

    return {
        "nvmlDeviceGetEccMode": library.device_call(ecc_mode),
        "nvmlDeviceGetRowRemapperHistogram": library.device_call(row_histogram),
        "nvmlDeviceGetMemoryErrorCounter": library.device_call(memory_errors),
        "nvmlDeviceGetSramEccErrorStatus": library.device_call(since_driver(library, (535,), sram_status)),
    }


def field(library: Library, gpu: GpuState, field: int, _scope: int) -> tuple[int, int] | None:
    """Return fields 1-31, 142-145, 301-304 and 307."""
    if field in (1, 2):
        mode = library.setting(gpu, "ecc", "on")
        return (UNTOUCHED if mode == "unset" else UNSIGNED_INT), int(mode not in _OFF)
    if field in _TOTALS or field in _BY_PLACE:
        return _ecc_counter(library, gpu, field)
    if field in _RETIRED:
        retired = library.setting(gpu, "retired")
        return None if retired is None else (UNSIGNED_LONG_LONG, retired.get(_RETIRED[field], 0))
    names = _remapped(library.driver_version)
    if field in names and library.setting(gpu, "retired") is None:
        return UNSIGNED_INT, library.setting(gpu, "remapped", {}).get(names[field], 0)
    return None


@cache
def _remapped(version: tuple[int, ...]) -> dict[int, str]:
    """Return what counts each field of remapped rows, as this driver numbers them."""
    newer = {**_REMAPPED_610, **(_REMAPPED_615 if version >= (615,) else {})} if version >= (610,) else {}
    return {**_REMAPPED, **newer}


def _ecc_counter(library: Library, gpu: GpuState, field: int) -> tuple[int, int]:
    mode = library.setting(gpu, "ecc", "on")
    if mode in _OFF:
        return UNTOUCHED, 0
    kind = DOUBLE if mode == "mistyped" else UNSIGNED_LONG_LONG
    if field in _BY_PLACE:
        return kind, _errors(library, gpu, _BY_PLACE[field])
    counter, error = _TOTALS[field].split("//")
    places = (*_PLACES, "cbu", "sram")
    return kind, sum(_errors(library, gpu, f"{counter}/{place}/{error}") for place in places)


def _errors(library: Library, gpu: GpuState, name: str) -> int:
    return int(library.setting(gpu, "ecc_errors", {}).get(name, 0))
