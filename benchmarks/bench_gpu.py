"""Measure what the sampler of clock events costs: its share of a core, 20 times a second over eight GPUs.

    .venv/bin/python benchmarks/bench_gpu.py [seconds]

Once over a driver that costs nothing, and once over a C function of libc that returns at once, through ctypes as a
driver's library is called. A scrape's cost is in bench_speed.py. Ends with status 1 where the budget isn't met.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import pynvml
from harness import within_budget

from pyrometer_exporters.node.gpu.binding import Pynvml
from pyrometer_exporters.node.gpu.driver import Driver, Link
from pyrometer_exporters.node.gpu.nvml import Handle
from pyrometer_exporters.node.gpu.sampler import SampledGpu, Sampler
from pyrometer_kit.clock import SystemClock

GPUS = 8
BUDGET_PERCENT = 0.5  # docs/design.md, Budgets


class FreeNvml:
    """A driver that costs nothing."""

    def clock_event_reader(self, _handle: Handle) -> Callable[[], int]:
        """Return a reader that answers at once."""
        return lambda: 4


class _InstantLibrary:
    """NVML's bitmask call as a foreign function that returns 0 at once: pthread_equal of two unequal values."""

    def __init__(self) -> None:
        self.nvmlDeviceGetCurrentClocksEventReasons = ctypes.CDLL(None).pthread_equal


def sampler_percent(nvml: Any, handles: Iterable[Handle], seconds: float) -> float:  # noqa: ANN401
    """Return this process's CPU, in percent of a core, while a sampler watches these GPUs as in the exporter."""
    driver = Driver(nvml, SystemClock())
    driver.link = Link(0, "", GPUS)
    sampler = Sampler(driver.using)
    for handle in handles:
        watched = SampledGpu()
        watched.read = nvml.clock_event_reader(handle)
        sampler.watch(watched)
    time.sleep(0.2)
    before, started = time.process_time(), time.monotonic()
    time.sleep(seconds)
    percent = 100 * (time.process_time() - before) / (time.monotonic() - started)
    sampler.close()
    time.sleep(0.2)
    return percent


def main() -> int:
    """Print both figures beside the budget."""
    flags = argparse.ArgumentParser(description="What the sampler of clock events costs.")
    flags.add_argument("seconds", nargs="?", type=float, default=20.0, help="for each (%(default)s)")
    seconds = flags.parse_args().seconds
    print(f"sampler, 20 Hz over {GPUS} GPUs, CPU, {seconds:g} s each:")
    free = sampler_percent(FreeNvml(), [Handle(index) for index in range(GPUS)], seconds)
    pynvml.nvmlLib = _InstantLibrary()
    foreign = sampler_percent(Pynvml(), [Handle(pynvml.c_nvmlDevice_t()) for _ in range(GPUS)], seconds)
    met = [
        within_budget("over a driver that costs nothing", free, BUDGET_PERCENT, "% of a core"),
        within_budget("over a C function, through ctypes", foreign, BUDGET_PERCENT, "% of a core"),
    ]
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
