"""Experiment b: our seconds per reason of low clocks against an independent poller and the driver's own counters."""

from __future__ import annotations

import time
from typing import Any

import pynvml

from gpu_check.check import Check, Experiment, Report
from gpu_check.exporter import Exporter, Page, exporter
from gpu_check.load import PRODUCTS
from gpu_check.place import Child, Place
from gpu_check.poller import seconds_by_bit
from pyrometer_exporters.node.gpu.clock_events import REASONS, counter_fields

_SECONDS, _METHOD = "pyrometer_gpu_clock_event_seconds_total", "pyrometer_gpu_clock_event_method_info"
_SHARE = 0.02
# A scrape's own length and the poller's 5 ms leave that much open at the two ends of the window.
_SLACK_SECONDS = 0.05
CHECKS = (
    Check("poller", "60 s of bf16 products: seconds per reason, ours against a poller at 200 Hz", "within 2 %"),
    Check("counters", "the same against the driver's own counters", "within 2 %"),
    Check("elapsed", "time that the sampler has watched", "at least 98 % of the time"),
)


def run(place: Place, report: Report) -> None:
    """Load the GPU for a minute while the exporter and the poller watch."""
    if not place.loads:
        report.skipped_rest("no PyTorch with CUDA: no load")
        return
    seconds = place.seconds(60)
    phases = [{"name": "products", "kind": PRODUCTS, "seconds": seconds + place.seconds(3)}]
    with exporter(place) as ours, place.child("load", phases=phases) as load, place.nvml() as handle:
        load.line()
        with place.child("poller") as poller:
            poller.line()
            load.go()
            load.line()
            time.sleep(place.seconds(2))
            first, before = ours.scrape(), driver_seconds(handle)
            pages = _watch(ours, first.at + seconds)
            last, after = pages[-1], driver_seconds(handle)
            changes = _changes(poller)
    _report(report, first, last, changes, (before, after))


def _watch(ours: Exporter, until: float) -> list[Page]:
    """Scrape once a second until then, and at the end."""
    pages = []
    while time.monotonic() < until:
        pages.append(ours.scrape())
        time.sleep(max(0.0, min(1.0, until - time.monotonic())))
    return [*pages, ours.scrape()]


def _changes(poller: Child) -> list[tuple[float, int]]:
    poller.end_input()
    return [(at, mask) for at, mask in poller.line()["changes"]]


def driver_seconds(handle: Any) -> dict[str, float]:  # noqa: ANN401  NVML's
    """Return the driver's seconds by reason, read field by field through pynvml's wrapper."""
    version = pynvml.nvmlSystemGetDriverVersion()
    fields = counter_fields(version.decode() if isinstance(version, bytes) else version)
    answers = pynvml.nvmlDeviceGetFieldValues(handle, list(fields.values()))
    return {
        reason: answer.value.ullVal / 1e9
        for reason, answer in zip(fields, answers, strict=True)
        if answer.nvmlReturn == pynvml.NVML_SUCCESS
    }


def _report(
    report: Report, first: Page, last: Page, changes: list[tuple[float, int]], driver: tuple[dict[str, float], ...]
) -> None:
    length = last.at - first.at
    begin, end = first.by(_SECONDS, "reason"), last.by(_SECONDS, "reason")
    ours = {reason: value - begin.get(reason, 0.0) for reason, value in end.items()}
    held = seconds_by_bit(changes, first.at, last.at)
    bits = {reason.name: reason.bit for reason in REASONS}
    theirs = {reason: held.get(bits[reason], 0.0) for reason in ours}
    counted = {reason: value - driver[0].get(reason, 0.0) for reason, value in driver[1].items() if reason in ours}
    methods = {labels["reason"]: labels["method"] for labels, _ in last.samples(_METHOD)}
    report.raw("seconds", {"ours": ours, "poller": theirs, "driver": counted, "method": methods, "window": length})
    report.raw("changes of the bitmask", changes[:5000])
    _compare(report, "poller", ours, theirs)
    if counted:
        _compare(report, "counters", ours, counted)
    else:
        report.skipped("counters", "this driver has no counters")
    name = "pyrometer_gpu_clock_event_sampled_seconds_total"
    watched = ((last.value(name) or 0.0) - (first.value(name) or 0.0)) / length
    report.passed("elapsed", f"{100 * watched:.1f} %", ok=watched >= 0.98)


def _compare(report: Report, check: str, ours: dict[str, float], theirs: dict[str, float]) -> None:
    wrong, told = [], []
    for reason, value in theirs.items():
        apart = abs(ours[reason] - value)
        if value or ours[reason]:
            told.append(f"{reason} {ours[reason]:.2f} / {value:.2f} s")
        if apart > max(_SHARE * value, _SLACK_SECONDS):
            wrong.append(reason)
    measured = ", ".join(told) or "no reason on either side"
    report.passed(check, measured, ok=not wrong, note=f"apart: {', '.join(wrong)}" if wrong else "ours / theirs")


EXPERIMENT = Experiment("b", "Clock events", 95, CHECKS, run)
