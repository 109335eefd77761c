"""Play a month of a cluster's planned life, and of its faults, and count who was woken for nothing and who was not.

Run: .venv/bin/python benchmarks/bench_month.py [--planned 200] [--faults 100] [--seed 1]

Nodes are rebooted, have their driver reloaded, a port switched off and on, a card renamed, or are drained and
repaired, each with its own durations; ``--planned`` of these events are drawn at random and played, as are
``--faults`` faults. Each is played alone, in full, by the real collectors on a virtual clock, in a window around it
(12 to 35 minutes, at a scrape interval of 5, 15 or 30 s, drawn as well), and judged by the real rules. Between events
nothing of a node changes, so that hours without any are left out. Nothing happens on several nodes at once but two
losses of power, which take 32 of 64 nodes away at the same moment.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable

from pyrometer_simulator.situations import steps as nic
from pyrometer_simulator.situations.model import MINUTE, SCRAPE_INTERVALS, Situation, at, within
from pyrometer_simulator.situations.outcome import Outcome, outcomes
from pyrometer_simulator.stack import find_stack

TOGETHER = 10
Draw = Callable[[random.Random], Situation]


def reboot(chance: random.Random) -> Situation:
    away, training, when = chance.uniform(60, 400), chance.uniform(0, 200), 300 + chance.uniform(0, 60)
    steps = (at(when, lambda site: site.reboot(away=away, training=training)),)
    return Situation("reboot", steps, 35 * MINUTE, beside=nic.AWAY)


def upgrade(chance: random.Random) -> Situation:
    away, training, when = chance.uniform(5, 300), chance.uniform(10, 120), 300 + chance.uniform(0, 60)
    steps = (at(when, lambda site: site.reload_openibd(away=away, training=training)),)
    return Situation("driver upgrade", steps, 25 * MINUTE)


def drain(chance: random.Random) -> Situation:
    shift = chance.uniform(0, 60)
    steps = tuple(at(step.seconds + shift, step.action) for step in nic.everything_breaks())
    drained = at(240 + shift - chance.uniform(0, 60), nic.slurm("drained"))
    return Situation("drain and repair", (drained, *steps), 25 * MINUTE, beside=nic.AWAY | nic.LISTED)


def relabel(chance: random.Random) -> Situation:
    number = chance.randrange(8)
    steps = (at(300, lambda site: site.node.tree.rename(f"mlx5_{number}", f"rail{number}")),)
    return Situation("relabelling", steps, 20 * MINUTE)


def switch_off(chance: random.Random) -> Situation:
    return Situation("port off and on", (at(300 + chance.uniform(0, 60), nic.switched_off_and_on),), 25 * MINUTE)


def power(chance: random.Random) -> Situation:
    away, training = chance.uniform(200, 600), chance.uniform(20, 200)
    steps = (at(300, lambda site: site.reboot(away=away, training=training, crash=True)),)
    return Situation(
        "power event", steps, 35 * MINUTE, beside=nic.AWAY, nodes=2, copies={0: 31, 1: 31}, hardware=nic.SMALL
    )


PLANNED: tuple[tuple[Draw, int], ...] = ((reboot, 4), (upgrade, 3), (drain, 2), (relabel, 1), (switch_off, 1))


def fault(chance: random.Random) -> Situation:
    number, when = chance.randrange(8), 300 + chance.uniform(0, 60)
    every = chance.uniform(40, 100)
    steps, lasts, name, limit = chance.choice(
        [
            (nic.port(number, "down"), 15, "NicLinkDown", 330),
            (nic.flaps(number, every=every, times=4), 15, "NicLinkFlapping", 330),
            (nic.cards((number,), "lose"), 12, "NicLost", 220),
            (nic.ports(nic.ALL_PORTS, "down"), 12, "FabricMassEvent", 70),
            (nic.counting(number, "symbol_error", 3, every=20, times=40), 20, "NicSymbolErrors", 200),
            (nic.counting(number, "local_ack_timeout_err", 60, every=10, times=60), 15, "NicAckTimeouts", 300),
            (nic.counting(number, "port_rcv_errors", 500, every=10, times=60), 15, "NicReceiveErrors", 300),
            (nic.counting(number, "link_error_recovery", 1, every=8, times=60), 15, "NicLinkRecoveries", 240),
        ]
    )
    return Situation(f"fault: {name}", (at(when, steps),), lasts * MINUTE, {name: within(limit, series=1)})


def drawn(flags: argparse.Namespace) -> list[tuple[Situation, int]]:
    """Return the events to play, each with its scrape interval."""
    chance = random.Random(flags.seed)
    kinds, weights = zip(*PLANNED, strict=True)
    events = [draw(chance) for draw in chance.choices(kinds, weights, k=flags.planned - 2)]
    events += [power(chance), power(chance)] + [fault(chance) for _ in range(flags.faults)]
    return [(event, chance.choice(SCRAPE_INTERVALS)) for event in events]


def played(events: list[tuple[Situation, int]]) -> list[Outcome]:
    promtool = find_stack(print).promtool
    found: list[Outcome] = []
    for interval in SCRAPE_INTERVALS:
        own = [event for event, each in events if each == interval]
        for start in range(0, len(own), TOGETHER):
            found += outcomes(promtool, own[start : start + TOGETHER], [interval])
            print(f"{len(found)} of {len(events)}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--planned", type=int, default=200, help="planned events that are played")
    parser.add_argument("--faults", type=int, default=100, help="faults that are played")
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    begins = time.perf_counter()
    found = played(drawn(flags))
    unjust = heard = 0
    for outcome in found:
        for objection in outcome.objections():
            print(f"{outcome.situation.name}, every {outcome.interval} s: {objection}")
        if outcome.situation.silent:
            extra = [each for each in outcome.fired if each.severity == "critical"]
            unjust += len(extra)
        else:
            heard += not list(outcome.objections())
    kinds = Counter(outcome.situation.name for outcome in found)
    print("| event | played |\n|---|---|")
    print("".join(f"| {name} | {times} |\n" for name, times in sorted(kinds.items())), end="")
    print(f"unjust critical alerts: {unjust}; faults heard once and in time: {heard} of {flags.faults}")
    print(f"{time.perf_counter() - begins:.0f} s")


if __name__ == "__main__":
    main()
