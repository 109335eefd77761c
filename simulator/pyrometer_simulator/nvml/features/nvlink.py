"""NVLink states and errors.

``set(nvlinks=18)``: how many links the GPU has; 0 for a GPU without. ``set(nvlinks_down=[3])``: links that are down.
``set(nvlink_generation=5)``: Blackwell's counters in place of those up to Hopper (4, the default).
``set(nvlink_errors={"3/replay": 5})``: counts by link and error: replay, recovery, crc up to Hopper; from NVLink 5 on
the names of nvml.h's fields 205-221 in small letters without NVML_FI_DEV_NVLINK_COUNT_, such as
``link_recovery_events``. ``set(nvlink_state_field=...)``: the value of field 165 for every link, None for not
supported; by default it is the link's state.
"""

from __future__ import annotations

from typing import Any

from pyrometer_simulator.nvml.abi import (
    ALL_LINKS,
    INVALID_ARGUMENT,
    UNSIGNED_INT,
    UNSIGNED_LONG_LONG,
    Body,
    Library,
    write_number,
)
from pyrometer_simulator.nvml.gpu_state import GpuState

_HOPPER_TOTALS = {38: "crc", 45: "crc_data", 52: "replay", 59: "recovery"}
_HOPPER_LINKS = {161: "replay", 162: "recovery", 163: "crc"}
_NVLINK5 = {
    205: "vl15_dropped",
    206: "malformed_packet_errors",
    207: "buffer_overrun_errors",
    208: "rcv_errors",
    209: "rcv_remote_errors",
    210: "rcv_general_errors",
    211: "local_link_integrity_errors",
    212: "xmit_discards",
    213: "link_recovery_successful_events",
    214: "link_recovery_failed_events",
    215: "link_recovery_events",
    219: "effective_errors",
    221: "symbol_errors",
}


def functions(library: Library) -> dict[str, Body]:
    """Return the links' states."""

    def state(gpu: GpuState, link: int, out: Any) -> int:  # noqa: ANN401
        if link >= library.setting(gpu, "nvlinks", 18):
            return INVALID_ARGUMENT
        return write_number(out, gpu, int(link not in library.setting(gpu, "nvlinks_down", ())))

    return {"nvmlDeviceGetNvLinkState": library.device_call(state)}


def field(library: Library, gpu: GpuState, field: int, scope: int) -> tuple[int, int] | None:
    """Return fields 38, 45, 52, 59, 91, 161-163, 165, 205-215, 219 and 221."""
    links = library.setting(gpu, "nvlinks", 18)
    if field == 91:
        return (UNSIGNED_INT, links) if links else None
    if field == 165 and scope < links:
        state = library.setting(gpu, "nvlink_state_field", int(scope not in library.setting(gpu, "nvlinks_down", ())))
        return None if state is None else (UNSIGNED_INT, state)
    newer = library.setting(gpu, "nvlink_generation", 4) >= 5
    if field in _HOPPER_TOTALS and links and not newer:
        return UNSIGNED_LONG_LONG, _count(library, gpu, ALL_LINKS, _HOPPER_TOTALS[field])
    if field in _HOPPER_LINKS and scope < links and not newer:
        return UNSIGNED_LONG_LONG, _count(library, gpu, scope, _HOPPER_LINKS[field])
    if field in _NVLINK5 and newer and _has_link(links, scope) and library.driver_version >= (560,):
        return UNSIGNED_LONG_LONG, _count(library, gpu, scope, _NVLINK5[field])
    return None


def _has_link(links: int, scope: int) -> bool:
    return bool(links) and (scope < links or scope == ALL_LINKS)


def _count(library: Library, gpu: GpuState, scope: int, error: str) -> int:
    counts = library.setting(gpu, "nvlink_errors", {})
    if scope != ALL_LINKS:
        return int(counts.get(f"{scope}/{error}", 0))
    return sum(count for name, count in counts.items() if name.partition("/")[2] == error)
