"""Experiment e: a run's MFU never exceeds what its tensor cores did, and a wrong peak or dtype is noticed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyrometer
from pyrometer_exporters.commands.gpu_check.activity import capability
from pyrometer_exporters.commands.gpu_check.check import Check, Experiment, Report
from pyrometer_exporters.commands.gpu_check.exporter import Exporter, exporter
from pyrometer_exporters.commands.gpu_check.gpt import CPU_PEAK, Training
from pyrometer_exporters.commands.gpu_check.place import Place, scratch
from pyrometer_exporters.node.train.peaks import peak_flops

_TENSOR = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
_CLOCK, _MOST_CLOCK = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MAX_SM_CLOCK"
_FLOPS, _UNKNOWN = "pyrometer_train_flops_total", "pyrometer_train_peak_flops_unknown"
_ROUNDS, _ROUND_SECONDS = 6, 1.5
_SLACK = 1.02  # a scrape reads the ring and the GPU some milliseconds apart
_STAND_IN_SHARE = 1.3  # of the tensor cores' work that counts as a model's: a simulated GPU does what it is told
_NOTICED = 1.15  # as the alert TrainMfuImplausible has it
CHECKS = (
    Check("bound", "MFU against tensor activity x FLOPs of all SMs at their clock, in a training run", "never above"),
    Check("wrong_peak", "the same run with half the peak", "above: TrainMfuImplausible fires"),
    Check("unknown", "a run on a GPU whose peak isn't known", "named by pyrometer_train_peak_flops_unknown"),
)


def run(place: Place, report: Report) -> None:
    """Train in this process while the exporter, which follows its ring, is scraped."""
    if place.torch() is None:
        report.skipped_rest("no PyTorch that can be used here")
        return
    with scratch() as rings:
        try:
            rows, unknown = _trained(place, rings)
        finally:
            place.show_rest()
    report.raw("MFU and tensor activity", rows)
    report.passed("unknown", f"{unknown:.0f} series", ok=unknown == 1)
    with_tensor = [row for row in rows if row["tensor"] is not None]
    if not with_tensor:
        report.skipped_rest("the exporter has no tensor activity here: no GPM on this GPU (before Hopper, or MIG)")
        return
    _judge(report, with_tensor)


def _trained(place: Place, rings: Path) -> tuple[list[dict[str, Any]], float]:
    training = Training(place)
    name = training.torch.cuda.get_device_name() if training.device == "cuda" else ""
    peak = peak_flops(name, "bf16") or CPU_PEAK
    size = training.size
    settings: dict[str, Any] = {
        "rings": str(rings), "flops_per_token": size.flops_per_token, "tokens_per_step": size.tokens,
    }  # fmt: skip
    with exporter(place, rings=rings) as ours:
        with pyrometer.start("unknown-peak", gpu_model="a GPU of next year", **settings) as stranger:
            with stranger.step():
                training.step()
            unknown = sum(value for _, value in ours.scrape().samples(_UNKNOWN))
        with pyrometer.start("plausible", peak_flops=peak, dtype="bf16", gpu="0", **settings) as run:
            _steps(training, run, place.seconds(2 * _ROUND_SECONDS))
            rows = [_round(place, training, run, ours, peak) for _ in range(_ROUNDS)]
    return rows, unknown


def _steps(training: Training, run: pyrometer.Run, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with run.step():
            training.step()
            training.synchronize()  # so that the ring's FLOPs are done when they are counted


def _round(place: Place, training: Training, run: pyrometer.Run, ours: Exporter, peak: float) -> dict[str, Any]:
    first = ours.scrape()
    done = run.steps_finished()
    _steps(training, run, max(0.3, place.seconds(_ROUND_SECONDS)))
    if place.stand_in:
        rate = (run.steps_finished() - done) * training.flops_per_step / (time.monotonic() - first.at)
        place.show_tensor_work(_STAND_IN_SHARE * rate / peak)
    second = ours.scrape()
    flops = [page.value(_FLOPS, run="plausible") or 0.0 for page in (first, second)]
    clock, most = second.value(_CLOCK), second.value(_MOST_CLOCK)
    tensor = second.value(_TENSOR)
    return {
        "mfu": (flops[1] - flops[0]) / (second.at - first.at) / peak,
        "tensor": tensor,
        "tensor_clock": tensor * clock / most if tensor is not None and clock and most else tensor,
        "most": _most(place, tensor, clock, peak),
    }  # fmt: skip


def _most(place: Place, tensor: float | None, clock: float | None, peak: float) -> float | None:
    """Return the MFU at which every busy cycle of the tensor cores were a model's, at the clock that they had.

    A peak is quoted for a clock below the highest one, so it is not the share of the highest clock.
    """
    device = capability(place)
    if tensor is None or clock is None or device is None:
        return tensor
    flops_per_cycle, multiprocessors = device
    return tensor if place.stand_in else tensor * flops_per_cycle * multiprocessors * clock * 1e6 / peak


def _judge(report: Report, rows: list[dict[str, Any]]) -> None:
    shares = [row["mfu"] / max(row["most"], 1e-9) for row in rows]
    measured = f"MFU is {min(shares):.2f} to {max(shares):.2f} of it, in {len(rows)} rounds"
    report.passed("bound", measured, ok=max(shares) <= _SLACK)
    doubled = [2 * row["mfu"] / max(row["tensor_clock"], 1e-9) for row in rows]
    measured = f"{min(doubled):.2f} to {max(doubled):.2f} of it"
    report.passed("wrong_peak", measured, ok=min(doubled) > _NOTICED)


EXPERIMENT = Experiment("e", "Plausibility", 60, CHECKS, run)
