"""A board's clocks, limits, engines and versions, beyond the basics.

State: ``max_clocks=[sm, memory]`` in MHz, ``limits_mw=[lowest, highest, default]``, ``requested_limit_mw``,
``encoder`` and ``decoder`` in percent, ``fan`` in percent (without it there is none), ``replays``, ``license`` (None
for hardware that needs none, else 0 or 1), ``inforom=[image, oem, ecc, power]``.
"""

from __future__ import annotations

from typing import Any

from pyrometer_simulator.nvml.layout import GpuRecord
from pyrometer_simulator.nvml.library import (
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    SUCCESS,
    UNSIGNED_INT,
    UNSIGNED_LONG_LONG,
    Body,
    FakeLibrary,
    put,
    put_text,
)
from pyrometer_simulator.nvml.moment import Moment

_INFOROM = ("G520.0200.00.05", "2.1", "7.16", "")  # image, OEM, ECC, power (which newer boards lack)
_SHUTDOWN, _SLOWDOWN = 95, 90
_BASE_CLOCK_REASONS = (3, 5, 6, 7)  # bits of the slowdowns that go below the base clock


class _Board:
    def __init__(self, library: FakeLibrary) -> None:
        self._library = library

    def max_clock(self, moment: Moment, kind: Any, out: Any) -> int:  # noqa: ANN401
        clocks = self._library.extra(moment, "max_clocks", (1980, 2619))
        return put(out, moment, clocks[kind.value == 2])

    def threshold(self, moment: Moment, which: Any, out: Any) -> int:  # noqa: ANN401
        limits = {0: _SHUTDOWN, 1: _SLOWDOWN}
        return put(out, moment, limits[which.value]) if which.value in limits else NOT_SUPPORTED

    def margin(self, moment: Moment, out: Any) -> int:  # noqa: ANN401
        if self._library.driver < (570,):
            return NOT_SUPPORTED
        out._obj.marginTemperature = _SLOWDOWN - 3 - moment.temperature()  # noqa: SLF001
        return SUCCESS

    def engine(self, name: str) -> Body:
        def body(moment: Moment, out: Any, period: Any) -> int:  # noqa: ANN401
            put(period, None, 1_000_000)
            return put(out, moment, int(self._library.extra(moment, name, 0)))

        return body

    def fan(self, moment: Moment, out: Any) -> int:  # noqa: ANN401
        speed = self._library.extra(moment, "fan")
        return NOT_SUPPORTED if speed is None else put(out, moment, int(speed))

    def replays(self, moment: Moment, out: Any) -> int:  # noqa: ANN401
        return put(out, moment, int(self._library.extra(moment, "replays", 0)))

    def license(self, moment: Moment, out: Any) -> int:  # noqa: ANN401
        state, features = self._library.extra(moment, "license"), out._obj  # noqa: SLF001
        features.isGridLicenseSupported = int(state is not None)
        features.licensableFeaturesCount = int(state is not None)
        features.gridLicensableFeatures[0].featureCode = 1
        features.gridLicensableFeatures[0].featureState = state or 0
        return SUCCESS

    def default_limit(self, moment: Moment, out: Any) -> int:  # noqa: ANN401
        """Fill in for nvmlDeviceGetPowerManagementDefaultLimit."""
        return put(out, moment, _limits(self._library, moment)[2])

    def limits(self, moment: Moment, least: Any, most: Any) -> int:  # noqa: ANN401
        """Fill in for nvmlDeviceGetPowerManagementLimitConstraints."""
        limits = _limits(self._library, moment)
        put(least, moment, limits[0])
        return put(most, moment, limits[1])

    def inforom_image(self, moment: Moment, *out: Any) -> int:  # noqa: ANN401
        return put_text(self._inforom(moment)[0].encode(), *out)

    def inforom(self, moment: Moment, part: Any, *out: Any) -> int:  # noqa: ANN401
        known = self._inforom(moment)
        if part.value + 1 >= len(known):
            return INVALID_ARGUMENT
        text = known[part.value + 1]
        return put_text(text.encode(), *out) if text else NOT_SUPPORTED

    def _inforom(self, moment: Moment) -> list[str]:
        return list(self._library.extra(moment, "inforom", _INFOROM))


def functions(library: FakeLibrary) -> dict[str, Body]:
    """The calls that have one number or text as their result."""
    board = _Board(library)
    bodies: dict[str, tuple[Body, str | None]] = {
        "nvmlDeviceGetMaxClockInfo": (board.max_clock, "clocks"),
        "nvmlDeviceGetTemperatureThreshold": (board.threshold, "temperature"),
        "nvmlDeviceGetMarginTemperature": (board.margin, "temperature"),
        "nvmlDeviceGetFanSpeed": (board.fan, None),
        "nvmlDeviceGetPerformanceState": (lambda moment, out: put(out, moment, 0), "clocks"),
        "nvmlDeviceGetEncoderUtilization": (board.engine("encoder"), "utilisation"),
        "nvmlDeviceGetDecoderUtilization": (board.engine("decoder"), "utilisation"),
        "nvmlDeviceGetPowerManagementLimit": (lambda m, out: put(out, m, _requested(library, m)), "power_limit"),
        "nvmlDeviceGetPowerManagementDefaultLimit": (board.default_limit, "power_limit"),
        "nvmlDeviceGetPowerManagementLimitConstraints": (board.limits, "power_limit"),
        "nvmlDeviceGetPcieReplayCounter": (board.replays, None),
        "nvmlDeviceGetGridLicensableFeatures_v4": (board.license, None),
        "nvmlDeviceGetBrand": (lambda moment, out: put(out, moment, 14), None),
        "nvmlDeviceGetInforomImageVersion": (board.inforom_image, None),
        "nvmlDeviceGetInforomVersion": (board.inforom, None),
    }
    return {name: library.device(body, feature) for name, (body, feature) in bodies.items()}


def field(library: FakeLibrary, moment: Moment, field: int, scope: int) -> tuple[int, int] | None:  # noqa: ARG001
    """Replays, power and limits, and the violation counters that aren't clock-event reasons."""
    record = moment.record
    if field == 94:
        return UNSIGNED_INT, int(library.extra(moment, "replays", 0))
    if 186 <= field <= 192:
        return _power(library, moment, field)
    if field == 75:
        return UNSIGNED_LONG_LONG, _nanoseconds(moment, (5, 6), record)
    if field == 81:
        return UNSIGNED_LONG_LONG, _nanoseconds(moment, _BASE_CLOCK_REASONS, record)
    return None


def _power(library: FakeLibrary, moment: Moment, field: int) -> tuple[int, int] | None:
    limits = _limits(library, moment)
    values = {
        186: moment.power_mw(), 187: limits[0], 188: limits[1], 189: limits[2],
        190: int(moment.record.power_limit_mw), 192: _requested(library, moment),
    }  # fmt: skip
    return (UNSIGNED_INT, values[field]) if field in values else None


def _limits(library: FakeLibrary, moment: Moment) -> tuple[int, int, int]:
    least, most, default = library.extra(moment, "limits_mw", (200_000, 700_000, 700_000))
    return least, most, default


def _requested(library: FakeLibrary, moment: Moment) -> int:
    return int(library.extra(moment, "requested_limit_mw", moment.record.power_limit_mw))


def _nanoseconds(moment: Moment, bits: tuple[int, ...], record: GpuRecord) -> int:
    # They overlap: the longest of them is the least that can be true of all.
    seconds = max(moment.reason_seconds(bit) for bit in bits) - record.counter_steps_back
    return max(0, int(seconds * 1e9))
