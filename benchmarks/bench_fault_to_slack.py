"""Measure the time from a fault to the Slack message that names it: 24 faults on 8 simulated nodes, real programs.

16 GPUs overheat (two on each node) and 8 links flap three times, one after another at random moments, so that every
phase of the 5 s scrape and the 5 s evaluation is met. The clock of a flap starts with its third loss, because two
are no flapping. Run: .venv/bin/python benchmarks/bench_fault_to_slack.py   (about 4 minutes)
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from harness import exit_on_signals

from pyrometer_simulator.demo.cluster import Cluster
from pyrometer_simulator.demo.hardware import Node
from pyrometer_simulator.demo.observe import Prometheus, shown_text
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.demo.programs import Programs
from pyrometer_simulator.demo.topology import CHANNEL, GPUS_PER_NODE, NODES, RUN
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.stack import find_stack

GIVE_UP_SECONDS = 40.0


def named(slack: FakeSlack, culprit: str, since: float) -> float | None:
    """Return the seconds from ``since`` until a message names the culprit; None if none does in time."""
    while time.time() - since < GIVE_UP_SECONDS:
        if any(culprit in shown_text(message) for message in slack.messages(CHANNEL)):
            return time.time() - since
        time.sleep(0.02)
    return None


def heat(node: Node, gpu: int) -> float:
    node.gpus[gpu].pulse("hw_thermal", seconds=12.0, sm_clock=1200)
    return time.time()


def flap(node: Node, device: str) -> float:
    since = 0.0
    for _ in range(3):
        since = time.time()
        node.tree.nic(device).flap(0.3)
        time.sleep(0.3)
    return since


def main() -> None:
    flags = argparse.ArgumentParser(description="From a fault to the Slack message that names it.")
    flags.add_argument("seed", nargs="?", type=int, default=1, help="of the moments (%(default)s)")
    chance = random.Random(flags.parse_args().seed)
    exit_on_signals()
    with contextlib.ExitStack() as opened:
        folder = Path(tempfile.mkdtemp(prefix="pyrometer-bench-"))
        opened.callback(shutil.rmtree, folder, ignore_errors=True)
        (folder / "logs").mkdir()
        slack = opened.enter_context(FakeSlack(channel_names=(CHANNEL,)))
        processes = opened.enter_context(Processes(folder / "logs"))
        programs = Programs(folder, processes, find_stack(), slack, cluster=Cluster(folder))
        nodes = {name: Node(programs.node_folder(name), n, GPUS_PER_NODE) for n, name in enumerate(NODES, start=1)}
        programs.start_all()
        programs.start_training()
        prometheus = Prometheus(programs.addresses.url(programs.addresses.prometheus))
        while not prometheus.values(f'pyrometer_train_batch_mfu_ratio{{run="{RUN}"}}'):
            time.sleep(0.5)
        time.sleep(10)
        faults = [("heat", name, gpu) for name in NODES for gpu in chance.sample(range(GPUS_PER_NODE), 2)]
        faults += [("flap", name, chance.randrange(8)) for name in NODES]
        chance.shuffle(faults)
        seconds: dict[str, list[float]] = {"heat": [], "flap": []}
        for kind, name, index in faults:
            time.sleep(chance.uniform(0, 5))
            if kind == "heat":
                took = named(slack, f"{name} GPU {index}", heat(nodes[name], index))
            else:
                took = named(slack, f"{name} mlx5_{index}/1", flap(nodes[name], f"mlx5_{index}"))
            print(f"{kind} {name} {index}: {'not within 40 s' if took is None else f'{took:.1f} s'}", flush=True)
            seconds[kind].append(float("inf") if took is None else took)
    for kind, found in {**seconds, "all": seconds["heat"] + seconds["flap"]}.items():
        ordered = sorted(found)
        p90 = ordered[int(0.9 * (len(ordered) - 1))]
        print(f"{kind}: n {len(found)}, p50 {statistics.median(found):.1f} s, p90 {p90:.1f} s, max {ordered[-1]:.1f} s")


if __name__ == "__main__":
    main()
