"""DCGM's fields that are one NVML call or one field value each: clocks, limits, power, engines, PCIe replays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyrometer_exporters.framework.metrics import Columns, Family, Row, columns_of
from pyrometer_exporters.node.gpu import number_calls
from pyrometer_exporters.node.gpu.families import GpuFamilies
from pyrometer_exporters.node.gpu.number_calls import NumberCall
from pyrometer_exporters.node.gpu.nvml import FieldKey, NvmlError, number_or_none, optional
from pyrometer_exporters.node.gpu.readings import MOST_CELSIUS, MOST_COUNT, MOST_MEGAHERTZ, MOST_PERCENT, MOST_WATTS
from pyrometer_exporters.node.gpu.subject import OpenGpu, SubjectSpec

# fmt: off
_ROWS = GpuFamilies()
VIDEO_CLOCK = _ROWS.dcgm_gauge("DCGM_FI_DEV_VIDEO_CLOCK",
    "Clock of the video engines in MHz, from nvmlDeviceGetClockInfo(NVML_CLOCK_VIDEO).")
MAX_SM_CLOCK = _ROWS.dcgm_gauge("DCGM_FI_DEV_MAX_SM_CLOCK",
    "Highest clock of the streaming multiprocessors in MHz, from nvmlDeviceGetMaxClockInfo when the GPU was opened.")
MAX_MEM_CLOCK = _ROWS.dcgm_gauge("DCGM_FI_DEV_MAX_MEM_CLOCK",
    "Highest clock of the memory in MHz, from nvmlDeviceGetMaxClockInfo when the GPU was opened.")
SLOWDOWN_TEMP = _ROWS.dcgm_gauge("DCGM_FI_DEV_SLOWDOWN_TEMP",
    "Temperature at which the hardware slows down in degrees Celsius, from nvmlDeviceGetTemperatureThreshold.")
SHUTDOWN_TEMP = _ROWS.dcgm_gauge("DCGM_FI_DEV_SHUTDOWN_TEMP",
    "Temperature at which the GPU shuts down in degrees Celsius, from nvmlDeviceGetTemperatureThreshold.")
PSTATE = _ROWS.dcgm_gauge("DCGM_FI_DEV_PSTATE",
    "Performance state, 0 for the highest to 15, from nvmlDeviceGetPerformanceState; 32 where the driver can't say.")
ENC_UTIL = _ROWS.dcgm_gauge("DCGM_FI_DEV_ENC_UTIL",
    "Share of time in which the video encoders worked in %, from nvmlDeviceGetEncoderUtilization.")
DEC_UTIL = _ROWS.dcgm_gauge("DCGM_FI_DEV_DEC_UTIL",
    "Share of time in which the video decoders worked in %, from nvmlDeviceGetDecoderUtilization.")
POWER_USAGE_INSTANT = _ROWS.dcgm_gauge("DCGM_FI_DEV_POWER_USAGE_INSTANT",
    "Power drawn by the GPU at this moment in W, from NVML field 186; DCGM_FI_DEV_POWER_USAGE is a mean.")
POWER_MGMT_LIMIT = _ROWS.dcgm_gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT",
    "Requested power limit in W, from NVML field 192 or nvmlDeviceGetPowerManagementLimit; the limit in force is "
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT.")
POWER_MGMT_LIMIT_MIN = _ROWS.dcgm_gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN",
    "Lowest power limit that can be set in W, from NVML field 187 or nvmlDeviceGetPowerManagementLimitConstraints.")
POWER_MGMT_LIMIT_MAX = _ROWS.dcgm_gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX",
    "Highest power limit that can be set in W, from NVML field 188 or nvmlDeviceGetPowerManagementLimitConstraints.")
POWER_MGMT_LIMIT_DEF = _ROWS.dcgm_gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF",
    "Default power limit of the board in W, from NVML field 189 or nvmlDeviceGetPowerManagementDefaultLimit; "
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT below it means that the limit was lowered.")
GPU_TEMP_LIMIT = _ROWS.dcgm_gauge("DCGM_FI_DEV_GPU_TEMP_LIMIT",
    "Degrees Celsius left until the GPU slows down, from nvmlDeviceGetMarginTemperature (driver 570 and newer); below "
    "0 it is too hot.")
FAN_SPEED = _ROWS.dcgm_gauge("DCGM_FI_DEV_FAN_SPEED",
    "Speed that the fans are set to in %, from nvmlDeviceGetFanSpeed; boards cooled by the node have none.")
PCIE_REPLAY_COUNTER = _ROWS.dcgm_counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "PCIe packets that had to be sent again, from NVML field 94 or nvmlDeviceGetPcieReplayCounter.")
# fmt: on


@dataclass(frozen=True)
class _Call:
    """A family whose value is one call's number, and the most and the least that can be true."""

    family: Family
    call: NumberCall
    most: float
    least: float = 0


@dataclass(frozen=True)
class _Field:
    """A family whose value is one field value divided by ``scale``, or on drivers without that field, a call's."""

    family: Family
    key: int
    scale: int
    most: float
    call: str = ""
    part: int | None = None
    """Which of the call's numbers, where it has several."""


_MOST_PSTATE = 32  # NVML_PSTATE_UNKNOWN
_MOST_FAN_PERCENT = 200  # of the speed that is quiet enough, so above 100 is possible (nvml.h)

_CALLS = (
    _Call(VIDEO_CLOCK, number_calls.VIDEO_CLOCK, MOST_MEGAHERTZ),
    _Call(PSTATE, number_calls.PERFORMANCE_STATE, _MOST_PSTATE),
    _Call(ENC_UTIL, number_calls.ENCODER_UTILISATION, MOST_PERCENT),
    _Call(DEC_UTIL, number_calls.DECODER_UTILISATION, MOST_PERCENT),
    _Call(GPU_TEMP_LIMIT, number_calls.MARGIN_TEMPERATURE, MOST_CELSIUS, -MOST_CELSIUS),
    _Call(FAN_SPEED, number_calls.FAN_SPEED, _MOST_FAN_PERCENT),
)
# Limits of the board; read when the GPU is opened. nvml.h: nvmlClockType_t, nvmlTemperatureThresholds_t.
_CONSTANTS = (
    _Call(MAX_SM_CLOCK, NumberCall("nvmlDeviceGetMaxClockInfo", (1,)), MOST_MEGAHERTZ),
    _Call(MAX_MEM_CLOCK, NumberCall("nvmlDeviceGetMaxClockInfo", (2,)), MOST_MEGAHERTZ),
    _Call(SHUTDOWN_TEMP, NumberCall("nvmlDeviceGetTemperatureThreshold", (0,)), MOST_CELSIUS),
    _Call(SLOWDOWN_TEMP, NumberCall("nvmlDeviceGetTemperatureThreshold", (1,)), MOST_CELSIUS),
)
_FIELDS = (
    _Field(POWER_USAGE_INSTANT, 186, 1000, MOST_WATTS),
    _Field(POWER_MGMT_LIMIT, 192, 1000, MOST_WATTS, "nvmlDeviceGetPowerManagementLimit"),
    _Field(POWER_MGMT_LIMIT_MIN, 187, 1000, MOST_WATTS, "nvmlDeviceGetPowerManagementLimitConstraints", 0),
    _Field(POWER_MGMT_LIMIT_MAX, 188, 1000, MOST_WATTS, "nvmlDeviceGetPowerManagementLimitConstraints", 1),
    _Field(POWER_MGMT_LIMIT_DEF, 189, 1000, MOST_WATTS, "nvmlDeviceGetPowerManagementDefaultLimit"),
    _Field(PCIE_REPLAY_COUNTER, 94, 1, MOST_COUNT, "nvmlDeviceGetPcieReplayCounter"),
)
_WANTED: tuple[FieldKey, ...] = tuple(field.key for field in _FIELDS)


class SingleValues:
    """Values that can't be true are left out: the everyday readings judge whether the GPU can be trusted at all."""

    _gpu: OpenGpu
    _numbers: Callable[[], list[int | NvmlError]]
    _constants: list[Row]

    def open(self, gpu: OpenGpu) -> None:
        """Read what never changes."""
        self._gpu = gpu
        self._numbers = gpu.nvml.numbers(gpu.handle, [row.call for row in _CALLS])
        constants = gpu.nvml.numbers(gpu.handle, [row.call for row in _CONSTANTS])()
        self._constants = list(_plausible(gpu, _CONSTANTS, constants))

    def fields(self) -> Sequence[FieldKey]:
        """NVML_FI_DEV_PCIE_REPLAY_COUNTER and NVML_FI_DEV_POWER_*: the same ids since R525."""
        return _WANTED

    def read(self, fields: Mapping[FieldKey, float]) -> Iterable[Columns]:
        """DCGM's samples."""
        gpu = self._gpu
        rows = [*self._constants, *_plausible(gpu, _CALLS, self._numbers())]
        for field in _FIELDS:
            number = fields[field.key] if field.key in fields else _by_call(gpu, field)
            if number is not None and 0 <= number / field.scale <= field.most:
                rows.append(gpu.dcgm(field.family, number / field.scale))
        yield columns_of(rows)


def _plausible(gpu: OpenGpu, calls: Iterable[_Call], numbers: Iterable[int | NvmlError]) -> Iterator[Row]:
    for call, answer in zip(calls, numbers, strict=True):
        number = number_or_none(answer)
        if number is not None and call.least <= number <= call.most:
            yield gpu.dcgm(call.family, number)


def _by_call(gpu: OpenGpu, field: _Field) -> float | None:
    if not field.call:
        return None
    answer = optional(lambda: gpu.nvml.ask(field.call, gpu.handle))
    if answer is None:
        return None
    return float(answer if field.part is None else answer[field.part])


SUBJECT = SubjectSpec(
    name="dcgm_single",
    families=(*(call.family for call in (*_CALLS, *_CONSTANTS)), *(field.family for field in _FIELDS)),
    make=SingleValues,
)
