"""Play a month of a cluster of 511 nodes, its planned life and its faults: who is woken for nothing, who is not woken.

Run: .venv/bin/python benchmarks/bench_month.py [--sample 64] [--faults 100] [--seed 1]

The month is drawn for all 511 nodes: each is rebooted once and gets one new driver (drained first), one in seven is
drained and repaired, one in ten has a port switched off and on, one in twenty a card renamed, runs end, pause and are
restarted; power is lost twice, for 256 nodes at the same moment.

It plays the whole life of ``--sample`` nodes, each event in full, by the real collectors on a virtual clock, in windows
of up to 16 nodes that are worked on at the same time as in a rolling upgrade, 8 ports each (4 nodes with 8 GPUs each in
a driver's upgrade). The others' reboots and new drivers are played with one GPU and one port each. Both losses of power
at 511 nodes with one port each, of which 2 are simulated and 509 show what these show: promtool takes no query of more
than 10,000 samples. Faults (month_faults.py) are of ports, GPUs, hosts and runs; they are played eight at a time, each
on a node of its own (runs: four, on two nodes each), in windows in which as many other nodes are rebooted. Windows last
15 to 35 minutes at a scrape interval of 15 or 30 s; hours in which nothing changes are left out, and so is what an
event does to rules that look back on another one of hours before (docs/situations.md has those).
"""

from __future__ import annotations

import argparse
import os
import random
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from month_faults import KINDS, RUN_BEGINS, Kind, begins

from pyrometer_alerting.incidents.lifecycle import REOPEN_SECONDS
from pyrometer_simulator.situations import steps as nic
from pyrometer_simulator.situations.exported_node import Hardware
from pyrometer_simulator.situations.host import NICS, TRAINING, WHOLE_NODE, Host
from pyrometer_simulator.situations.model import MINUTE, Action, Situation, at
from pyrometer_simulator.situations.outcome import play
from pyrometer_simulator.situations.site import Site
from pyrometer_simulator.situations.training import SimulatedRun
from pyrometer_simulator.situations.verdict import Fired, Rules, evaluate
from pyrometer_simulator.stack import find_stack

NODES = 511
INTERVALS = (15, 30)
TOGETHER = 16
POWER_LOST = 256
# Shares of nodes, in a month, on which this is done besides a reboot and a new driver.
REPAIRED, SWITCHED, RENAMED = 1 / 7, 1 / 10, 1 / 20


class Heard(NamedTuple):
    """A fault: the alert that has to report it, of which node or run, and how long after it at the latest."""

    alert: str
    where: str
    at: float
    within: float


@dataclass
class Window:
    """Events at the same time: what is done to which node (None: the whole site), and what has to be heard."""

    kind: str
    events: list[tuple[float, int | None, Action]] = field(default_factory=list)
    lasts: float = 35 * MINUTE
    hardware: Hardware = NICS
    nodes: int = 1
    copies: dict[int, int] = field(default_factory=dict)
    faults: list[Heard] = field(default_factory=list)

    def situation(self) -> Situation:
        """Return it as a situation."""
        steps = [at(when, partial(_on, number, action)) for when, number, action in self.events]
        return Situation(
            self.kind, steps, self.lasts, hardware=self.hardware, nodes=self.nodes, copies=self.copies, fault_at=0.0
        )


class OneNode:
    """A site of which a step sees one node as the first."""

    def __init__(self, site: Site, node: Host) -> None:
        self._site, self.node, self.nodes = site, node, [node]

    @property
    def run(self) -> SimulatedRun:
        """The run that began last on this node."""
        return next(run for run in reversed(self._site.runs) if any(rank.node is self.node for rank in run.ranks))

    def reboot(self, node: Host | None = None, **settings: Any) -> None:  # noqa: ANN401  those of the site
        self._site.reboot(node or self.node, **settings)

    def reload_openibd(self, **settings: Any) -> None:  # noqa: ANN401  those of the site
        self._site.reload_openibd(self.node, **settings)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  as the site's
        return getattr(self._site, name)


def _on(number: int | None, action: Action, site: Site) -> object:
    if number is None:
        return action(site)
    return action(OneNode(site, site.nodes[number]))  # type: ignore[arg-type]  # a site, as far as steps see it


def name_of(number: int) -> str:
    return f"gpu-{number + 1:03d}"


def drained(site: Site) -> None:
    """Drain the node in Slurm."""
    node = site.node.name
    line = f'pyrometer_slurm_node_unavailable_info{{node="{node}",state="drained",reason="month",user="ops"}} 1\n'
    site.serve("cluster", line.encode, instance=f"slurm-{node}:9936")


def reboot(chance: random.Random) -> Action:
    away, training = chance.uniform(60, 400), chance.uniform(0, 200)
    return lambda site: site.reboot(away=away, training=training)


def rolling_reboots(chance: random.Random, nodes: int, *, small: bool = False) -> Window:
    window = Window("reboots, rolling", nodes=nodes, hardware=nic.SMALL if small else NICS)
    window.events += [(300 + chance.uniform(0, 300), number, reboot(chance)) for number in range(nodes)]
    return window


def upgrade(chance: random.Random, nodes: int, *, small: bool = False) -> Window:
    """Return nodes that are drained, get new drivers of GPUs and cards, and are rebooted."""
    hardware = replace(WHOLE_NODE, hcas=1, gpus=1, ethernet=0) if small else WHOLE_NODE
    window = Window("new drivers, rolling, of drained nodes", hardware=hardware, nodes=nodes, lasts=30 * MINUTE)
    for number in range(nodes):
        begins = 300 + chance.uniform(0, 200)
        away = chance.uniform(5, 200)
        window.events += [
            (begins - chance.uniform(20, 60), number, drained),
            (begins, number, _new_driver),
            (begins + 20, number, partial(_openibd, away)),
            (begins + away + 150, number, reboot(chance)),
        ]
    return window


def _new_driver(site: Site) -> None:
    if site.node.gpus is not None:
        site.node.gpus.reload_driver()


def _openibd(away: float, site: Site) -> None:
    site.reload_openibd(away=away, training=40)


def openibd(chance: random.Random) -> Window:
    """Return a driver of the cards that is reloaded without draining the node."""
    away, training = chance.uniform(5, 300), chance.uniform(10, 120)
    step: Action = lambda site: site.reload_openibd(away=away, training=training)  # noqa: E731  as all actions here
    return Window("openibd restarted, node in use", [(300 + chance.uniform(0, 60), 0, step)], 25 * MINUTE)


def repair(chance: random.Random) -> Window:
    shift = chance.uniform(0, 60)
    steps = [(step.seconds + shift, 0, step.action) for step in nic.everything_breaks()]
    return Window("drained and repaired", [(240 + shift - chance.uniform(0, 60), 0, drained), *steps], 25 * MINUTE)


def rename(chance: random.Random) -> Window:
    number = chance.randrange(8)
    step: Action = lambda site: site.node.tree.rename(f"mlx5_{number}", f"rail{number}")  # noqa: E731  as above
    return Window("card renamed", [(300, 0, step)], 20 * MINUTE)


def switch_off(chance: random.Random) -> Window:
    return Window("port off and on", [(300 + chance.uniform(0, 60), 0, nic.switched_off_and_on)], 25 * MINUTE)


def run_ends(chance: random.Random) -> Window:
    """Return a run that is restarted by its launcher, pauses for a checkpoint and ends."""
    window = Window("run restarted, checkpoint, end", hardware=TRAINING, lasts=20 * MINUTE)
    restarts, pause = chance.uniform(15, 50), chance.uniform(60, 400)

    def restart(site: Site) -> None:
        site.run.kill_all()
        site.after(restarts, lambda: site.train(attempt=1))

    window.events = [
        (-600, 0, lambda site: site.train(site.nodes)),
        (300, 0, restart),
        (480, 0, lambda site: site.run.pause("checkpoint", pause)),
        (1000, 0, lambda site: site.run.end()),
    ]
    return window


def power(chance: random.Random) -> Window:
    """Return half of the cluster losing power at the same moment."""
    step: Action = partial(_power_lost, chance.uniform(200, 600), chance.uniform(20, 200))
    copies = {0: POWER_LOST - 1, 1: NODES - POWER_LOST - 1}
    return Window("power lost", [(300, 0, step)], hardware=nic.SMALL, nodes=2, copies=copies)


def _power_lost(away: float, training: float, site: Site) -> None:
    site.reboot(away=away, training=training, crash=True)


def faults(chance: random.Random, kind: Kind, count: int) -> Window:
    """Return faults, each on nodes or a run of its own, while as many other nodes are rebooted."""
    on = kind.nodes_each * count
    lasts = 22 * MINUTE + kind.together
    window = Window(f"{kind.name}: faults among reboots", nodes=on + count, lasts=lasts, hardware=kind.hardware)
    for number in range(count):
        fault, first = chance.choice(kind.faults), number * kind.nodes_each
        when, where = 300 + chance.uniform(0, kind.together), name_of(first)
        if kind.hardware is TRAINING:
            where = f"run-{number}"
            window.events.append((RUN_BEGINS, None, begins(where, first)))
        window.events.append((when, first, fault.step(chance)))
        window.faults.append(Heard(fault.alert, where, when, fault.within))
        window.events.append((240 + chance.uniform(0, 300), on + number, reboot(chance)))
    return window


def month(flags: argparse.Namespace) -> list[Window]:
    """Return the windows in which the lives of the cluster's nodes, and the faults, happen."""
    chance = random.Random(flags.seed)
    counts = [round(flags.faults * share) for _, share in KINDS[1:]]
    windows = []
    for (kind, _), count in zip(KINDS, [flags.faults - sum(counts), *counts], strict=True):
        windows += [faults(chance, kind, size) for size in _split(count, 8 // kind.nodes_each)]
    for nodes, small in ((flags.sample, False), (flags.nodes - flags.sample, True)):
        windows += [rolling_reboots(chance, size, small=small) for size in _split(nodes, TOGETHER)]
        windows += [upgrade(chance, size, small=small) for size in _split(nodes, TOGETHER if small else 4)]
        if not small:
            windows += _now_and_then(chance, nodes)
    return [*windows, power(chance), power(chance)]


def _now_and_then(chance: random.Random, nodes: int) -> list[Window]:
    windows = []
    for draw, share in ((repair, REPAIRED), (switch_off, SWITCHED), (rename, RENAMED), (openibd, 1 / 8)):
        windows += [draw(chance) for _ in range(round(nodes * share))]
    return windows + [run_ends(chance) for _ in range(round(nodes / 8))]


def _split(count: int, most: int) -> list[int]:
    return [min(most, count - start) for start in range(0, count, most)]


def judged(window: Window, fired: list[Fired], interval: int) -> tuple[list[str], list[str]]:
    """Return the critical alerts that nobody should get, and the faults that were not heard once and in time.

    An alert that ends and returns within half an hour is heard once: the service continues its message.
    """
    missed = []
    for fault in window.faults:
        own = [each for each in fired if each.name == fault.alert and fault.where in dict(each.labels).values()]
        once = len(own) == 1 and (own[0].episodes == 1 or own[0].last - own[0].first <= REOPEN_SECONDS)
        heard = once and own[0].first - fault.at <= fault.within + interval
        if not heard:
            when = [f"{each.first - fault.at:.0f} s ({each.episodes} times, {each.severity})" for each in own]
            missed.append(f"{fault.alert} of {fault.where} after {when}")
    told = {(fault.alert, fault.where) for fault in window.faults}
    unjust = [
        f"{each.name} {each.where} at {each.first:.0f} s"
        for each in fired
        if each.severity == "critical" and told.isdisjoint((each.name, label) for _, label in each.labels)
    ]
    return unjust, missed


class Played(NamedTuple):
    """One window: the unjust alerts, the faults that were not heard, and its CPU seconds."""

    kind: str
    nodes: int
    interval: int
    faults: int
    unjust: list[str]
    missed: list[str]
    continued: int
    cpu: float


def played(flags: argparse.Namespace, number: int) -> Played:
    """Play one window of the month, in a process of its own; its CPU seconds include those of promtool."""
    window, rules = month(flags)[number], Rules()
    interval = random.Random(f"{flags.seed} {number}").choice(INTERVALS)
    begins = os.times()
    case = play(window.situation(), interval, rules.metrics)
    asked = case if window.faults else case._replace(only=',severity="critical"')
    (fired,) = evaluate(find_stack(print).promtool, rules, [asked])
    unjust, missed = judged(window, fired, interval)
    nodes = window.nodes + sum(window.copies.values())
    told = {(fault.alert, fault.where) for fault in window.faults}
    returned = [each for each in fired if each.episodes > 1 and told & {(each.name, label) for _, label in each.labels}]
    cpu = sum(os.times()[:4]) - sum(begins[:4])
    return Played(window.kind, nodes, interval, len(window.faults), unjust, missed, len(returned), cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--sample", type=int, default=64, help="nodes whose whole month is played")
    parser.add_argument("--faults", type=int, default=100, help="faults that are played")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=NODES, help="nodes of which at least a small part is played")
    parser.add_argument("--jobs", type=int, default=2, help="windows that are played at the same time")
    flags = parser.parse_args()
    begins, count = time.perf_counter(), len(month(flags))
    done: list[Played] = []
    with ProcessPoolExecutor(flags.jobs) as pool:
        for number, one in enumerate(pool.map(partial(played, flags), range(count)), 1):
            done.append(one)
            print(f"{number} of {count}: {one.kind}, every {one.interval} s, {one.cpu:.0f} s of CPU", flush=True)
            for each in (*one.unjust, *one.missed):
                print(f"  {each}", flush=True)
    print("| what | windows | nodes | faults |\n|---|---|---|---|")
    for kind in dict.fromkeys(one.kind for one in done):
        own = [one for one in done if one.kind == kind]
        print(f"| {kind} | {len(own)} | {sum(one.nodes for one in own)} | {sum(one.faults for one in own)} |")
    print(f"critical alerts that nobody should get: {sum(len(one.unjust) for one in done)}")
    print(f"faults heard once and in time: {flags.faults - sum(len(one.missed) for one in done)} of {flags.faults}")
    print(f"of them ended and returned within half an hour, as one message: {sum(one.continued for one in done)}")
    print(f"{time.perf_counter() - begins:.0f} s, {sum(one.cpu for one in done):.0f} s of CPU")


if __name__ == "__main__":
    main()
