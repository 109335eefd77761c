"""DCGM's violation counters: how long policies held the clocks below the requested ones.

``pyrometer_gpu_clock_event_seconds_total`` has the same in seconds and for all reasons; these are for rules that were
written for DCGM.
"""

from __future__ import annotations

from pyrometer_exporters.node.gpu.families import GpuFamilies
from pyrometer_exporters.node.gpu.field_subject import FieldSample, FieldSubject
from pyrometer_exporters.node.gpu.subject import SubjectSpec

# fmt: off
_ROWS = GpuFamilies()
_ROWS.dcgm_counter("DCGM_FI_DEV_POWER_VIOLATION",
    "Time in ns for which the power limit held the clocks down, NVML field 74; normal under full load.")
_ROWS.dcgm_counter("DCGM_FI_DEV_THERMAL_VIOLATION",
    "Time in ns for which a temperature held the clocks down, NVML field 75.")
_ROWS.dcgm_counter("DCGM_FI_DEV_SYNC_BOOST_VIOLATION",
    "Time in ns for which GPUs that boost together held the clocks down, NVML field 76.")
_ROWS.dcgm_counter("DCGM_FI_DEV_BOARD_LIMIT_VIOLATION",
    "Time in ns for which the board's current or voltage limit held the clocks down, NVML field 77.")
_ROWS.dcgm_counter("DCGM_FI_DEV_LOW_UTIL_VIOLATION",
    "Time in ns for which clocks were low because there was little to do, NVML field 78; grows on every idle GPU.")
_ROWS.dcgm_counter("DCGM_FI_DEV_RELIABILITY_VIOLATION",
    "Time in ns for which the highest reliable voltage held the clocks down, NVML field 79.")
_ROWS.dcgm_counter("DCGM_FI_DEV_TOTAL_BASE_CLOCKS_VIOLATION",
    "Time in ns for which clocks were below the base clock for whatever reason, NVML field 81.")
# fmt: on

# NVML_FI_DEV_PERF_POLICY_*, the same since Volta; 80, below the application clocks, goes with those.
_FIELDS = dict(zip((74, 75, 76, 77, 78, 79, 81), _ROWS, strict=True))

SUBJECT = SubjectSpec(
    "dcgm_violations",
    tuple(_ROWS),
    lambda: FieldSubject(always=[FieldSample(field, family) for field, family in _FIELDS.items()]),
)
