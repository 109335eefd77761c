"""Hang one of eight GPUs for a minute under a real exporter, and measure the effect on the other seven.

    .venv/bin/python benchmarks/bench_gpu_hang.py [seconds]

A scrape once a second; prints how many scrapes had the other seven, how long scrapes took before and during the hang,
how many of the exporter's threads were stuck in a call on the hung GPU (counted by the simulated driver, 50 times a
second), how many threads it had at all, and how soon the GPU was back. Ends with status 1 where a scrape lacked one of
the seven, or more than one thread was stuck.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from harness import exit_on_signals, node_exporter, p99

from pyrometer_simulator.nvml import SimulatedGpus
from pyrometer_simulator.nvml.gpus import SimulatedGpu

GPUS = 8
HUNG = 3


def exporter(folder: Path) -> AbstractContextManager[tuple[int, int]]:
    """Run a node exporter on the simulated GPUs of a folder; yield its process id and port."""
    others = [f"--no-collector.{name}" for name in ("nic", "train", "kernel")]
    paths = [f"--path.{name}={folder}/{name}" for name in ("sysfs", "procfs", "rings", "state", "kmsg")]
    return node_exporter([*paths, *others], ("-m", "pyrometer_simulator.node", "--gpus", f"{folder}/gpus", "--"))


def scrape(port: int) -> tuple[float, dict[str, float]]:
    """Return the seconds of a scrape, and pyrometer_gpu_up by GPU."""
    start = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    took = time.monotonic() - start
    lines = [line for line in text.splitlines() if line.startswith("pyrometer_gpu_up{")]
    return took, {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines}


def threads(pid: int) -> int:
    found = re.search(r"^Threads:\s+(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found.group(1))


@dataclass
class ScrapeSeries:
    """The result of scraping for some time."""

    took: list[float] = field(default_factory=list)
    ups: list[dict[str, float]] = field(default_factory=list)
    threads: int = 0
    stuck: int = 0


def watch(pid: int, port: int, hung: SimulatedGpu, seconds: float) -> ScrapeSeries:
    found = ScrapeSeries()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        elapsed, up = scrape(port)
        found.took.append(elapsed)
        found.ups.append(up)
        found.threads = max(found.threads, threads(pid))
        next_scrape = time.monotonic() + 1 - elapsed
        while time.monotonic() < next_scrape:
            found.stuck = max(found.stuck, hung.stuck)
            time.sleep(0.02)
    return found


def told(title: str, took: list[float]) -> None:
    milliseconds = (1000 * value for value in (statistics.median(took), p99(took), took[0], max(took)))
    print(f"  {title:7} p50 {next(milliseconds):6.1f} ms, p99 {next(milliseconds):6.1f} ms, "
          f"first {next(milliseconds):6.1f} ms, worst {next(milliseconds):6.1f} ms, {len(took)} scrapes")  # fmt: skip


def main() -> int:
    flags = argparse.ArgumentParser(description="One of eight GPUs hangs: what it costs the other seven.")
    flags.add_argument("seconds", nargs="?", type=float, default=60.0, help="of the hang (%(default)s)")
    seconds = flags.parse_args().seconds
    exit_on_signals()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gpus = SimulatedGpus(folder / "gpus", count=GPUS)
        gpus.write_pci_tree(folder / "sysfs")
        with exporter(folder) as (pid, port):
            scrape(port)
            before = watch(pid, port, gpus[HUNG], 10)
            gpus[HUNG].hang()
            during = watch(pid, port, gpus[HUNG], seconds)
            gpus[HUNG].recover()
            start = time.monotonic()
            while len([gpu for gpu, value in scrape(port)[1].items() if value]) < GPUS:
                time.sleep(0.1)
            back = time.monotonic() - start
    seven = sum(all(up[str(gpu)] for gpu in range(GPUS) if gpu != HUNG) for up in during.ups)
    print(f"GPU {HUNG} of {GPUS} hangs for {seconds:g} s, one scrape a second, over the simulated driver:")
    print(f"  the other seven were served in {seven} of {len(during.ups)} scrapes")
    told("before", before.took)
    told("during", during.took)
    print(f"  threads stuck in a call on the hung GPU: {during.stuck} at most")
    print(f"  threads in all: {before.threads} before, {during.threads} at most during")
    print(f"  the GPU was back {back:.1f} s after it recovered")
    return int(seven < len(during.ups) or during.stuck > 1)


if __name__ == "__main__":
    sys.exit(main())
