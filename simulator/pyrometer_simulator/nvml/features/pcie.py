"""PCIe link width, generation and error counters.

``set(pcie={"width": 8})``: lanes; also ``gen``, ``max_width`` and ``max_gen``. Without ``gen`` the link is of
generation 5 under load and of generation 1 at rest.
``set(pcie_errors={"bad_tlp": 3})``: counts by the names of nvml.h's fields 169 and 173-183.
"""

from __future__ import annotations

from typing import Any

from pyrometer_simulator.nvml.abi import UNSIGNED_INT, Body, Library, write_number
from pyrometer_simulator.nvml.gpu_state import GpuState

_ERRORS = {
    169: "l0_to_recovery_counter",
    173: "correctable_errors",
    174: "naks_received",
    175: "receiver_error",
    176: "bad_tlp",
    177: "naks_sent",
    178: "bad_dllp",
    179: "non_fatal_error",
    180: "fatal_error",
    181: "unsupported_req",
    182: "lcrc_error",
    183: "lane_error",
}


def functions(library: Library) -> dict[str, Body]:
    """Return width and generation, current and maximum."""

    def reads(name: str, default: int) -> Body:
        def body(gpu: GpuState, out: Any) -> int:  # noqa: ANN401
            resting = name == "gen" and not gpu.utilisation()
            return write_number(out, gpu, library.setting(gpu, "pcie", {}).get(name, 1 if resting else default))

        return library.device_call(body)

    return {
        "nvmlDeviceGetCurrPcieLinkWidth": reads("width", 16),
        "nvmlDeviceGetCurrPcieLinkGeneration": reads("gen", 5),
        "nvmlDeviceGetMaxPcieLinkWidth": reads("max_width", 16),
        "nvmlDeviceGetMaxPcieLinkGeneration": reads("max_gen", 5),
    }


def field(library: Library, gpu: GpuState, field: int, _scope: int) -> tuple[int, int] | None:
    """Return fields 169 and 173-183, of drivers 535 and newer."""
    if field not in _ERRORS or library.driver_version < (535,):
        return None
    return UNSIGNED_INT, library.setting(gpu, "pcie_errors", {}).get(_ERRORS[field], 0)
