"""Experiment b: our seconds per reason of low clocks against an independent poller and the driver's own counters."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pynvml

from pyrometer_exporters.commands.gpu_check.check import Check, Experiment, Report
from pyrometer_exporters.commands.gpu_check.exporter import Exporter, Page, exporter
from pyrometer_exporters.commands.gpu_check.load import PRODUCTS
from pyrometer_exporters.commands.gpu_check.place import Child, Place
from pyrometer_exporters.commands.gpu_check.poller import changes_by_bit, seconds_by_bit
from pyrometer_exporters.node.gpu.clock_events import REASONS, counter_fields
from pyrometer_exporters.node.gpu.sampler import DEFAULT_FREQUENCY

_SECONDS, _METHOD = "pyrometer_gpu_clock_event_seconds_total", "pyrometer_gpu_clock_event_method_info"
_SHARE = 0.02
# A scrape's own length and the poller's 5 ms leave that much open at the two ends of the window.
_SLACK_SECONDS = 0.05
CHECKS = (
    Check("poller", "60 s of bf16 products: seconds per reason, ours against a poller at 200 Hz",
          "within 2 %, or three standard deviations of a sampled reason that comes and goes"),
    Check("counters", "the same against the driver's own counters", "within 2 %"),
    Check("elapsed", "time that the sampler has watched", "at least 98 % of the time"),
)  # fmt: skip


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
            begin = _bracketed(ours, handle)
            _watch(ours, begin.page.at + seconds)
            end = _bracketed(ours, handle)
            changes = _changes(poller)
    _report(report, begin, end, changes)


class Bracketed(NamedTuple):
    """A scrape, and the driver's seconds by reason just before and just after it."""

    page: Page
    before: dict[str, float]
    after: dict[str, float]


def _bracketed(ours: Exporter, handle: Any) -> Bracketed:  # noqa: ANN401  NVML's
    before = driver_seconds(handle)
    return Bracketed(page=ours.scrape(), before=before, after=driver_seconds(handle))


def _watch(ours: Exporter, until: float) -> None:
    """Scrape once a second until then, as a Prometheus would."""
    while time.monotonic() < until:
        ours.scrape()
        time.sleep(max(0.0, min(1.0, until - time.monotonic())))


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


def _report(report: Report, begin: Bracketed, end: Bracketed, changes: list[tuple[float, int]]) -> None:
    first, last = begin.page, end.page
    length = last.at - first.at
    ours = _grown(first.by(_SECONDS, "reason"), last.by(_SECONDS, "reason"))
    held = seconds_by_bit(changes, first.at, last.at)
    bits = {reason.name: reason.bit for reason in REASONS}
    theirs = {reason: held.get(bits[reason], 0.0) for reason in ours}
    # On a busy machine the driver counts on between its answer and the scrape.
    least, most = _grown(begin.after, end.before), _grown(begin.before, end.after)
    counted = {reason: (least[reason], value) for reason, value in most.items() if reason in ours}
    methods = {labels["reason"]: labels["method"] for labels, _ in last.samples(_METHOD)}
    report.raw("seconds", {"ours": ours, "poller": theirs, "driver": counted, "method": methods, "window": length})
    report.raw("changes of the bitmask", changes[:5000])
    counts = changes_by_bit(changes)
    scatter = {
        reason: sampling_scatter(counts.get(bit, 0)) for reason, bit in bits.items() if methods.get(reason) == "sampled"
    }
    _compare(report, "poller", ours, {reason: (value, value) for reason, value in theirs.items()}, scatter)
    if counted:
        _compare(report, "counters", ours, counted)
    else:
        report.skipped("counters", "this driver has no counters")
    name = "pyrometer_gpu_clock_event_sampled_seconds_total"
    watched = ((last.value(name) or 0.0) - (first.value(name) or 0.0)) / length
    report.passed("elapsed", f"{100 * watched:.1f} %", ok=watched >= 0.98)


def _grown(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {reason: value - before.get(reason, 0.0) for reason, value in after.items()}


def sampling_scatter(changes: int) -> float:
    """Return the standard deviation, in seconds, of a sampled reason's sum after so many changes.

    The sampler reads each stretch of time once, at a random moment in it, and the whole stretch counts as what that
    read shows. A change at the share u of a stretch of L seconds is so off by L * sqrt(u * (1 - u)), which is
    L / sqrt(6) over all u.
    """
    return math.sqrt(changes / 6) / DEFAULT_FREQUENCY


def _compare(
    report: Report,
    check: str,
    ours: dict[str, float],
    theirs: dict[str, tuple[float, float]],
    scatter: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Compare our seconds with the least and the most that they can be by another count."""
    wrong, pairs = [], []
    for reason, (least, most) in theirs.items():
        apart = max(least - ours[reason], ours[reason] - most)
        if most or ours[reason]:
            pairs.append(f"{reason} {ours[reason]:.2f} / {(least + most) / 2:.2f} s")
        if apart > max(_SHARE * most, _SLACK_SECONDS, 3 * scatter.get(reason, 0.0)):
            wrong.append(reason)
    measured = ", ".join(pairs) or "no reason on either side"
    report.passed(check, measured, ok=not wrong, note=f"apart: {', '.join(wrong)}" if wrong else "ours / theirs")


EXPERIMENT = Experiment("b", "Clock events", 95, CHECKS, run)
