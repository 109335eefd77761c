"""Situations of everyday work on cables, GPUs, clocks and exporters, and of a rail that lacks a card."""

from __future__ import annotations

from pyrometer_simulator.situations.host import TRAINING
from pyrometer_simulator.situations.model import MINUTE, Action, Situation, at, within
from pyrometer_simulator.situations.site import Site
from pyrometer_simulator.situations.steps import AWAY, BESIDE_GPUS, cards, port
from pyrometer_simulator.situations.steps_gpu import TWO_GPUS, UNKNOWN_ERROR, gpu, gpus_of


def restart_all_exporters(site: Site) -> None:
    """Restart the exporters of all nodes, as an upgrade of their package does."""
    for node in site.nodes:
        node.stop_exporter()


def reset_gpu(site: Site) -> None:
    """Reset an idle GPU as ``nvidia-smi --gpu-reset`` does: away for 12 s, its NVLinks train for 15 s more."""
    first = next(gpus_of(site.node))
    first.fail(UNKNOWN_ERROR)

    def back() -> None:
        first.recover()
        first.reset_counters()
        first.set(nvlinks_down=list(range(18)))
        site.after(15, lambda: first.set(nvlinks_down=None))

    site.after(12, back)


def clock_jumps(seconds: float) -> Action:
    """Return a step in which the wall clock of the first node is set ahead by so many seconds (less than 0: back)."""

    def jump(site: Site) -> None:
        site.node.clock.ahead += seconds

    return jump


def exchange_gpu(site: Site) -> None:
    """Shut the node down for 15 minutes; meanwhile another card takes the place of the first GPU."""
    site.reboot(away=900)
    site.after(600, next(gpus_of(site.node)).exchange)


SITUATIONS = [
    Situation(
        "a healthy GPU is exchanged for another, with the node off for a quarter of an hour",
        steps=(at(300, exchange_gpu),),
        lasts=30 * MINUTE,
        hardware=TWO_GPUS,
        beside=AWAY,
    ),
    Situation(
        "a GPU that has to be replaced is replaced: its alerts end with it",
        steps=(at(300, gpu(0, "set", sram_exceeded=1)), at(900, exchange_gpu)),
        lasts=45 * MINUTE,
        hardware=TWO_GPUS,
        fires={"GpuReplacementDue": within(240, series=1, ends_within=1500)},
        beside=AWAY,
    ),
    Situation(
        "two cables are swapped within three minutes",
        steps=(at(300, port(3, "down")), at(330, port(4, "down")), at(420, port(3, "up")), at(450, port(4, "up"))),
        lasts=25 * MINUTE,
    ),
    Situation(
        "an idle GPU is reset",
        steps=(at(300, reset_gpu),),
        lasts=15 * MINUTE,
        hardware=TWO_GPUS,
    ),
    Situation(
        "the exporters of all nodes are restarted at once",
        steps=(at(300, restart_all_exporters),),
        lasts=15 * MINUTE,
        nodes=4,
    ),
    Situation(
        "a node's clock was five minutes slow and is set right while it trains",
        steps=(
            at(-700, clock_jumps(-300)),
            at(-600, lambda site: site.train()),
            at(300, clock_jumps(300)),
        ),
        lasts=20 * MINUTE,
        hardware=TRAINING,
        nodes=2,
        fault_at=300,
    ),
    Situation(
        "five nodes that lack a card lose their link of one rail: the rail keeps its name",
        steps=(at(-1000, cards((0,), "lose")), at(600, port(3, "down"))),
        lasts=20 * MINUTE,
        hardware=BESIDE_GPUS,
        nodes=2,
        copies={0: 4},
        fault_at=600,
        fires={"FabricMassEvent": within(60, series=1, named=("mlx5_3/1",))},
        beside=frozenset({"NicLost"}),
    ),
]
