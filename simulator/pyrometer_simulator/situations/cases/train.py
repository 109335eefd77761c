"""Situations of training runs: ends and pauses that are planned, and runs that die, hang or lose their way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyrometer_simulator.situations.host import TRAINING
from pyrometer_simulator.situations.model import MINUTE, Action, Situation, at, within
from pyrometer_simulator.situations.site import Site
from pyrometer_simulator.situations.steps import AWAY, LISTED

# Ten minutes before the first scrape: a run's usual step is known after ten, and its averages after minutes.
BEGIN = -600.0
NOT_A_NUMBER = math.nan


def of_run(name: str, *happens: tuple[float, Action], begin: Action | None = None, **settings: Any) -> Situation:  # noqa: ANN401  those of a situation
    """Return a situation of a run on two nodes that has trained for ten minutes."""
    steps = [at(BEGIN, begin or (lambda site: site.train())), *(at(seconds, act) for seconds, act in happens)]
    defaults: dict[str, Any] = {"lasts": 15 * MINUTE, "hardware": TRAINING, "nodes": 2, "fault_at": 300.0}
    return Situation(name, steps, **{**defaults, **settings})


def restart(after: float, nodes: slice = slice(None)) -> Action:
    """Return a step that ends all ranks and begins the next attempt so many seconds later, as a launcher does."""

    def act(site: Site) -> None:
        site.run.kill_all()
        site.after(after, lambda: site.train(site.nodes[nodes], attempt=1))

    return act


def elastic(site: Site) -> None:
    """Lose a node; half a minute later the run continues without it."""
    lost = site.nodes[1]
    lost.shut_down(crash=True)
    site.run.lose(lost)
    site.after(8, site.run.kill_all)
    site.after(38, lambda: site.train(site.nodes[:1], attempt=1))


def crash_of_a_node(site: Site) -> None:
    """Lose a node that comes back after five minutes, without its ranks."""
    lost = site.nodes[1]
    site.run.lose(lost)
    site.reboot(lost, away=300, crash=True)


def killed_for_memory(site: Site) -> None:
    """Let the kernel kill a rank; the launcher ends the others."""
    site.nodes[1].log.oom_kill(4711, "python")
    site.run.kill(11, rest_after=6)


def drained(site: Site, state: str = "drained") -> None:
    """Drain both nodes in Slurm."""
    lines = "".join(
        f'pyrometer_slurm_node_unavailable_info{{node="{node.name}",state="{state}",reason="driver",user="ops"}} 1\n'
        for node in site.nodes
    )
    site.serve("cluster", lines.encode)


def draining(site: Site) -> None:
    """Let Slurm drain both nodes once their jobs have ended."""
    drained(site, "draining")


def upgraded(site: Site) -> None:
    """Reboot both nodes for a new driver, twice."""
    for node in site.nodes:
        site.reboot(node, away=200)
        site.after(500, lambda node=node: site.reboot(node, away=200))  # type: ignore[misc]


def falling(step: int) -> float:
    """Return the loss of a run that learns."""
    return 2 + 8 / (1 + step)


def pipeline(loss: Callable[[int], float] = falling) -> Action:
    """Return a step that begins a run of four pipeline stages, of which the last has the loss."""
    return lambda site: site.train(stages=4, loss=loss)


def not_a_number_from(step: int, until: int = 1 << 30) -> Callable[[int], float]:
    """Return the loss of a run that is no number in these steps."""
    return lambda number: NOT_A_NUMBER if step <= number < until else 2.0


def after(action: Callable[[Site], object]) -> Sequence[tuple[float, Action]]:
    """Return one step at the usual time."""
    return [(300.0, action)]


# The last batch before the fault: the run began ten minutes before the first scrape, with five seconds a batch.
LAST_GOOD_STEP = 180

SITUATIONS = [
    of_run("a run trains"),
    of_run("a run of four pipeline stages trains", begin=pipeline()),
    of_run("a run ends well", *after(lambda site: site.run.end())),
    of_run(
        "a run ends well and another begins",
        (300, lambda site: site.run.end()),
        (420, lambda site: site.train(name="b")),
    ),
    of_run("a launcher restarts a run in 45 seconds", *after(restart(45))),
    of_run("a checkpoint of three minutes", *after(lambda site: site.run.pause("checkpoint", 180))),
    of_run("an evaluation of twelve minutes", *after(lambda site: site.run.pause("eval", 720)), lasts=25 * MINUTE),
    of_run(
        "a run begins, and compiles for eight minutes before its first batch",
        begin=lambda site: site.after(900, lambda: site.train(step=480)),
        lasts=20 * MINUTE,
    ),
    of_run("an elastic run loses a node and continues without it", *after(elastic), beside=AWAY),
    of_run(
        "the loss of one batch is not a number",
        begin=pipeline(not_a_number_from(LAST_GOOD_STEP + 1, LAST_GOOD_STEP + 2)),
    ),
    of_run(
        "driver upgrade of two drained nodes whose run has ended",
        (240, lambda site: site.run.end()),
        (270, drained),
        (300, upgraded),
        (1500, lambda site: site.train(name="next")),
        lasts=35 * MINUTE,
        beside=AWAY | LISTED,
        hardware=replace(TRAINING, hcas=2, gpus=2, collectors=("gpu", "nic", "kernel", "train", "maintenance")),
    ),
    of_run(
        "a node in maintenance is rebooted beside a run on two others",
        (240, lambda site: site.nodes[2].put_in_maintenance()),
        (300, lambda site: site.reboot(site.nodes[2], away=300)),
        begin=lambda site: site.train(site.nodes[:2]),
        nodes=3,
        beside=LISTED,
    ),
    of_run(
        "a rank hangs on a node that Slurm is draining: its job is somebody's still",
        (240, draining),
        (300, lambda site: site.run.hang(11)),
        fires={"TrainStalled": within(330, series=1, named=("11", "gpu-002"))},
    ),
    of_run(
        "all ranks of a run die at once",
        *after(lambda site: site.run.kill_all()),
        fires={"TrainRunDied": within(120, series=1)},
    ),
    of_run(
        "one rank of a run dies of an exception, and the launcher ends the rest",
        *after(lambda site: site.run.kill(11, "torch.OutOfMemoryError", rest_after=5)),
        fires={"TrainRunDied": within(120, series=1, named=("11", "gpu-002"))},
    ),
    of_run(
        "the kernel kills a rank for lack of memory, and the launcher ends the rest",
        *after(killed_for_memory),
        fires={"TrainRunDied": within(120, series=1, named=("11", "gpu-002")), "HostOutOfMemory": within(60, series=1)},
    ),
    of_run(
        "a run dies and comes back after five minutes",
        *after(restart(300)),
        fires={"TrainRunDied": within(120, ends_within=360, series=1)},
    ),
    of_run(
        "a run dies and is away for half an hour",
        *after(restart(1800)),
        lasts=45 * MINUTE,
        fires={"TrainRunDied": within(120, not_before=30, ends_within=1860, series=1)},
    ),
    of_run(
        "one rank of a run dies, and nobody ends the others",
        *after(lambda site: site.run.kill(11)),
        fires={"TrainStalled": within(330, series=1, named=("11", "gpu-002"))},
    ),
    of_run(
        "a rank hangs for 50 minutes: the alert keeps its name",
        *after(lambda site: site.run.hang(11)),
        lasts=55 * MINUTE,
        fires={"TrainStalled": within(330, series=1, named=("11", "gpu-002"))},
    ),
    of_run(
        "a node of a run crashes and comes back after five minutes",
        *after(crash_of_a_node),
        lasts=30 * MINUTE,
        fires={"TrainStalled": within(330, series=1, named=("gpu-002",))},
        beside=AWAY,
    ),
    of_run(
        "a run never gets to its first batch",
        begin=lambda site: site.after(900, lambda: site.train(step=36000)),
        lasts=40 * MINUTE,
        fires={"TrainStalled": within(1860, not_before=1700, series=1)},
    ),
    of_run(
        "the loss of a run is not a number any more",
        begin=lambda site: site.train(loss=not_a_number_from(LAST_GOOD_STEP + 1)),
        fires={"TrainLossNotFinite": within(120, series=1)},
    ),
    of_run(
        "the loss of a pipeline, which only its last stage has, is not a number any more",
        begin=pipeline(not_a_number_from(LAST_GOOD_STEP + 1)),
        fires={"TrainLossNotFinite": within(120, series=1)},
    ),
]
