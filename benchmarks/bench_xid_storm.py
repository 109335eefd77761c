"""Let the driver write a storm of Xids into the kernel's log, and see what the node exporter makes of it.

Run: .venv/bin/python benchmarks/bench_xid_storm.py [--lines 100000] [--seconds 10] [--gpus 8]

The real exporter over a driver in C (compiled_driver.py; needs ``cc``), with both readers of the log: Xids and kernel
events. Lines name a few hundred processes; ``--gpus 1`` writes all of one GPU and Xid, the worst case for matching
them with NVML's. One scrape a second. It reports the CPU time a line above what the exporter takes without them, how
many were counted, how far the count was behind at most (the kernel keeps 1 MiB, 7,000 such lines: what is further
behind would be lost), how long after the last line all were counted, and the slowest scrape.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from compiled_driver import compile_driver
from harness import cpu_seconds, exit_on_signals, node_exporter

from pyrometer_kit.http_client import get
from pyrometer_simulator.nvml import SimulatedGpus
from pyrometer_simulator.sysfs import SysfsTree

LOG_BYTES = 1 << 20
PROCESSES = 400
BATCHES_A_SECOND = 50
_COUNT = re.compile(r"^pyrometer_gpu_xid_errors_total\{[^}]*\} (\S+)$", re.MULTILINE)


class Scrape(NamedTuple):
    """``seconds`` it took, and the number of Xids that it has."""

    seconds: float
    counted: float


@contextlib.contextmanager
def exporter(folder: Path, gpus: int) -> Iterator[tuple[int, int]]:
    """Run the node exporter with GPUs and the kernel's log alone; yield its process id and port."""
    simulated = SimulatedGpus(folder / "gpus", count=gpus, driver="595.45.04")
    tree = SysfsTree(folder / "node", hcas=0, gpus=0)
    simulated.write_pci_tree(tree.sysfs)
    library = compile_driver(simulated, tree.sysfs, folder)
    (folder / "kmsg").touch()
    flags = [f"--path.sysfs={tree.sysfs}", f"--path.procfs={tree.procfs}", f"--path.rings={folder}/rings",
             f"--path.state={folder}/state", f"--path.kmsg={folder}/kmsg"]  # fmt: skip
    start = [str(Path(__file__).with_name("exporter_on_compiled_driver.py")), str(library), "1"]
    with node_exporter(flags, start) as found:
        yield found


def line(number: int, gpus: int) -> bytes:
    """Return a record of the log: an MMU fault of one of the GPUs and of one of the processes."""
    pci, pid = f"0000:{0x18 + 0x10 * (number % gpus):02x}:00", 1000 + number % PROCESSES
    text = f"NVRM: Xid (PCI:{pci}): 31, pid={pid}, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS"
    return f"4,{number},{time.monotonic_ns() // 1000},-;{text} GPCCLIENT_T1_0 faulted @ 0x7f_2c000000\n".encode()


def scrape(port: int) -> Scrape:
    """Ask for ``/metrics`` once."""
    begins = time.perf_counter()
    text = get(f"http://127.0.0.1:{port}/metrics", seconds=60).decode()
    return Scrape(time.perf_counter() - begins, sum(float(count) for count in _COUNT.findall(text)))


def at_rest(pid: int, port: int, seconds: float) -> float:
    """Return the CPU seconds a second that the exporter takes without a storm, with a scrape a second."""
    before, begins = cpu_seconds(pid), time.monotonic()
    while time.monotonic() - begins < seconds:
        scrape(port)
        time.sleep(1)
    return (cpu_seconds(pid) - before) / (time.monotonic() - begins)


class Storm(NamedTuple):
    """The cost and the outcome of a storm."""

    microseconds: float
    """CPU of a line, above what the exporter takes without them."""
    counted: float
    behind: float
    """By how many lines the count was behind at most."""
    late: float
    """How many seconds after the last line all were counted."""
    slowest: float
    """Seconds of the slowest scrape."""


def storm(lines: int, seconds: float, gpus: int) -> Storm:
    """Write so many lines in so many seconds, with a scrape a second."""
    with tempfile.TemporaryDirectory() as name, exporter(Path(name), gpus) as (pid, port):
        scrape(port)
        rest = at_rest(pid, port, 5)
        before, begins = cpu_seconds(pid), time.monotonic()
        written, behind, slowest, counted, looked = 0, 0.0, 0.0, 0.0, begins
        with (Path(name) / "kmsg").open("ab", buffering=0) as log:
            while counted < lines and time.monotonic() - begins < 20 * seconds:
                due = min(lines, int(lines * (time.monotonic() - begins) / seconds))
                log.write(b"".join(line(number, gpus) for number in range(written, due)))
                written = due
                if time.monotonic() - looked >= 1:
                    looked = time.monotonic()
                    took, counted = scrape(port)
                    behind, slowest = max(behind, due - counted), max(slowest, took)
                time.sleep(1 / BATCHES_A_SECOND)
        passed = time.monotonic() - begins
        cost = (cpu_seconds(pid) - before - rest * passed) / max(1.0, counted)
    return Storm(1e6 * cost, counted, behind, passed - seconds, slowest)


def main() -> int:
    parser = argparse.ArgumentParser(description="A storm of Xids in the kernel's log.")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="in which they are written")
    parser.add_argument("--gpus", type=int, default=8)
    flags = parser.parse_args()
    exit_on_signals()
    found = storm(flags.lines, flags.seconds, flags.gpus)
    lost = max(0, int(found.behind - LOG_BYTES / len(line(flags.lines, flags.gpus))))
    print(
        f"{flags.lines:,} lines of {flags.gpus} GPUs in {flags.seconds:g} s (load {os.getloadavg()[0]:.1f}): "
        f"{found.microseconds:.0f} us of CPU a line, {found.counted:,.0f} counted, {found.behind:,.0f} behind at most "
        f"({f'{lost:,} of them' if lost else 'none'} lost from a log of 1 MiB), "
        f"all {found.late:.1f} s after the last, slowest scrape {found.slowest:.2f} s"
    )
    return 0 if found.counted >= flags.lines else 1


if __name__ == "__main__":
    sys.exit(main())
