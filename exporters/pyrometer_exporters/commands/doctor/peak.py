"""Say which GPUs can't reach the peak that their runs' MFU is relative to, and why."""

from __future__ import annotations

from collections.abc import Iterator

from pyrometer_exporters.commands.doctor.readings import Readings
from pyrometer_exporters.commands.doctor.report import Report
from pyrometer_exporters.node.train.peaks import PEAKS

# nvml.h, nvmlClocksEventReasonApplicationsClocksSetting: application clocks, or clocks locked by nvidia-smi.
_CLOCKS_SET = 0x2
# Limits are whole watts; a vendor's rounding is no cap.
_SAME_WATTS = 1.0


def peak_notes(report: Report, readings: Readings) -> Iterator[str]:
    """Yield a line for each cause, with the GPUs it concerns; nothing for GPUs whose peak isn't known."""
    reasons: dict[str, list[str]] = {}
    for gpu in report.gpus:
        for reason in _reasons(readings, gpu.gpu) if gpu.model in PEAKS and not gpu.down else ():
            reasons.setdefault(f"{reason}, so the peak of {_peak_of(gpu.model)} can't be reached", []).append(gpu.gpu)
    for line, gpus in reasons.items():
        yield f"GPU {', '.join(gpus)}: {line}, and MFU stays low however good the job"


def _reasons(readings: Readings, gpu: str) -> Iterator[str]:
    limit, default = (
        _value(readings, gpu, name) for name in ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF")
    )
    if limit is not None and default is not None and limit < default - _SAME_WATTS:
        yield f"power is limited to {limit:g} W of {default:g} W (nvidia-smi -pl {default:.0f} restores it)"
    bits = _value(readings, gpu, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
    if bits is not None and int(bits) & _CLOCKS_SET:
        clock, most = (_value(readings, gpu, f"DCGM_FI_DEV_{name}") for name in ("SM_CLOCK", "MAX_SM_CLOCK"))
        at = f" at {clock:g} of {most:g} MHz" if clock is not None and most is not None else ""
        yield f"clocks are held{at} by a setting (nvidia-smi -rgc and -rac reset it)"


def _peak_of(model: str) -> str:
    peak = PEAKS[model]
    return f"{model}, {peak.bf16 or peak.fp16:g} TFLOP/s in {'BF16' if peak.bf16 else 'FP16'}"


def _value(readings: Readings, gpu: str, family: str) -> float | None:
    return next((value for _, value in readings.of(family, gpu=gpu)), None)
