"""Experiment g: what the exporter costs, idle and busy, and whether looking at an idle GPU keeps it awake."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import time
from collections.abc import Callable
from typing import Any

import pynvml

from pyrometer_exporters.commands.gpu_check.check import Check, Experiment, Report
from pyrometer_exporters.commands.gpu_check.exporter import Exporter, exporter
from pyrometer_exporters.commands.gpu_check.load import PRODUCTS
from pyrometer_exporters.commands.gpu_check.place import Place

CHECKS = (
    Check("scrape_1s", "a scrape's CPU and wall, idle GPU, every second", "CPU p50 at most 10 ms"),
    Check("scrape_15s", "the same every 15 s", "CPU p50 at most 10 ms"),
    Check("scrape_busy", "the same every second, busy GPU", "CPU p50 at most 10 ms"),
    Check("sampler", "the exporter at rest: its sampler, idle / busy GPU", "at most 0.5 % of a core"),
    Check("event_wait", "waiting for events that are not there, for 0 ms", "below 1 ms"),
    Check("awake", "the idle GPU without / with the exporter, 60 s: power, P-state, SM clock", "within 1 W, the same"),
    Check("training", "steps of products with the exporter on and off, in pairs", "at most 0.1 % slower"),
    Check("memory", "the exporter's memory", "at most 40 MB"),
)  # fmt: skip
_SCRAPE_MILLISECONDS, _SAMPLER_PERCENT, _WATTS, _STEP_PERCENT, _RSS_MEGABYTES = 10.0, 0.5, 1.0, 0.1, 40.0
_PAIR_SECONDS, _PAIRS = 0.75, 12


def run(place: Place, report: Report) -> None:
    """Measure the idle GPU without and with the exporter, then the busy one."""
    time.sleep(place.seconds(5))  # clocks fall some seconds after the last work
    # Less where the experiments before have taken long: the time with the exporter takes 62 s, the busy GPU 50.
    alone = min(place.seconds(60), max(place.seconds(10), place.left() - place.seconds(62 + 50)))
    without = _idle(place, lambda: time.sleep(alone))
    with exporter(place) as ours:
        costs: dict[str, Any] = {}
        with_us = _idle(place, lambda: _scraped_idle(place, ours, costs))
        _awake(report, without, with_us)
        _scrape_checks(report, costs)
        _event_wait(place, report)
        rest_busy = _busy(place, report, ours)
        rest = costs["rest"]
        measured = f"{rest:.2f} / " + ("not measured" if rest_busy is None else f"{rest_busy:.2f}") + " % of a core"
        if place.stand_in:  # a simulated driver's answer costs more than the sampler's whole round on a real one
            report.skipped(
                "sampler", f"{measured}, most of it the simulated driver's, Python in the exporter's process"
            )
        else:
            report.passed("sampler", measured, ok=max(rest, rest_busy or 0.0) <= _SAMPLER_PERCENT)
        memory = ours.rss_megabytes()
        report.passed("memory", f"{memory:.1f} MB", ok=memory <= _RSS_MEGABYTES)


def _idle(place: Place, meanwhile: Callable[[], object]) -> dict[str, Any]:
    """Return power, P-state and SM clock over a time; NVML is closed meanwhile, as opening it may be what wakes."""
    with place.nvml() as handle:
        energy, begin = _asked("nvmlDeviceGetTotalEnergyConsumption", handle), time.monotonic()
    meanwhile()
    with place.nvml() as handle:
        took = time.monotonic() - begin
        after = _asked("nvmlDeviceGetTotalEnergyConsumption", handle)
        return {
            "watts": (after - energy) / 1e3 / took if energy is not None and after is not None else None,
            "p_state": _asked("nvmlDeviceGetPerformanceState", handle),
            "sm_clock_mhz": _asked("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM),
            "seconds": took,
        }


def _asked(function: str, *arguments: Any) -> Any:  # noqa: ANN401  whatever NVML answers
    try:
        return getattr(pynvml, function)(*arguments)
    except (pynvml.NVMLError, AttributeError):  # a binding or a driver that is too old
        return None


def _awake(report: Report, without: dict[str, Any], with_us: dict[str, Any]) -> None:
    report.raw("idle GPU", {"without": without, "with": with_us})
    if without["watts"] is None or with_us["watts"] is None:
        report.skipped("awake", "this GPU counts no energy")
        return
    measured = " / ".join(
        f"{gpu['watts']:.1f} W, P{gpu['p_state'] if gpu['p_state'] is not None else '?'}, {gpu['sm_clock_mhz']} MHz"
        for gpu in (without, with_us)
    )
    same = all(without[name] == with_us[name] for name in ("p_state", "sm_clock_mhz"))
    report.passed("awake", measured, ok=same and with_us["watts"] - without["watts"] <= _WATTS)


def _scraped_idle(place: Place, ours: Exporter, costs: dict[str, Any]) -> None:
    """Scrape every second and every 15 s, each for some 25 s, after some 10 s of rest."""
    costs["rest"] = _rest(ours, place.seconds(10))
    costs["scrape_1s"] = _scrapes(ours, place.seconds(1), 20, costs["rest"])
    costs["scrape_15s"] = _scrapes(ours, place.seconds(15), 2, costs["rest"])


def _rest(ours: Exporter, seconds: float) -> float:
    """Return the exporter's share of a core in percent while nobody scrapes."""
    cpu, begin = ours.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return 100 * (ours.cpu_seconds() - cpu) / (time.monotonic() - begin)


def _scrapes(ours: Exporter, interval: float, count: int, rest: float) -> list[tuple[float, float]]:
    """Return (CPU, wall) in ms of each scrape, the sampler's share subtracted."""
    costs = []
    for _ in range(count):
        time.sleep(interval)
        cpu, begin = ours.cpu_seconds(), time.monotonic()
        page = ours.scrape()
        took = time.monotonic() - begin
        costs.append((1e3 * (ours.cpu_seconds() - cpu) - 10 * rest * took, 1e3 * page.seconds))
    return costs


def _scrape_checks(report: Report, costs: dict[str, Any]) -> None:
    for check in ("scrape_1s", "scrape_15s"):
        _scrape_check(report, check, costs[check])


def _scrape_check(report: Report, check: str, costs: list[tuple[float, float]]) -> None:
    report.raw(check, costs)
    cpu, wall = ([cost[place] for cost in costs] for place in (0, 1))
    p50 = statistics.median(cpu)
    measured = (
        f"CPU p50 {p50:.1f}, max {max(cpu):.1f} ms; wall p50 {statistics.median(wall):.1f}, max {max(wall):.1f} ms"
    )
    report.passed(check, measured, ok=p50 <= _SCRAPE_MILLISECONDS)


def _event_wait(place: Place, report: Report) -> None:
    with place.nvml() as handle:
        try:
            events = pynvml.nvmlEventSetCreate()
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
            took = [_waited(events, 0) for _ in range(100)]
            longer = [_waited(events, 1) for _ in range(20)]
            pynvml.nvmlEventSetFree(events)
        except pynvml.NVMLError as error:
            report.skipped("event_wait", f"no events here: {error}")
            return
    report.raw("event wait, ms", {"0": took, "1": longer})
    measured = f"p50 {statistics.median(took):.3f}, max {max(took):.3f} ms; for 1 ms {statistics.median(longer):.3f} ms"
    report.passed("event_wait", measured, ok=statistics.median(took) < 1)


def _waited(events: object, milliseconds: int) -> float:
    begin = time.monotonic()
    with contextlib.suppress(pynvml.NVMLError):  # a time-out is an error
        pynvml.nvmlEventSetWait_v2(events, milliseconds)
    return 1e3 * (time.monotonic() - begin)


def _busy(place: Place, report: Report, ours: Exporter) -> float | None:
    """Measure scrapes and rest under load, and the load's steps with the exporter running and stopped."""
    if not place.loads:
        for check in ("scrape_busy", "training"):
            report.skipped(check, "no PyTorch with CUDA: no load")
        return None
    spent = place.seconds(2 * _PAIRS * _PAIR_SECONDS + 14)
    phases = [{"name": "busy", "kind": PRODUCTS, "seconds": spent}]
    with place.child("load", phases=phases) as load:
        load.line()
        load.go()
        load.line()
        time.sleep(place.seconds(2))
        rest = _rest(ours, place.seconds(4))
        _scrape_check(report, "scrape_busy", _scrapes(ours, place.seconds(1), 5, rest))
        windows = _windows(place, ours)
        periods = load.line()["truth"]["periods"]
    _training(report, windows, periods)
    return rest


def _windows(place: Place, ours: Exporter) -> list[tuple[float, float, bool]]:
    """Return (begin, end, whether the exporter ran), in turns; it is stopped by a signal, and scraped when it runs."""
    windows = []
    for number in range(2 * _PAIRS):
        running = number % 4 in (0, 3)  # on off off on: what drifts falls on both alike
        os.kill(ours.pid, signal.SIGCONT if running else signal.SIGSTOP)
        begin = time.monotonic()
        if running:
            ours.scrape()
        time.sleep(max(0.0, begin + place.seconds(_PAIR_SECONDS) - time.monotonic()))
        windows.append((begin, time.monotonic(), running))
    os.kill(ours.pid, signal.SIGCONT)
    return windows


def _training(report: Report, windows: list[tuple[float, float, bool]], periods: list[tuple[float, float]]) -> None:
    means = []
    for begin, end, running in windows:
        steps = [seconds for at, seconds in periods if begin <= at and at + seconds <= end]
        means.append((running, statistics.fmean(steps) if steps else None))
    report.raw("mean step, s, and whether the exporter ran", means)
    shares = []
    for (running, first), (_, second) in zip(means[::2], means[1::2], strict=True):
        if first and second:
            on, off = (first, second) if running else (second, first)
            shares.append(100 * (on / off - 1))
    if not shares:
        report.skipped("training", "no steps fell into the windows")
        return
    judge_pairs(report, "training", shares, _STEP_PERCENT)


def judge_pairs(report: Report, check: str, shares: list[float], most: float) -> None:
    """Record by how many percent one of each pair was longer; undecided where the interval has the limit in it."""
    low, high = interval(shares)
    measured = f"{statistics.median(shares):+.3f} % (95 %: {low:+.3f} to {high:+.3f}), {len(shares)} pairs"
    if low <= most < high:
        report.skipped(check, f"undecided, the machine was too noisy: {measured}")
    else:
        report.passed(check, measured, ok=high <= most)


def interval(values: list[float]) -> tuple[float, float]:
    """Return the interval of 95 % of the medians of samples drawn with replacement."""
    chance = random.Random(0)  # noqa: S311  no secret
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(1000))
    return medians[25], medians[974]


EXPERIMENT = Experiment("g", "Cost", 200, CHECKS, run)
