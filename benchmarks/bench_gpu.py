"""What the GPU collector costs: the sampler's share of a core, and a collection of eight GPUs.

    .venv/bin/python benchmarks/bench_gpu.py [seconds]

The driver's own time isn't in it: the sampler is measured over a C function of libc that returns at once (so pynvml
and ctypes are part of the cost), over a Python function (our part alone) and over the simulated driver, which is
Python too and much slower than a driver's library.
"""

# ruff: noqa: ARG002  a stand-in has the parameters of what it stands for

from __future__ import annotations

import argparse
import ctypes
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pynvml

from pyrometer_exporters.framework.clock import SystemClock
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.framework.service import settle_memory
from pyrometer_exporters.node.gpu.collector import add_flags, build
from pyrometer_exporters.node.gpu.nvml import Code, FieldKey, Handle, Memory, Nvml, NvmlError, Pynvml
from pyrometer_exporters.node.gpu.sampler import Sampler, Watched
from pyrometer_simulator.nvml import SimulatedGpus, installed

GPUS = 8
BUDGET_PERCENT = 0.5
SCRAPE_SECONDS, SCRAPE_PERCENT = 15, 0.1


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

    def fields(self, handle: Handle, keys: Iterable[FieldKey]) -> dict[FieldKey, float]:
        return dict.fromkeys(keys, 1)

    def ask(self, function: str, *arguments: object) -> object:
        """GPM in full (all metrics are 0), numbers and texts; nothing that only few boards have."""
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


def sampler_percent(reads: list[Callable[[], int]], seconds: float) -> float:
    """CPU of this process, in percent of a core, while a sampler watches so many GPUs."""
    sampler = Sampler(20)
    for read in reads:
        watched = Watched()
        watched.read = read
        sampler.watch(watched)
    time.sleep(0.2)
    before, started = time.process_time(), time.monotonic()
    time.sleep(seconds)
    percent = 100 * (time.process_time() - before) / (time.monotonic() - started)
    sampler.close()
    time.sleep(0.2)
    return percent


class _InstantLibrary:
    """NVML's bitmask call as a real foreign function that returns 0 at once: pthread_equal of two unequal things."""

    def __init__(self) -> None:
        self.nvmlDeviceGetCurrentClocksEventReasons = ctypes.CDLL(None).pthread_equal


def over_c_function(seconds: float) -> float:
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
    pynvml.nvmlLib = _InstantLibrary()
    try:
        nvml = Pynvml()
        handles = [Handle(pynvml.c_nvmlDevice_t()) for _ in range(GPUS)]
        return sampler_percent([lambda h=h: nvml.clock_event_reasons(h) for h in handles], seconds)
    finally:
        pynvml.nvmlLib = None
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001


def over_simulated_driver(folder: Path, seconds: float) -> float:
    gpus = SimulatedGpus(folder / "gpus", count=GPUS)
    with installed(gpus.path):
        nvml = Pynvml()
        nvml.init()
        handles = [nvml.open_index(index) for index in range(GPUS)]
        return sampler_percent([lambda h=h: nvml.clock_event_reasons(h) for h in handles], seconds)


@dataclass(frozen=True)
class Collections:
    """Times in ms: median and 99th percentile of a collection, its CPU time, the median of rendering it."""

    median: float
    worst: float
    cpu: float
    render: float
    samples: int


class ScrapeClock(SystemClock):
    """Is a scrape's interval further each time that it is told so: what is read at most so often is read as in life."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def collections(folder: Path, nvml: Nvml, rounds: int) -> Collections:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    flags = parser.parse_args(["--collector.gpu.sampler-frequency=5"])
    clock = ScrapeClock()
    collector = build(Context(flags, clock, folder, folder, folder, None), nvml)
    renderer = Renderer()
    collected, rendered, used, samples = [], [], [], []
    for number in range(rounds):
        if number == 1:
            settle_memory()  # as the exporter does after its first collection
        clock.ahead += SCRAPE_SECONDS
        start, cpu = time.perf_counter(), time.process_time()
        found = list(collector.collect(time.monotonic() + 5))
        middle = time.perf_counter()
        used.append(1000 * (time.process_time() - cpu))
        samples = [item for item in found if isinstance(item, Sample)]
        renderer.text(samples)
        collected.append(1000 * (middle - start))
        rendered.append(1000 * (time.perf_counter() - middle))
    collector.close()
    worst = sorted(collected[1:])[math.ceil(0.99 * (rounds - 1)) - 1]
    medians = [statistics.median(times[1:]) for times in (collected, used, rendered)]
    return Collections(medians[0], worst, medians[1], medians[2], len(samples))


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bus/pci/devices").mkdir(parents=True)
        ours = sampler_percent([lambda: 4] * GPUS, seconds)
        binding = over_c_function(seconds)
        simulated = over_simulated_driver(folder, seconds)
        print(f"sampler, 20 Hz over {GPUS} GPUs, {seconds:g} s each:")
        print(f"  our part alone            {ours:6.3f} % of a core ({ours / BUDGET_PERCENT:.0%} of the budget)")
        print(f"  and pynvml and ctypes     {binding:6.3f} % of a core ({binding / BUDGET_PERCENT:.0%} of the budget)")
        print(f"  over the simulated driver {simulated:6.3f} % of a core (x{simulated / binding:.1f})")
        free = collections(folder, FreeNvml(), 1000)
        gpus = SimulatedGpus(folder / "gpus", count=GPUS, driver="595.45.04")
        with installed(gpus.path):
            faked = collections(folder, Pynvml(), 1000)
    for title, cost in (("a free driver", free), ("the simulated driver", faked)):
        print(f"collect of {GPUS} GPUs, {cost.samples} samples, over {title}:")
        print(f"  p50 {cost.median:.2f} ms, p99 {cost.worst:.2f} ms, of which CPU {cost.cpu:.2f} ms")
        print(f"  rendering {cost.render:.2f} ms")
    milliseconds = free.cpu + free.render
    percent = milliseconds / 1000 / SCRAPE_SECONDS * 100
    print(f"a scrape without device time: {milliseconds:.2f} ms of CPU (budget 10 ms, with NICs), so {percent:.3f} %")
    print(f"  of a core at one each {SCRAPE_SECONDS} s (budget {SCRAPE_PERCENT} %, with NICs)")


if __name__ == "__main__":
    main()
