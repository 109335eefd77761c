"""Print the table of docs/performance.md: the whole node at the real interval beside node_exporter, storms, alerting.

Run: .venv/bin/python benchmarks/bench_speed.py [--page docs/performance.md]   (10 minutes, mostly waiting; ``--only
node``: 6, ``storm``: 2, ``alerting``: 1)

Node: five processes, scraped in turn within each interval, with gzip as Prometheus asks for it: our exporter with 8
GPUs, 10 HCAs with an interface each and 8 ranks, ``/metrics`` and ``/batches``; node_exporter with its default
collectors on this host; our exporter with the NIC collector alone, as it is and reading every file each time;
node_exporter with infiniband and netclass alone on the same tree. The driver is a C library (compiled_driver.py; needs
``cc``) whose ``nvmlEventSetWait`` waits as it is asked to. Ranks step and ports have traffic between scrapes. At 1 s
between scrapes first, which warms everything up, then at 15 s. The processes are started twice, three sets side by
side: a run is a set, and its scrapes are apart from those of the other sets.

The table has min, median and max of the runs; ratios are of CPU within one run. A scrape's CPU is all that the process
takes from its request to the answer, less what it takes at rest. The sampler's work between scrapes is in no scrape but
in the share of a core. How long an MFU drop takes is measured by ``make demo``.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import bench_large_incidents
from bench_xid_storm import storm
from compiled_driver import compile_driver
from harness import cpu_seconds, exit_on_signals, node_exporter, p99, replace_between_marks, rss_megabytes

import pyrometer
from pyrometer_exporters import node as node_collectors
from pyrometer_exporters.framework.collector import discover
from pyrometer_simulator.nvml import SimulatedGpus
from pyrometer_simulator.stack import StackError
from pyrometer_simulator.stack.node_exporter import find_node_exporter, running
from pyrometer_simulator.sysfs import SysfsTree

GPUS, HCAS, RANKS = 8, 10, 8
# So many scrapes of each first: everything is open, and what is read once in 30 or 60 s has been read.
WARM_UP = 5
HEADERS = {"Accept-Encoding": "gzip", "X-Prometheus-Scrape-Timeout-Seconds": "1", "User-Agent": "Prometheus/3.5.0"}
STARTS, SIDE_BY_SIDE = 2, 3
QUICK_SECONDS, QUICK_SCRAPES = 1.0, 16
GROWTH_SCRAPES = 5000  # without a pause, to see whether memory grows
STORM_LINES, STORM_SECONDS, STORMS = 100_000, 10.0, 5
OURS, THEIRS, LINKS, THEIR_LINKS = "whole node", "node_exporter", "links", "node_exporter's links"
EVERY_FILE = "links, every file each time"
BEGIN, END = "<!-- speed: begin -->", "<!-- speed: end -->"

Rows = Mapping[str, list[float]]
# Started instead of the exporter's own main to read every file every time.
_EVERY_TIME = """
import sys
from pyrometer_exporters.node import main
from pyrometer_exporters.node.nic import tiers
tiers.SLACK = 0.0
sys.exit(main.main())
"""


@dataclass
class Target:
    """A process and what its scrapes took: CPU and wall time in ms, all paths of one scrape together.

    The CPU time is all that the process takes from the request to the answer, less what it takes in that time while
    nobody scrapes.
    """

    pid: int
    port: int
    paths: Sequence[str] = ("/metrics",)
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    idle: float = 0.0

    def __post_init__(self) -> None:
        self._connections = [http.client.HTTPConnection("127.0.0.1", self.port, timeout=20) for _ in self.paths]

    def scrape(self) -> None:
        """Scrape once, as Prometheus does."""
        cpu, begins = cpu_seconds(self.pid), time.monotonic()
        for path, connection in zip(self.paths, self._connections, strict=True):
            connection.request("GET", path, headers=HEADERS)
            connection.getresponse().read()
        took = time.monotonic() - begins
        self.cpu.append(1e3 * (cpu_seconds(self.pid) - cpu - self.idle * took))
        self.wall.append(1e3 * took)

    def begin(self) -> None:
        """Forget the scrapes so far."""
        self.cpu.clear()
        self.wall.clear()

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
def ranks(folder: Path) -> Iterator[list[pyrometer.Run]]:
    """Start a run with rings in a folder; yield its ranks."""
    runs = [
        pyrometer.start("bench", rings=str(folder), rank=n, local_rank=n, world_size=RANKS, tokens_per_step=4_194_304,
                        flops_per_token=5e10, gpu_model="NVIDIA H100 80GB HBM3")
        for n in range(RANKS)
    ]  # fmt: skip
    yield runs
    for run in runs:
        run.close()


def links_alone(
    tree: SysfsTree, folder: Path, *, every_time: bool
) -> contextlib.AbstractContextManager[tuple[int, int]]:
    """Run our exporter with the NIC collector alone; yield its process id and port."""
    others = [f"--no-collector.{spec.name}" for spec in discover(node_collectors) if spec.name != "nic"]
    flags = [f"--path.sysfs={tree.sysfs}", f"--path.procfs={tree.procfs}", f"--path.state={folder}", *others]
    return node_exporter(flags, ["-c", _EVERY_TIME]) if every_time else node_exporter(flags)


@contextlib.contextmanager
def node_of_files(folder: Path) -> Iterator[tuple[Node, Path]]:
    """Make the node; yield it and its driver's library."""
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
        yield Node(tree, stack.enter_context(ranks(folder / "rings"))), library


@contextlib.contextmanager
def one_set(folder: Path, tree: SysfsTree, library: Path, number: int) -> Iterator[dict[str, Target]]:
    """Run all five processes; yield them by name."""
    state = folder / f"state{number}"
    state.mkdir()
    flags = [f"--path.sysfs={tree.sysfs}", f"--path.procfs={tree.procfs}", f"--path.rings={folder}/rings",
             f"--path.state={state}", f"--path.kmsg={folder}/kmsg"]  # fmt: skip
    start = [str(Path(__file__).with_name("exporter_on_compiled_driver.py")), str(library), "1"]
    binary = find_node_exporter()
    with contextlib.ExitStack() as stack:
        whole = stack.enter_context(node_exporter(flags, start))
        theirs, their_links = stack.enter_context(running(binary)), stack.enter_context(running(binary, tree.sysfs))
        found = {
            OURS: Target(*whole, ("/metrics", f"/batches?consumer=bench{number}")),
            THEIRS: Target(theirs.pid, theirs.port),
            LINKS: Target(*stack.enter_context(links_alone(tree, state, every_time=False))),
            EVERY_FILE: Target(*stack.enter_context(links_alone(tree, state, every_time=True))),
            THEIR_LINKS: Target(their_links.pid, their_links.port),
        }
        yield found
        for target in found.values():
            target.close()


def node_runs(interval: float, scrapes: int) -> Iterator[dict[str, float]]:
    """Yield the rows of each run of the node, by name."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        node, library = stack.enter_context(node_of_files(folder))
        sets = [stack.enter_context(one_set(folder, node.tree, library, n)) for n in range(SIDE_BY_SIDE)]
        in_turn(node, sets, WARM_UP, QUICK_SECONDS)
        measure_rest([found[OURS] for found in sets], 5.0)
        runs = []
        for pace, count in ((QUICK_SECONDS, QUICK_SCRAPES), (interval, scrapes)):
            for target in (target for found in sets for target in found.values()):
                target.begin()
            before, begins = [cpu_seconds(found[OURS].pid) for found in sets], time.monotonic()
            in_turn(node, sets, count, pace)
            passed = time.monotonic() - begins
            shares = [(cpu_seconds(found[OURS].pid) - cpu) / passed for found, cpu in zip(sets, before, strict=True)]
            runs.append([_scrape_rows(found, share, pace) for found, share in zip(sets, shares, strict=True)])
        rows = [{**at_15, **at_1, **_process_rows(found[OURS])} for at_1, at_15, found in zip(*runs, sets, strict=True)]
        growth = {f"growth in {GROWTH_SCRAPES:,} scrapes, MB (goal 1)": _growth(sets[0][OURS])}
        yield from (row | growth for row in rows)


def _growth(target: Target) -> float:
    before = rss_megabytes(target.pid)
    for _ in range(GROWTH_SCRAPES):
        target.scrape()
    return rss_megabytes(target.pid) - before


def measure_rest(targets: Sequence[Target], seconds: float) -> None:
    """Measure the share of a core that each takes while nobody scrapes."""
    cpu, begins = [cpu_seconds(target.pid) for target in targets], time.monotonic()
    time.sleep(seconds)
    for target, before in zip(targets, cpu, strict=True):
        target.idle = (cpu_seconds(target.pid) - before) / (time.monotonic() - begins)


def in_turn(node: Node, sets: Sequence[Mapping[str, Target]], scrapes: int, interval: float) -> None:
    """Scrape each target of each set once in every interval, evenly apart."""
    targets = [target for found in sets for target in found.values()]
    begins = time.monotonic() + interval
    for number in range(scrapes):
        node.work()
        for place, target in enumerate(targets):
            time.sleep(max(0.0, begins + interval * (number + place / len(targets)) - time.monotonic()))
            target.scrape()


def _scrape_rows(found: Mapping[str, Target], share: float, interval: float) -> dict[str, float]:
    whole = found[OURS]
    cpu = {name: statistics.fmean(target.cpu) for name, target in found.items()}
    at = f"{interval:g} s"
    return {
        f"{at}: whole node with /batches, CPU per scrape, ms": cpu[OURS],
        f"{at}: node_exporter, its defaults, CPU per scrape, ms": cpu[THEIRS],
        f"{at}: whole node / node_exporter, CPU": cpu[OURS] / cpu[THEIRS],
        f"{at}: whole node, wall, p50, ms": statistics.median(whole.wall),
        f"{at}: whole node, wall, p99, ms": p99(whole.wall),
        f"{at}: links / node_exporter on the same tree, CPU": cpu[LINKS] / cpu[THEIR_LINKS],
        f"{at}: the same with every file each time, CPU": cpu[EVERY_FILE] / cpu[THEIR_LINKS],
        f"{at}: exporter in all, sampler included, % of a core": 100 * share,
    }


def _process_rows(whole: Target) -> dict[str, float]:
    return {
        "exporter while nobody scrapes, % of a core": 100 * whole.idle,
        "RSS, MB": rss_megabytes(whole.pid),
        "descriptors": len(list(Path(f"/proc/{whole.pid}/fd").iterdir())),
    }


def node_rows(interval: float, scrapes: int, starts: int) -> Rows:
    """Return the rows of the node."""
    return by_name([run for _ in range(starts) for run in node_runs(interval, scrapes)])


def storm_rows() -> Rows:
    """Return the rows of the storms of Xids."""
    runs = []
    for _ in range(STORMS):
        found = storm(STORM_LINES, STORM_SECONDS, GPUS)
        runs.append({
            f"{STORM_LINES:,} Xid lines in {STORM_SECONDS:g} s, CPU of a line, us (goal 40)": found.microseconds,
            "of them counted, % (goal 100)": 100 * found.counted / STORM_LINES,
            "slowest scrape meanwhile, s": found.slowest,
        })  # fmt: skip
    return by_name(runs)


def by_name(runs: Sequence[Mapping[str, float]]) -> Rows:
    """Return the values of all runs by row."""
    return {name: [run[name] for run in runs] for name in runs[0]}


def table(rows: Rows, loads: Sequence[float]) -> str:
    """Return the table, under what it was measured on."""
    node = f"{GPUS} GPUs, {HCAS} HCAs with interfaces, {RANKS} ranks"
    machine = f"Python {sys.version.split()[0]}, {os.cpu_count()} cores at load {min(loads):.1f} to {max(loads):.1f}"
    lines = [f"{node}; {machine}:", "", "| what | runs | min | median | max |", "|---|---|---|---|---|"]
    for name, values in rows.items():
        least, median, most = min(values), statistics.median(values), max(values)
        lines.append(f"| {name} | {len(values)} | {least:.2f} | {median:.2f} | {most:.2f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="The table of docs/performance.md.")
    parser.add_argument("--interval", type=float, default=15.0, help="seconds between scrapes (%(default)s)")
    parser.add_argument("--scrapes", type=int, default=8, help="of each, at that interval (%(default)s)")
    parser.add_argument("--starts", type=int, default=STARTS, help="how often the processes start (%(default)s)")
    parser.add_argument("--only", choices=("node", "storm", "alerting"), help="one part of the table")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the table into this page, too")
    flags = parser.parse_args()
    exit_on_signals()
    parts: dict[str, Callable[[], Rows]] = {
        "node": functools.partial(node_rows, flags.interval, flags.scrapes, flags.starts),
        "storm": storm_rows,
        "alerting": functools.partial(bench_large_incidents.rows, bench_large_incidents.RUNS),
    }
    rows: dict[str, list[float]] = {}
    loads = [os.getloadavg()[0]]
    try:
        for name, part in parts.items():
            if flags.only in (None, name):
                rows |= part()
                loads.append(os.getloadavg()[0])
                print(f"{name} is done, load {loads[-1]:.1f}", file=sys.stderr)
    except (StackError, OSError, subprocess.CalledProcessError) as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 2
    found = table(rows, loads)
    print(found)
    if flags.page:
        replace_between_marks(flags.page, BEGIN, END, f"\n{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
