"""DCGM's violation counters: how long policies held the clocks below the requested ones.

``pyrometer_gpu_clock_event_seconds_total`` has the same in seconds and for all reasons; these are for rules that were
written for DCGM.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyrometer_exporters.framework.metrics import Columns, Family
from pyrometer_exporters.node.gpu.families import GpuFamilies
from pyrometer_exporters.node.gpu.nvml import FieldKey
from pyrometer_exporters.node.gpu.readings import MOST_COUNT
from pyrometer_exporters.node.gpu.subject import BoundSamples, OpenGpu, SubjectSpec

# fmt: off
_ROWS = GpuFamilies()
POWER_VIOLATION = _ROWS.dcgm_counter("DCGM_FI_DEV_POWER_VIOLATION",
    "Time in ns for which the power limit held the clocks down, NVML field 74; normal under full load.")
THERMAL_VIOLATION = _ROWS.dcgm_counter("DCGM_FI_DEV_THERMAL_VIOLATION",
    "Time in ns for which a temperature held the clocks down, NVML field 75.")
SYNC_BOOST_VIOLATION = _ROWS.dcgm_counter("DCGM_FI_DEV_SYNC_BOOST_VIOLATION",
    "Time in ns for which GPUs that boost together held the clocks down, NVML field 76.")
BOARD_LIMIT_VIOLATION = _ROWS.dcgm_counter("DCGM_FI_DEV_BOARD_LIMIT_VIOLATION",
    "Time in ns for which the board's current or voltage limit held the clocks down, NVML field 77.")
LOW_UTIL_VIOLATION = _ROWS.dcgm_counter("DCGM_FI_DEV_LOW_UTIL_VIOLATION",
    "Time in ns for which clocks were low because there was little to do, NVML field 78; grows on every idle GPU.")
RELIABILITY_VIOLATION = _ROWS.dcgm_counter("DCGM_FI_DEV_RELIABILITY_VIOLATION",
    "Time in ns for which the highest reliable voltage held the clocks down, NVML field 79.")
TOTAL_BASE_CLOCKS_VIOLATION = _ROWS.dcgm_counter("DCGM_FI_DEV_TOTAL_BASE_CLOCKS_VIOLATION",
    "Time in ns for which clocks were below the base clock for whatever reason, NVML field 81.")
# fmt: on

# NVML_FI_DEV_PERF_POLICY_*; 80, below the application clocks, goes with those (deprecated by NVIDIA).
_FIELDS: dict[FieldKey, Family] = {
    74: POWER_VIOLATION,
    75: THERMAL_VIOLATION,
    76: SYNC_BOOST_VIOLATION,
    77: BOARD_LIMIT_VIOLATION,
    78: LOW_UTIL_VIOLATION,
    79: RELIABILITY_VIOLATION,
    81: TOTAL_BASE_CLOCKS_VIOLATION,
}
_WANTED = tuple(_FIELDS)


class Violations:
    """As the driver counts them since it was loaded."""

    def __init__(self) -> None:
        self._samples = BoundSamples({})

    def open(self, gpu: OpenGpu) -> None:
        """Nothing to ask."""
        samples = {key: gpu.dcgm(family, 0) for key, family in _FIELDS.items()}
        self._samples = BoundSamples(samples, least=0, most=MOST_COUNT)

    def fields(self) -> Sequence[FieldKey]:
        """Return the counters' ids, which are the same since Volta."""
        return _WANTED

    def read(self, fields: Mapping[FieldKey, float]) -> Iterable[Columns]:
        """DCGM's samples."""
        return (self._samples.read(fields),)


SUBJECT = SubjectSpec(name="dcgm_violations", families=tuple(_FIELDS.values()), make=Violations)
