"""One of eight GPUs hangs for a minute under a real exporter: what it costs the other seven.

    .venv/bin/python benchmarks/bench_gpu_hang.py [seconds]

A scrape once a second; prints how many scrapes had the other seven, how long scrapes took before and during the hang,
how many threads the exporter had at most, and how soon the GPU was back.
"""

from __future__ import annotations

import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyrometer_simulator.nvml import SimulatedGpus

GPUS = 8
HUNG = 3


@contextmanager
def exporter(folder: Path) -> Iterator[tuple[int, int]]:
    """Process id and port of a node exporter over the simulated GPUs of a folder."""
    flags = ["--web.listen-address=127.0.0.1:0", f"--path.state={folder}/state", f"--path.kmsg={folder}/kmsg",
             "--no-collector.nic", "--no-collector.train", "--no-collector.kernel"]  # fmt: skip
    paths = [f"--path.{name}={folder}/{name}" for name in ("sysfs", "procfs", "rings")]
    command = [sys.executable, "-m", "pyrometer_simulator.node", "--gpus", f"{folder}/gpus", "--", *flags, *paths]
    log = folder / "log"
    with log.open("w") as file, subprocess.Popen(command, stderr=file) as process:
        while (found := re.search(r"listens on 127.0.0.1:(\d+)", log.read_text())) is None:
            time.sleep(0.05)
        yield process.pid, int(found.group(1))
        process.terminate()


def scrape(port: int) -> tuple[float, dict[str, float]]:
    """Seconds that it took, and pyrometer_gpu_up by GPU."""
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


def watch(pid: int, port: int, seconds: float) -> tuple[list[float], list[dict[str, float]], int]:
    took, ups, most = [], [], 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        elapsed, up = scrape(port)
        took.append(elapsed)
        ups.append(up)
        most = max(most, threads(pid))
        time.sleep(max(0.0, 1 - elapsed))
    return took, ups, most


def told(title: str, took: list[float]) -> None:
    p99 = sorted(took)[math.ceil(0.99 * len(took)) - 1]
    milliseconds = (1000 * value for value in (statistics.median(took), p99, took[0], max(took)))
    print(f"  {title:7} p50 {next(milliseconds):6.1f} ms, p99 {next(milliseconds):6.1f} ms, "
          f"first {next(milliseconds):6.1f} ms, worst {next(milliseconds):6.1f} ms, {len(took)} scrapes")  # fmt: skip


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gpus = SimulatedGpus(folder / "gpus", count=GPUS)
        gpus.write_pci_tree(folder / "sysfs")
        with exporter(folder) as (pid, port):
            scrape(port)
            before, _ups, usual = watch(pid, port, 10)
            gpus[HUNG].hang()
            during, ups, most = watch(pid, port, seconds)
            gpus[HUNG].recover()
            start = time.monotonic()
            while len([gpu for gpu, value in scrape(port)[1].items() if value]) < GPUS:
                time.sleep(0.1)
            back = time.monotonic() - start
    seven = sum(len([gpu for gpu, value in up.items() if value]) == GPUS - 1 for up in ups)
    print(f"GPU {HUNG} of {GPUS} hangs for {seconds:g} s, one scrape a second, over the simulated driver:")
    print(f"  the other seven were served in {seven} of {len(ups)} scrapes")
    told("before", before)
    told("during", during)
    print(f"  threads: {usual} before, {most} at most during; the GPU was back {back:.1f} s after it recovered")


if __name__ == "__main__":
    main()
