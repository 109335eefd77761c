"""Red herrings: what a real cluster has beside every incident, and what has nothing to do with it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pyrometer_simulator.incidents.cluster import Gpu
from pyrometer_simulator.incidents.world import World


def add_herrings(world: World) -> list[str]:
    """Add two to four of them at random and return their names."""
    every: list[Callable[[World], None]] = [
        _stranger_throttles, _stranger_flaps, _old_xid, _blip_of_heat, _old_flap, _corrected_errors, _uneven_power,
        _structural_slack, _busy_host, _stranger_lost, _warm_but_well,
    ]  # fmt: skip
    count = int(world.random.integers(2, 5))
    chosen = [every[place] for place in world.random.choice(len(every), count, replace=False)]
    for plant in chosen:
        plant(world)
    return [plant.__name__.strip("_") for plant in chosen]


def _stranger_throttles(world: World) -> None:
    """Overheat a GPU of a node that the run does not use, at the same time."""
    node = world.stranger()
    if node is not None:
        begin = world.at + float(world.random.uniform(-300, 60))
        world.throttle([Gpu(node, 2)], ("sw_thermal",), [(begin, world.end)], clock=1350, celsius=88)


def _stranger_flaps(world: World) -> None:
    """Let a link of another job's node flap."""
    node = world.stranger()
    if node is not None:
        begin = world.at + float(world.random.uniform(-120, 60))
        world.flap(node, world.port(), [begin + 40.0 * each for each in range(4)], 3.0)


def _stranger_lost(world: World) -> None:
    """Lose a GPU of a node that the run does not use, long before."""
    node = world.stranger()
    if node is not None:
        world.xid(Gpu(node, 5), "79", "critical", world.begin - 9000)


def _old_xid(world: World) -> None:
    """Have Xids of class app on one of the run's GPUs from earlier, and one of class warning ten minutes ago."""
    gpu = world.gpu()
    world.xid(gpu, "31", "app", world.begin - 5000, 2)
    world.xid(world.gpu(), "63", "warning", world.at - float(world.random.uniform(500, 700)))


def _blip_of_heat(world: World) -> None:
    """Throttle a GPU of the run for a second or two, without any effect."""
    gpu = world.gpu()
    begin = world.at + float(world.random.uniform(-240, 240))
    world.throttle([gpu], ("sw_thermal",), [(begin, begin + float(world.random.uniform(0.7, 1.8)))])


def _old_flap(world: World) -> None:
    """Let a link of the run go down once, long before, without any effect."""
    world.flap(world.node(), world.port(), [world.at - float(world.random.uniform(300, 700))], 1.0)


def _corrected_errors(world: World) -> None:
    """Report a corrected PCIe error from a node of the run some minutes before."""
    world.event(world.node(), "pcie_aer", world.at - float(world.random.uniform(200, 700)))


def _uneven_power(world: World) -> None:
    """Hold some GPUs by the power cap more than others, always."""
    held = world.held["power_cap"]
    for gpu in {world.gpu() for _ in range(3)}:
        held[:, gpu.node, gpu.gpu] += 0.2 * (world.times[:, gpu.node] - world.begin)


def _structural_slack(world: World) -> None:
    """Let one rank have always had a little more to do than its peers: it waits less, before and after."""
    gpu = world.gpu()
    seconds = 0.035 * world.layout.step
    world.slow([gpu], seconds, begin=0.0)


def _busy_host(world: World) -> None:
    """Let a node's tasks wait for the CPU a little more from some time on."""
    world.press(world.node(), "cpu", 0.05, world.at - float(world.random.uniform(-300, 600)))


def _warm_but_well(world: World) -> None:
    """Have a GPU that is warmer than the others and keeps its clock."""
    gpu = world.gpu()
    world.celsius[:, gpu.node, gpu.gpu] = 79 + np.round(world.random.standard_normal(len(world.grid)))
