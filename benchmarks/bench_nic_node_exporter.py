"""Compare our NIC collector with node_exporter on one tree of 10 HCAs and 4 Ethernet interfaces, in one run.

Run: .venv/bin/python benchmarks/bench_nic_node_exporter.py [scrapes] [--pace SECONDS]

Both run as processes and are scraped in turn over HTTP: theirs with --collector.disable-defaults --collector.infiniband
--collector.netclass, ours with the NIC collector alone. Twice: ours reading every file at every scrape, as theirs does,
and ours as it is, with tiers; the second is only worth something at a real pace (--pace, 5 s unless told). Traffic
moves between the scrapes, so that counters change. The files are ordinary ones: neither pays for a device's firmware,
which would cost each read the same.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from harness import node_exporter

from pyrometer_exporters import node
from pyrometer_exporters.framework.collector import discover
from pyrometer_simulator.stack import StackError
from pyrometer_simulator.stack.node_exporter import find_node_exporter, running
from pyrometer_simulator.sysfs import SysfsTree

HCAS, ETHERNETS = 10, 4
BUDGET = 0.5
# Started instead of the exporter's own main to read every file every time.
_EVERY_TIME = """
import sys
from pyrometer_exporters.node import main
from pyrometer_exporters.node.nic import tiers
tiers.SLACK = 0.0
sys.exit(main.main())
"""


class Cost(NamedTuple):
    """One scrape: milliseconds of wall time and of CPU time, and the number of samples."""

    p50: float
    p99: float
    cpu: float
    samples: int


def ours(tree: SysfsTree, folder: Path, *, every_time: bool) -> contextlib.AbstractContextManager[tuple[int, int]]:
    """Run our exporter with the NIC collector alone; yield its process id and port."""
    others = [f"--no-collector.{spec.name}" for spec in discover(node) if spec.name != "nic"]
    flags = [f"--path.sysfs={tree.sysfs}", f"--path.procfs={tree.procfs}", f"--path.state={folder}", *others]
    return node_exporter(flags, ["-c", _EVERY_TIME]) if every_time else node_exporter(flags)


def cpu_milliseconds(pid: int) -> float:
    """Return the CPU time of all threads, ended ones included, from the process's clock (clock_getcpuclockid)."""
    return 1e3 * time.clock_gettime(~pid << 3 | 2)


def side_by_side(tree: SysfsTree, targets: dict[str, tuple[int, int]], scrapes: int, pace: float) -> dict[str, Cost]:
    """Scrape all targets in turn, ``pace`` seconds apart; before each round, the ports have traffic."""
    connections = {
        name: http.client.HTTPConnection("127.0.0.1", port, timeout=30) for name, (_, port) in targets.items()
    }
    walls: dict[str, list[float]] = {name: [] for name in targets}
    samples = dict.fromkeys(targets, 0)

    def scrape(name: str) -> None:
        start = time.perf_counter()
        connections[name].request("GET", "/metrics")
        text = connections[name].getresponse().read()
        walls[name].append(1e3 * (time.perf_counter() - start))
        samples[name] = sum(not line.startswith(b"#") for line in text.splitlines())

    for _ in range(3):
        for name in targets:
            scrape(name)
    for times in walls.values():
        times.clear()
    before = {name: cpu_milliseconds(pid) for name, (pid, _) in targets.items()}
    for _ in range(scrapes):
        for nic in tree.nics:
            nic.traffic(1_000_000)
        for name in targets:
            scrape(name)
        time.sleep(pace)
    costs = {}
    for name, (pid, _) in targets.items():
        used = (cpu_milliseconds(pid) - before[name]) / scrapes
        ordered = sorted(walls[name])
        costs[name] = Cost(statistics.median(ordered), ordered[int(0.99 * len(ordered))], used, samples[name])
        connections[name].close()
    return costs


def report(title: str, costs: dict[str, Cost]) -> None:
    print(title)
    for name, cost in costs.items():
        print(
            f"  {name:14} p50 {cost.p50:6.2f} ms  p99 {cost.p99:6.2f}  CPU {cost.cpu:6.2f} ms  {cost.samples} samples"
        )
    ours_, theirs = costs["pyrometer"], costs["node_exporter"]
    p50, cpu = ours_.p50 / theirs.p50, ours_.cpu / theirs.cpu if theirs.cpu else float("nan")
    kept = "kept" if max(p50, cpu) <= BUDGET else "NOT KEPT"
    print(f"  ratio          p50 {p50:6.2f}                CPU {cpu:6.2f}     at most {BUDGET}: {kept}")


def main() -> int:
    flags = argparse.ArgumentParser(description="Our NIC collector beside node_exporter.")
    flags.add_argument("scrapes", nargs="?", type=int, default=300)
    flags.add_argument(
        "--pace", type=float, default=5.0, help="seconds between scrapes of the second part; 0: leave it out"
    )
    options = flags.parse_args()
    try:
        binary = find_node_exporter()
    except StackError as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 2
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        tree = SysfsTree(Path(folder) / "node", hcas=HCAS, gpus=0, ethernet=ETHERNETS)
        for every_time, scrapes, pace in (
            (True, options.scrapes, 0.0),
            (False, max(12, options.scrapes // 25), options.pace),
        ):
            if not every_time and not pace:
                continue
            with running(binary, tree.sysfs) as theirs, ours(tree, Path(folder), every_time=every_time) as mine:
                costs = side_by_side(
                    tree, {"node_exporter": (theirs.pid, theirs.port), "pyrometer": mine}, scrapes, pace
                )
            title = "every file at every scrape" if every_time else f"with tiers, a scrape every {pace:g} s"
            report(f"{title}, {scrapes} scrapes of each in turn", costs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
