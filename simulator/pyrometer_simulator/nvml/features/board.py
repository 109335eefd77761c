"""A board's clocks, limits, engines and versions, beyond the basics.

State: ``max_clocks=[sm, memory]`` in MHz, ``limits_mw=[lowest, highest, default]``, ``requested_limit_mw``,
``encoder`` and ``decoder`` in percent, ``fan`` in percent (None: the board has no fan), ``replays``, ``license`` (None
for hardware that needs none, else 0 or 1), ``inforom=[image, oem, ecc, power]``, ``persistence`` (default 1).
"""

from __future__ import annotations

from typing import Any

from pyrometer_simulator.nvml.abi import (
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    SUCCESS,
    UNSIGNED_INT,
    UNSIGNED_LONG_LONG,
    Body,
    Library,
    write_number,
    write_text,
)
from pyrometer_simulator.nvml.gpu_state import GpuState

_INFOROM = ("G520.0200.00.05", "2.1", "7.16", "")  # image, OEM, ECC, power (which newer boards lack)
_SHUTDOWN, _SLOWDOWN = 95, 90
_BASE_CLOCK_REASONS = (3, 5, 6, 7)  # bits of the slowdowns that go below the base clock


class _Board:
    def __init__(self, library: Library) -> None:
        self._library = library

    def max_clock(self, gpu: GpuState, kind: Any, out: Any) -> int:  # noqa: ANN401
        clocks = self._library.setting(gpu, "max_clocks", (1980, 2619))
        return write_number(out, gpu, clocks[kind.value == 2])

    def threshold(self, gpu: GpuState, which: Any, out: Any) -> int:  # noqa: ANN401
        limits = {0: _SHUTDOWN, 1: _SLOWDOWN}
        return write_number(out, gpu, limits[which.value]) if which.value in limits else NOT_SUPPORTED

    def margin(self, gpu: GpuState, out: Any) -> int:  # noqa: ANN401
        if self._library.driver_version < (570,):
            return NOT_SUPPORTED
        out._obj.marginTemperature = _SLOWDOWN - 3 - gpu.temperature()  # noqa: SLF001
        return SUCCESS

    def engine(self, name: str) -> Body:
        def body(gpu: GpuState, out: Any, period: Any) -> int:  # noqa: ANN401
            write_number(period, None, 1_000_000)
            return write_number(out, gpu, int(self._library.setting(gpu, name, 0)))

        return body

    def fan(self, gpu: GpuState, out: Any) -> int:  # noqa: ANN401
        speed = self._library.setting(gpu, "fan")
        return NOT_SUPPORTED if speed is None else write_number(out, gpu, int(speed))

    def replays(self, gpu: GpuState, out: Any) -> int:  # noqa: ANN401
        return write_number(out, gpu, int(self._library.setting(gpu, "replays", 0)))

    def license(self, gpu: GpuState, out: Any) -> int:  # noqa: ANN401
        state, features = self._library.setting(gpu, "license"), out._obj  # noqa: SLF001
        features.isGridLicenseSupported = int(state is not None)
        features.licensableFeaturesCount = int(state is not None)
        features.gridLicensableFeatures[0].featureCode = 1
        features.gridLicensableFeatures[0].featureState = state or 0
        return SUCCESS

    def default_limit(self, gpu: GpuState, out: Any) -> int:  # noqa: ANN401
        """Answer nvmlDeviceGetPowerManagementDefaultLimit."""
        return write_number(out, gpu, _limits(self._library, gpu)[2])

    def requested_limit(self, gpu: GpuState, out: Any) -> int:  # noqa: ANN401
        """Answer nvmlDeviceGetPowerManagementLimit."""
        return write_number(out, gpu, _requested(self._library, gpu))

    def limits(self, gpu: GpuState, least: Any, most: Any) -> int:  # noqa: ANN401
        """Answer nvmlDeviceGetPowerManagementLimitConstraints."""
        limits = _limits(self._library, gpu)
        write_number(least, gpu, limits[0])
        return write_number(most, gpu, limits[1])

    def inforom_image(self, gpu: GpuState, *out: Any) -> int:  # noqa: ANN401
        return write_text(self._inforom(gpu)[0].encode(), *out)

    def inforom(self, gpu: GpuState, part: Any, *out: Any) -> int:  # noqa: ANN401
        known = self._inforom(gpu)
        if part.value + 1 >= len(known):
            return INVALID_ARGUMENT
        text = known[part.value + 1]
        return write_text(text.encode(), *out) if text else NOT_SUPPORTED

    def _inforom(self, gpu: GpuState) -> list[str]:
        return list(self._library.setting(gpu, "inforom", _INFOROM))


def functions(library: Library) -> dict[str, Body]:
    """Return the functions that answer one number or text."""
    board = _Board(library)
    bodies: dict[str, tuple[Body, str | None]] = {
        "nvmlDeviceGetMaxClockInfo": (board.max_clock, "clocks"),
        "nvmlDeviceGetTemperatureThreshold": (board.threshold, "temperature"),
        "nvmlDeviceGetMarginTemperature": (board.margin, "temperature"),
        "nvmlDeviceGetFanSpeed": (board.fan, None),
        "nvmlDeviceGetPerformanceState": (lambda gpu, out: write_number(out, gpu, 0), "clocks"),
        "nvmlDeviceGetEncoderUtilization": (board.engine("encoder"), "utilisation"),
        "nvmlDeviceGetDecoderUtilization": (board.engine("decoder"), "utilisation"),
        "nvmlDeviceGetPowerManagementLimit": (
            board.requested_limit,
            "power_limit",
        ),
        "nvmlDeviceGetPowerManagementDefaultLimit": (board.default_limit, "power_limit"),
        "nvmlDeviceGetPowerManagementLimitConstraints": (board.limits, "power_limit"),
        "nvmlDeviceGetPcieReplayCounter": (board.replays, None),
        "nvmlDeviceGetGridLicensableFeatures_v4": (board.license, None),
        "nvmlDeviceGetPersistenceMode": (
            lambda gpu, out: write_number(out, gpu, library.setting(gpu, "persistence", 1)),
            None,
        ),
        "nvmlDeviceGetBrand": (lambda gpu, out: write_number(out, gpu, 14), None),
        "nvmlDeviceGetInforomImageVersion": (board.inforom_image, None),
        "nvmlDeviceGetInforomVersion": (board.inforom, None),
    }
    return {name: library.device_call(body, feature) for name, (body, feature) in bodies.items()}


def field(library: Library, gpu: GpuState, field: int, scope: int) -> tuple[int, int] | None:  # noqa: ARG001
    """Return replays, power and limits, and the violation counters that aren't clock-event reasons."""
    if field == 94:
        return UNSIGNED_INT, int(library.setting(gpu, "replays", 0))
    if 186 <= field <= 192:
        return _power(library, gpu, field)
    if field == 75:
        return UNSIGNED_LONG_LONG, _nanoseconds(gpu, (5, 6))
    if field == 81:
        return UNSIGNED_LONG_LONG, _nanoseconds(gpu, _BASE_CLOCK_REASONS)
    return None


def _power(library: Library, gpu: GpuState, field: int) -> tuple[int, int] | None:
    limits = _limits(library, gpu)
    values = {
        186: gpu.power_mw(), 187: limits[0], 188: limits[1], 189: limits[2],
        190: int(gpu.record.power_limit_mw), 192: _requested(library, gpu),
    }  # fmt: skip
    return (UNSIGNED_INT, values[field]) if field in values else None


def _limits(library: Library, gpu: GpuState) -> tuple[int, int, int]:
    least, most, default = library.setting(gpu, "limits_mw", (200_000, 700_000, 700_000))
    return least, most, default


def _requested(library: Library, gpu: GpuState) -> int:
    return int(library.setting(gpu, "requested_limit_mw", gpu.record.power_limit_mw))


def _nanoseconds(gpu: GpuState, bits: tuple[int, ...]) -> int:
    # The reasons overlap: the longest of them is a lower bound of their union.
    return max(0, int(max(gpu.reason_seconds(bit) for bit in bits) * 1e9))
