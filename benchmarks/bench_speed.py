"""Measure the node exporter as it is used: a whole node at the real interval, beside node_exporter, on one machine.

Run: .venv/bin/python benchmarks/bench_speed.py [--interval 15] [--runs 5] [--scrapes 12]   (20 minutes; mostly waiting)

Four processes, scraped in turn within each interval, with gzip as Prometheus asks for it: our exporter with 8 GPUs, 10
HCAs with an interface each and 8 ranks, ``/metrics`` and ``/batches``; node_exporter with its default collectors on
this host; our exporter with the NIC collector alone; node_exporter with infiniband and netclass alone on the same
tree. The driver is a C library (compiled_driver.py; needs ``cc``) whose ``nvmlEventSetWait`` waits as it is asked
to. Ranks step and ports have traffic between scrapes.

Each run starts all four again. The table has min, median and max of the runs; ratios are of CPU within one run. The
sampler's work between scrapes is in the last lines, the share of a core of everything, and in no scrape.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench_nic_node_exporter import ours as links_alone
from bench_node_exporter import GPUS, HCAS, RANKS, cpu_seconds, ranks, rss_megabytes
from compiled_driver import compile_driver
from harness import exit_on_signals, node_exporter, p99

import pyrometer
from pyrometer_simulator.nvml import SimulatedGpus
from pyrometer_simulator.stack import StackError
from pyrometer_simulator.stack.node_exporter import find_node_exporter, running
from pyrometer_simulator.sysfs import SysfsTree

# So many scrapes of each first: everything is open, and what is read once in 30 or 60 s has been read.
WARM_UP = 5
# The dearest of so many scrapes in turn is compared with the cheapest: tiers are 5, 30 and 60 s.
TURNS = 4
OURS, THEIRS, LINKS, THEIR_LINKS = "whole node", "node_exporter", "links", "node_exporter's links"


@dataclass
class Target:
    """A process and what its scrapes took: CPU and wall time in ms, all paths of one scrape together."""

    pid: int
    port: int
    paths: Sequence[str] = ("/metrics",)
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    idle: float = 0.0

    def __post_init__(self) -> None:
        self._connections = [http.client.HTTPConnection("127.0.0.1", self.port, timeout=20) for _ in self.paths]

    def scrape(self) -> None:
        """Scrape once; the CPU time that it takes while nobody scrapes is taken off."""
        cpu, begins = cpu_seconds(self.pid), time.monotonic()
        for path, connection in zip(self.paths, self._connections, strict=True):
            connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
            connection.getresponse().read()
        took = time.monotonic() - begins
        self.cpu.append(1e3 * (cpu_seconds(self.pid) - cpu - self.idle * took))
        self.wall.append(1e3 * took)

    def rest(self, seconds: float) -> None:
        """Measure the share of a core that it takes while nobody scrapes."""
        cpu, begins = cpu_seconds(self.pid), time.monotonic()
        time.sleep(seconds)
        self.idle = (cpu_seconds(self.pid) - cpu) / (time.monotonic() - begins)

    def close(self) -> None:
        """Close its connections."""
        for connection in self._connections:
            connection.close()


@dataclass
class Node:
    """The simulated node: its files and ranks."""

    tree: SysfsTree
    runs: list[pyrometer.Run]

    def work(self) -> None:
        """Let every rank make a step and every port have traffic."""
        for run in self.runs:
            with run.step(), run.part("forward"):
                run.record(loss=1.0)
        for nic in self.tree.nics:
            nic.traffic(1_000_000)


@contextlib.contextmanager
def targets(folder: Path) -> Iterator[tuple[Node, dict[str, Target]]]:
    """Run all four processes; yield the node and the targets by name."""
    with contextlib.ExitStack() as stack:
        gpus = SimulatedGpus(folder / "gpus", count=GPUS, driver="595.45.04")
        for gpu in gpus:
            gpu.load()
        tree = SysfsTree(folder / "node", hcas=HCAS, gpus=0)
        gpus.write_pci_tree(tree.sysfs)
        library = compile_driver(gpus, tree.sysfs, folder)
        (folder / "rings").mkdir()
        os.mkfifo(folder / "kmsg")
        # As the kernel's log, it wakes its reader; a file would have to be polled.
        stack.callback(os.close, os.open(folder / "kmsg", os.O_RDWR))
        node = Node(tree, stack.enter_context(ranks(folder / "rings")))
        flags = [f"--path.sysfs={tree.sysfs}", f"--path.procfs={tree.procfs}", f"--path.rings={folder}/rings",
                 f"--path.state={folder}/state", f"--path.kmsg={folder}/kmsg"]  # fmt: skip
        start = [str(Path(__file__).with_name("exporter_on_compiled_driver.py")), str(library), "1"]
        binary = find_node_exporter()
        whole = stack.enter_context(node_exporter(flags, start))
        theirs, their_links = stack.enter_context(running(binary)), stack.enter_context(running(binary, tree.sysfs))
        links = stack.enter_context(links_alone(tree, folder, every_time=False))
        found = {
            OURS: Target(*whole, ("/metrics", "/batches?consumer=bench")),
            THEIRS: Target(theirs.pid, theirs.port),
            LINKS: Target(*links),
            THEIR_LINKS: Target(their_links.pid, their_links.port),
        }
        yield node, found
        for target in found.values():
            target.close()


def one_run(folder: Path, scrapes: int, interval: float) -> dict[str, float]:
    """Return the rows of one run, by name."""
    with targets(folder) as (node, found):
        in_turn(node, found, WARM_UP, min(interval, 2.0))
        found[OURS].rest(5.0)
        for target in found.values():
            target.cpu.clear()
            target.wall.clear()
        before, begins = cpu_seconds(found[OURS].pid), time.monotonic()
        in_turn(node, found, scrapes, interval)
        share = (cpu_seconds(found[OURS].pid) - before) / (time.monotonic() - begins)
        return _rows(found, share)


def in_turn(node: Node, found: dict[str, Target], scrapes: int, interval: float) -> None:
    """Scrape each target once in every interval, evenly apart."""
    due = time.monotonic()
    for _ in range(scrapes):
        node.work()
        for target in found.values():
            due += interval / len(found)
            time.sleep(max(0.0, due - time.monotonic()))
            target.scrape()


def _rows(found: dict[str, Target], share: float) -> dict[str, float]:
    whole = found[OURS]
    cpu = {name: statistics.fmean(target.cpu) for name, target in found.items()}
    in_turns = [statistics.fmean(whole.cpu[turn::TURNS]) for turn in range(TURNS)]
    return {
        "whole node with /batches, CPU per scrape, ms": cpu[OURS],
        "node_exporter, its defaults, CPU per scrape, ms": cpu[THEIRS],
        "whole node / node_exporter, CPU (goal 0.5)": cpu[OURS] / cpu[THEIRS],
        "whole node, wall, p50, ms (goal 5)": statistics.median(whole.wall),
        "whole node, wall, p99, ms (goal 5)": p99(whole.wall),
        "dearest / cheapest of four scrapes in turn, CPU (goal 1.2)": max(in_turns) / min(in_turns),
        "links / node_exporter on the same tree, CPU (goal 0.2)": cpu[LINKS] / cpu[THEIR_LINKS],
        "exporter in all, sampler included, % of a core (goal 0.25)": 100 * share,
        "the same while nobody scrapes, % of a core": 100 * whole.idle,
        "RSS, MB (goal 32)": rss_megabytes(whole.pid),
        "descriptors (goal 256)": len(list(Path(f"/proc/{whole.pid}/fd").iterdir())),
    }


def report(runs: Sequence[dict[str, float]], loads: Sequence[float], interval: float) -> None:
    """Print the table."""
    print(f"{GPUS} GPUs, {HCAS} HCAs with interfaces, {RANKS} ranks; a scrape every {interval:g} s; {len(runs)} runs")
    print(f"Python {sys.version.split()[0]}; load {min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} cores")
    print("| what | min | median | max |\n|---|---|---|---|")
    for name in runs[0]:
        values = [run[name] for run in runs]
        print(f"| {name} | {min(values):.2f} | {statistics.median(values):.2f} | {max(values):.2f} |")


def main() -> int:
    parser = argparse.ArgumentParser(description="The node exporter at the real interval, beside node_exporter.")
    parser.add_argument("--interval", type=float, default=15.0, help="seconds between scrapes (%(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="how often all processes are started (%(default)s)")
    parser.add_argument("--scrapes", type=int, default=12, help="of each in a run (%(default)s)")
    flags = parser.parse_args()
    exit_on_signals()
    runs, loads = [], []
    try:
        for number in range(flags.runs):
            with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
                runs.append(one_run(Path(folder), flags.scrapes, flags.interval))
            loads.append(os.getloadavg()[0])
            print(f"run {number + 1} of {flags.runs}, load {loads[-1]:.1f}", file=sys.stderr)
    except (StackError, OSError, subprocess.CalledProcessError) as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 2
    report(runs, loads, flags.interval)
    return 0


if __name__ == "__main__":
    sys.exit(main())
