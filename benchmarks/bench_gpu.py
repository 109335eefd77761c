"""Measure what the GPU collector costs: the sampler's share of a core, and a collection of eight GPUs.

    .venv/bin/python benchmarks/bench_gpu.py [seconds]

Both are measured on a driver that costs nothing and on the
simulated one, whose own CPU time is subtracted: it is Python, and much slower than a real library. The sampler is also
measured on a C function of libc that returns at once. Ends with status 1 where a budget isn't met.
"""

# ruff: noqa: ARG002  a stand-in has the parameters of the original

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pynvml
from cpu_meter import metered_library
from harness import p99, within_budget

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import samples_in
from pyrometer_exporters.node.gpu.binding import Pynvml
from pyrometer_exporters.node.gpu.collector import add_flags, build
from pyrometer_exporters.node.gpu.driver import Driver, Link
from pyrometer_exporters.node.gpu.nvml import Code, EventData, FieldKey, Handle, Memory, Nvml, NvmlError
from pyrometer_exporters.node.gpu.sampler import SampledGpu, Sampler
from pyrometer_kit.clock import SystemClock
from pyrometer_simulator.nvml import SimulatedGpus, installed

GPUS = 8
# docs/design.md, Budgets.
BUDGET_PERCENT = 0.5
SCRAPE_SECONDS, SCRAPE_MILLISECONDS, SCRAPE_PERCENT = 15, 10, 0.1


class FreeNvml:
    """A driver that costs nothing."""

    def init(self) -> None: ...

    def shutdown(self) -> None: ...

    def driver_version(self) -> str:
        return "595.45.04"

    def library_version(self) -> str:
        return "13.595.45.04"

    def device_count(self) -> int:
        return GPUS

    def open_index(self, index: int) -> Handle:
        return Handle(index)

    def open_pci(self, pci_bus_id: str) -> Handle:
        return Handle(int(pci_bus_id.split(":")[1], 16))

    def index(self, handle: Handle) -> int:
        return int(handle)  # type: ignore[call-overload]

    def text(self, handle: Handle, what: str) -> str:
        return f"{what}-{handle}"

    def pci_bus_id(self, handle: Handle) -> str:
        return f"00000000:{handle:02X}:00.0"

    def sm_clock_mhz(self, handle: Handle) -> int:
        return 1980

    def memory_clock_mhz(self, handle: Handle) -> int:
        return 2619

    def temperature_celsius(self, handle: Handle) -> int:
        return 62

    def power_milliwatts(self, handle: Handle) -> int:
        return 650_123

    def enforced_power_limit_milliwatts(self, handle: Handle) -> int:
        return 700_000

    def utilisation_percent(self, handle: Handle) -> tuple[int, int]:
        return 99, 50

    def memory(self, handle: Handle) -> Memory:
        return Memory(80 << 30, 1 << 29, 10 << 30, 69 << 30)

    def clock_event_reasons(self, handle: Handle) -> int:
        return 4

    def clock_event_reader(self, handle: Handle) -> Callable[[], int]:
        return lambda: 4

    def fields(self, handle: Handle, keys: Iterable[FieldKey]) -> dict[FieldKey, float]:
        return dict.fromkeys(keys, 1)

    def event(self, event_set: object, milliseconds: int) -> EventData | None: ...

    def ask(self, function: str, *arguments: object) -> object:
        """Answer full GPM (all metrics are 0), numbers and texts, without the features that few boards have."""
        if function.startswith("nvmlGpm"):
            return self._gpm(function, arguments)
        if function in ("nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization"):
            return [0, 1_000_000]
        if function.endswith(("Info", "Threshold", "Limit", "State", "Temperature", "Width", "Generation", "Brand")):
            return 16
        raise NvmlError(Code.NOT_SUPPORTED, function)

    def _gpm(self, function: str, arguments: tuple[object, ...]) -> object:
        if function == "nvmlGpmQueryDeviceSupport":
            return SimpleNamespace(isSupportedDevice=1)
        return arguments[-1] if arguments else pynvml.c_nvmlGpmSample_t()


def sampler_percent(nvml: Nvml, handles: Iterable[Handle], seconds: float) -> float:
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


def over_nothing(seconds: float) -> float:
    return sampler_percent(FreeNvml(), [Handle(index) for index in range(GPUS)], seconds)


class _InstantLibrary:
    """NVML's bitmask call as a foreign function that returns 0 at once: pthread_equal of two unequal values."""

    def __init__(self) -> None:
        self.nvmlDeviceGetCurrentClocksEventReasons = ctypes.CDLL(None).pthread_equal


def over_c_function(seconds: float) -> float:
    pynvml.nvmlLib = _InstantLibrary()
    try:
        return sampler_percent(Pynvml(), [Handle(pynvml.c_nvmlDevice_t()) for _ in range(GPUS)], seconds)
    finally:
        pynvml.nvmlLib = None


def over_simulated_driver(gpus: Path, seconds: float) -> float:
    with installed(gpus):
        nvml = Pynvml()
        nvml.init()
        return sampler_percent(nvml, [nvml.open_index(index) for index in range(GPUS)], seconds)


def without_its_time(gpus: Path, seconds: float) -> float:
    """Return the same without the time spent in the driver's functions and by the meter."""
    with installed(gpus), metered_library() as library:
        nvml = Pynvml()
        nvml.init()
        handles = [nvml.open_index(index) for index in range(GPUS)]
        before = library.seconds
        percent = sampler_percent(nvml, handles, seconds)
        return percent - 100 * (library.seconds - before) / (seconds + 0.4)


@dataclass(frozen=True)
class Collections:
    """CPU times in ms of collecting and rendering: median and 99th percentile, and the median in the library."""

    median: float
    worst: float
    device: float
    samples: int


class ScrapeClock(SystemClock):
    """A clock that advances by a scrape interval on demand, so that everything is read as often as in production."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def collections(folder: Path, nvml: Nvml, clock: ScrapeClock, device: Callable[[], float], rounds: int) -> Collections:
    """Return the cost of scrapes; ``device`` gives the seconds spent in the library so far, which are subtracted."""
    parser = argparse.ArgumentParser()
    add_flags(parser)
    flags = parser.parse_args(["--collector.gpu.sampler-frequency=5"])
    collector = build(Context(flags, clock, folder, folder, folder, None), nvml)
    renderer = Renderer()
    used, inside, samples = [], [], []
    for _ in range(rounds):
        clock.ahead += SCRAPE_SECONDS
        start, before = time.process_time(), device()
        found = list(collector.collect(time.monotonic() + 5))
        samples = samples_in(found)
        renderer.text(samples)
        inside.append(1000 * (device() - before))
        used.append(1000 * (time.process_time() - start) - inside[-1])
    collector.close()
    return Collections(statistics.median(used[1:]), p99(used[1:]), statistics.median(inside[1:]), len(samples))


def samplers(gpus: Path, seconds: float) -> bool:
    print(f"sampler, 20 Hz over {GPUS} GPUs, CPU, {seconds:g} s each:")
    whole, ours = over_simulated_driver(gpus, seconds), without_its_time(gpus, seconds)
    return all(
        [
            within_budget("over a driver that costs nothing", over_nothing(seconds), BUDGET_PERCENT, "% of a core"),
            within_budget("over a C function, through ctypes", over_c_function(seconds), BUDGET_PERCENT, "% of a core"),
            within_budget("over the simulated driver, without its time", ours, BUDGET_PERCENT, "% of a core"),
            within_budget("over the simulated driver, with its time", whole, BUDGET_PERCENT, "% of a core"),
        ]
    )


def scrapes(folder: Path, gpus: Path) -> bool:
    free = collections(folder, FreeNvml(), ScrapeClock(), lambda: 0.0, 1000)
    clock = ScrapeClock()
    with installed(gpus, clock.monotonic), metered_library() as library:
        simulated = collections(folder, Pynvml(), clock, lambda: library.seconds, 1000)
    met = []
    for title, cost in (("a driver that costs nothing", free), ("the simulated driver, without its time", simulated)):
        print(f"collecting and rendering {GPUS} GPUs, {cost.samples} samples, over {title}; CPU; the NICs come on top:")
        if cost.device:
            print(f"  (the simulated driver itself takes {cost.device:.2f} ms)")
        met += [
            within_budget("p50", cost.median, SCRAPE_MILLISECONDS, "ms"),
            within_budget("p99", cost.worst, SCRAPE_MILLISECONDS, "ms"),
            within_budget("every 15 s", cost.median / 10 / SCRAPE_SECONDS, SCRAPE_PERCENT, "% of a core"),
        ]
    return all(met)


def main() -> int:
    flags = argparse.ArgumentParser(description="What the GPU collector costs.")
    flags.add_argument("seconds", nargs="?", type=float, default=20.0, help="for each sampler (%(default)s)")
    seconds = flags.parse_args().seconds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bus/pci/devices").mkdir(parents=True)
        gpus = SimulatedGpus(folder / "gpus", count=GPUS, driver="595.45.04")
        met = [samplers(gpus.path, seconds), scrapes(folder, gpus.path)]
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
