"""Compare open descriptors with reopening files, in a collection of 8 HCAs and 2 Ethernet interfaces, in one run.

The files are ordinary ones: what is measured is our own work and the system calls, not a NIC's firmware.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.node.nic.collector import NicCollector
from pyrometer_exporters.node.nic.sysfs import SystemFiles
from pyrometer_kit.clock import SystemClock
from pyrometer_simulator.sysfs import SysfsTree

ROUNDS = 300
SCRAPE_SECONDS = 15.0


class OpenedAnew(SystemFiles):
    """Open, read and close on every read; a descriptor is only a number for the path."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def open(self, path: str) -> int:
        self.paths.append(path)
        return len(self.paths) - 1

    def pread(self, descriptor: int, size: int, offset: int, /) -> bytes:
        real = super().open(self.paths[descriptor])
        try:
            return super().pread(real, size, offset)
        finally:
            super().close(real)

    def close(self, descriptor: int) -> None:
        pass


def measure(call: Callable[[], object]) -> tuple[float, float, float]:
    """Return median and p99 wall time and mean CPU time of a call, in milliseconds."""
    walls, cpu = [], time.process_time()
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        walls.append(1e3 * (time.perf_counter() - start))
    used = 1e3 * (time.process_time() - cpu) / ROUNDS
    return statistics.median(walls), sorted(walls)[int(0.99 * ROUNDS)], used


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = SysfsTree(Path(folder) / "node", hcas=8, gpus=8, ethernet=2)
        context = Context(argparse.Namespace(), SystemClock(), tree.sysfs, tree.procfs, Path(folder), Path(folder))
        anew_files = OpenedAnew()
        keeping, opening = NicCollector(context, every_time=True), NicCollector(context, anew_files, every_time=True)

        def collect(collector: NicCollector) -> list[Sample]:
            return [item for item in collector.collect(time.monotonic() + 5) if not isinstance(item, Down)]

        samples = collect(keeping)
        collect(opening)
        files = len(anew_files.paths)
        kept, opened = measure(lambda: collect(keeping)), measure(lambda: collect(opening))
        renderer = Renderer()
        renderer.text(samples)
        rendered = measure(lambda: renderer.text(samples))
        traffic = measure(lambda: [nic.traffic(1_000_000) for nic in tree.nics])
        keeping.close()
        opening.close()
    print(f"{len(samples)} samples from {files} files of 10 devices, {ROUNDS} rounds; ms")
    print(f"  kept open     p50 {kept[0]:6.2f}  p99 {kept[1]:6.2f}  CPU {kept[2]:6.2f}")
    print(f"  opened anew   p50 {opened[0]:6.2f}  p99 {opened[1]:6.2f}  CPU {opened[2]:6.2f}")
    print(f"  ratio         p50 {opened[0] / kept[0]:6.2f}                CPU {opened[2] / kept[2]:6.2f}")
    print(f"  rendering     p50 {rendered[0]:6.2f}  p99 {rendered[1]:6.2f}  CPU {rendered[2]:6.2f}")
    print(f"  share of a core at a {SCRAPE_SECONDS:.0f} s scrape interval: {kept[2] / SCRAPE_SECONDS / 10:.3f} %")
    print(f"  simulator: traffic of 8 HCAs, one tick  CPU {traffic[2]:6.2f}")


if __name__ == "__main__":
    main()
