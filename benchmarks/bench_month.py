"""Play a month of a cluster of 511 nodes, its planned life and its faults: who is woken for nothing, who is not woken.

Run: .venv/bin/python benchmarks/bench_month.py [--sample 64] [--faults 100] [--seed 1]

The month is drawn for all 511 nodes: each is rebooted once and gets one new driver (drained first), one in seven is
drained and repaired, one in ten has a port switched off and on, one in twenty a card renamed, runs end, pause and are
restarted; power is lost twice, for 256 nodes at the same moment.

It plays the whole life of ``--sample`` nodes, each event in full, by the real collectors on a virtual
clock, in windows of up to 16 nodes that are worked on at the same time as in a rolling upgrade, 8 ports each (4 nodes
with 8 GPUs each in a driver's upgrade). Both losses of power at 511 nodes with one port each, of which 2 are simulated
and 509 show what these show: promtool takes no query of more than 10,000 samples. Faults are played eight at a time,
each on a node of its own, in windows in which eight other nodes are rebooted. Windows last 15 to 35 minutes at a scrape
interval of 15 or 30 s; hours in which nothing changes are left out, and so is what an event does to rules that look
back on another one of hours before (docs/situations.md has those).
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from pyrometer_simulator.situations import steps as nic
from pyrometer_simulator.situations.host import NICS, TRAINING, WHOLE_NODE, Hardware, Host
from pyrometer_simulator.situations.model import MINUTE, Action, Situation, at
from pyrometer_simulator.situations.outcome import play
from pyrometer_simulator.situations.site import Site
from pyrometer_simulator.situations.verdict import Fired, Rules, evaluate
from pyrometer_simulator.stack import find_stack

NODES = 511
INTERVALS = (15, 30)
TOGETHER = 16
POWER_LOST = 256
# Shares of nodes, in a month, on which this is done besides a reboot and a new driver.
REPAIRED, SWITCHED, RENAMED = 1 / 7, 1 / 10, 1 / 20


class Heard(NamedTuple):
    """A fault: the alert that has to report it, of which node, and how long after it at the latest."""

    alert: str
    node: str
    at: float
    within: float


@dataclass
class Window:
    """Events at the same time: what is done to which node, and what has to be heard."""

    kind: str
    events: list[tuple[float, int, Action]] = field(default_factory=list)
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

    def reboot(self, node: Host | None = None, **settings: Any) -> None:  # noqa: ANN401  those of the site
        self._site.reboot(node or self.node, **settings)

    def reload_openibd(self, **settings: Any) -> None:  # noqa: ANN401  those of the site
        self._site.reload_openibd(self.node, **settings)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  as the site's
        return getattr(self._site, name)


def _on(number: int, action: Action, site: Site) -> object:
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


def rolling_reboots(chance: random.Random, nodes: int) -> Window:
    events = [(300 + chance.uniform(0, 300), number, reboot(chance)) for number in range(nodes)]
    return Window("reboots, rolling", events, nodes=nodes)


def upgrade(chance: random.Random, nodes: int) -> Window:
    """Return nodes that are drained, get new drivers of GPUs and cards, and are rebooted."""
    window = Window("new drivers, rolling, of drained nodes", hardware=WHOLE_NODE, nodes=nodes, lasts=30 * MINUTE)
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


Fault = tuple[str, float, Callable[[int, float], Action]]
FAULTS: tuple[Fault, ...] = (
    ("NicLinkDown", 330, lambda number, _: nic.port(number, "down")),
    ("NicLinkFlapping", 330, lambda number, every: nic.flaps(number, every=every, times=4)),
    ("NicLost", 220, lambda number, _: nic.cards((number,), "lose")),
    ("FabricMassEvent", 70, lambda _, __: nic.ports(nic.ALL_PORTS, "down")),
    ("NicSymbolErrors", 200, lambda number, _: nic.counting(number, "symbol_error", 3, every=20, times=40)),
    ("NicAckTimeouts", 300, lambda number, _: nic.counting(number, "local_ack_timeout_err", 60, every=10, times=60)),
    ("NicReceiveErrors", 300, lambda number, _: nic.counting(number, "port_rcv_errors", 500, every=10, times=60)),
    ("NicLinkRecoveries", 240, lambda number, _: nic.counting(number, "link_error_recovery", 1, every=8, times=60)),
)


def faults(chance: random.Random, count: int) -> Window:
    """Return faults on nodes of their own, while as many other nodes are rebooted."""
    window = Window(f"{count} faults among reboots", nodes=2 * count, lasts=22 * MINUTE)
    for number in range(count):
        alert, within, step = chance.choice(FAULTS)
        when = 300 + chance.uniform(0, 120)
        window.events.append((when, number, step(chance.randrange(8), chance.uniform(40, 100))))
        window.faults.append(Heard(alert, name_of(number), when, within))
        window.events.append((240 + chance.uniform(0, 300), count + number, reboot(chance)))
    return window


def month(flags: argparse.Namespace) -> list[Window]:
    """Return the windows in which the sampled nodes' lives, and the faults, happen."""
    chance = random.Random(flags.seed)
    windows = [faults(chance, size) for size in _split(flags.faults, 8)]
    windows += [rolling_reboots(chance, size) for size in _split(flags.sample, TOGETHER)]
    windows += [upgrade(chance, size) for size in _split(flags.sample, 4)]
    for draw, share in ((repair, REPAIRED), (switch_off, SWITCHED), (rename, RENAMED), (openibd, 1 / 8)):
        windows += [draw(chance) for _ in range(round(flags.sample * share))]
    windows += [run_ends(chance) for _ in range(round(flags.sample / 8))]
    return [*windows, power(chance), power(chance)]


def _split(count: int, most: int) -> list[int]:
    return [min(most, count - start) for start in range(0, count, most)]


def judged(window: Window, fired: list[Fired], interval: int) -> tuple[list[str], list[str]]:
    """Return the critical alerts that nobody should get, and the faults that were not heard once and in time."""
    missed = []
    for fault in window.faults:
        own = [each for each in fired if each.name == fault.alert and dict(each.labels).get("node") == fault.node]
        heard = len(own) == 1 and own[0].episodes == 1 and own[0].first - fault.at <= fault.within + interval
        if not heard:
            missed.append(f"{fault.alert} of {fault.node} after {[round(each.first - fault.at) for each in own]} s")
    told = {(fault.alert, fault.node) for fault in window.faults}
    unjust = [
        f"{each.name} {each.where} at {each.first:.0f} s"
        for each in fired
        if each.severity == "critical" and (each.name, dict(each.labels).get("node", "")) not in told
    ]
    return unjust, missed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--sample", type=int, default=64, help="nodes whose whole month is played")
    parser.add_argument("--faults", type=int, default=100, help="faults that are played")
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    promtool, rules, chance = find_stack(print).promtool, Rules(), random.Random(flags.seed)
    begins, cpu, windows = time.perf_counter(), time.process_time(), month(flags)
    unjust: list[str] = []
    missed: list[str] = []
    kinds: Counter[str] = Counter()
    for number, window in enumerate(windows, 1):
        interval = chance.choice(INTERVALS)
        case = play(window.situation(), interval, rules.metrics)
        (fired,) = evaluate(promtool, rules, [case if window.faults else case._replace(only=',severity="critical"')])
        more = judged(window, fired, interval)
        unjust += more[0]
        missed += more[1]
        kinds[window.kind] += 1
        print(f"{number} of {len(windows)}: {window.kind}, every {interval} s", *more[0], *more[1], flush=True)
    print("| what | windows |\n|---|---|")
    print("".join(f"| {kind} | {times} |\n" for kind, times in sorted(kinds.items())), end="")
    print(f"critical alerts that nobody should get: {len(unjust)}")
    print(f"faults heard once and in time: {flags.faults - len(missed)} of {flags.faults}")
    print(f"{time.perf_counter() - begins:.0f} s, {time.process_time() - cpu:.0f} s of them CPU of the simulation")


if __name__ == "__main__":
    main()
