"""Situations in which ports and nodes do what somebody wants: nobody is to be woken."""

from __future__ import annotations

from dataclasses import replace

from pyrometer_simulator.situations.host import NICS, WHOLE_NODE
from pyrometer_simulator.situations.model import MINUTE, Situation, at
from pyrometer_simulator.situations.steps import (
    AWAY,
    EXPORTER_OF_OTHERS,
    LISTED,
    WITH_STORAGE,
    everything_breaks,
    flaps,
    kubernetes,
    pods_take_virtual_functions,
    port,
    ports,
    slurm,
    switched_off_and_on,
    virtual_functions,
)

SITUATIONS = [
    Situation("nothing happens", steps=(), lasts=15 * MINUTE),
    Situation(
        "the node exporter is restarted", steps=(at(300, lambda site: site.node.stop_exporter()),), lasts=15 * MINUTE
    ),
    Situation(
        "the node exporter crashes",
        steps=(at(300, lambda site: site.node.stop_exporter(crash=True)),),
        lasts=15 * MINUTE,
    ),
    Situation(
        "planned reboot of a node, links are up when the exporter starts",
        steps=(at(300, lambda site: site.reboot(away=150)),),
        lasts=30 * MINUTE,
        beside=AWAY,
        hardware=WHOLE_NODE,
    ),
    Situation(
        "planned reboot of a node, links are down in the first scrape and train with errors",
        steps=(at(300, lambda site: site.reboot(away=150, training=70)),),
        lasts=30 * MINUTE,
        beside=AWAY,
    ),
    Situation(
        "planned reboot of a node, its links come and go for minutes while the switches settle",
        steps=(
            at(300, lambda site: site.reboot(away=120, training=40)),
            at(560, flaps(2, every=70, times=4)),
            at(600, ports((4, 5, 6), "flap")),
        ),
        lasts=25 * MINUTE,
        beside=AWAY,
    ),
    Situation(
        "planned reboot of a node, twice in a row",
        steps=(
            at(300, lambda site: site.reboot(away=100, training=40)),
            at(700, lambda site: site.reboot(away=100, training=40)),
        ),
        lasts=30 * MINUTE,
        beside=AWAY,
    ),
    Situation(
        "a node crashes and comes back",
        steps=(at(300, lambda site: site.reboot(away=240, training=60, crash=True)),),
        lasts=30 * MINUTE,
        beside=AWAY,
    ),
    Situation(
        "a node comes back with a new system disk",
        steps=(
            at(300, lambda site: site.reboot(away=300, training=60)),
            at(310, lambda site: site.node.lose_state()),
        ),
        lasts=30 * MINUTE,
        beside=AWAY,
    ),
    Situation(
        "the driver of the cards is reloaded (openibd)",
        steps=(at(300, lambda site: site.reload_openibd()),),
        lasts=30 * MINUTE,
    ),
    Situation(
        "the driver of the cards stays unloaded for ten minutes",
        steps=(at(300, lambda site: site.reload_openibd(away=600)),),
        lasts=30 * MINUTE,
    ),
    Situation("an administrator disables a port and enables it", steps=(at(300, switched_off_and_on),)),
    Situation(
        "an administrator leaves two ports disabled",
        steps=(at(300, ports((3, 4), "admin_down")),),
        lasts=25 * MINUTE,
    ),
    Situation("one flap of one link", steps=(at(300, port(3, "flap")),), lasts=20 * MINUTE),
    Situation(
        "two storage ports run at 200 Gb/s beside eight at 400 of the same board",
        steps=(at(-1000, port(8, "up", gbps=200)), at(-1000, port(9, "up", gbps=200))),
        lasts=15 * MINUTE,
        hardware=WITH_STORAGE,
        fault_at=0,
    ),
    Situation(
        "four of eight ports were never cabled",
        steps=(at(-1000, ports((4, 5, 6, 7), "train")),),
        lasts=25 * MINUTE,
        fault_at=0,
    ),
    Situation(
        "pods take virtual functions away and give them back",
        steps=(
            at(-1000, virtual_functions),
            at(300, pods_take_virtual_functions),
        ),
        lasts=20 * MINUTE,
        fault_at=300,
    ),
    Situation(
        "the inner ends of virtual functions, called eth0, come and go",
        steps=(
            at(-1000, lambda site: (site.node.tree.interface("eth0").folder / "phys_port_name").write_text("pf0vf3\n")),
            at(300, lambda site: site.every(40, site.node.tree.interface("eth0").flap, 6)),
            at(560, lambda site: site.node.tree.interface("eth0").down()),
        ),
        lasts=20 * MINUTE,
        hardware=replace(NICS, hcas=2),
        fault_at=300,
    ),
    Situation(
        "a card is renamed",
        steps=(at(300, lambda site: site.node.tree.rename("mlx5_3", "mlx5_rail3")),),
        lasts=15 * MINUTE,
    ),
    Situation(
        "a node that Slurm has drained is repaired: links, cards and the node go",
        steps=(at(240, slurm("drained")), *everything_breaks()),
        lasts=25 * MINUTE,
        beside=AWAY | LISTED,
    ),
    Situation(
        "a node that Kubernetes has cordoned is repaired: links, cards and the node go",
        steps=(at(240, kubernetes), *everything_breaks()),
        lasts=25 * MINUTE,
        beside=AWAY | LISTED,
    ),
    Situation(
        "a node with a maintenance file is repaired: links, cards and the node go",
        steps=(at(240, lambda site: site.node.put_in_maintenance()), *everything_breaks()),
        lasts=25 * MINUTE,
        beside=AWAY | LISTED,
    ),
    Situation(
        "node_exporter only: a node is rebooted",
        steps=(at(300, lambda site: site.reboot(away=120, training=60)),),
        lasts=25 * MINUTE,
        hardware=EXPORTER_OF_OTHERS,
    ),
    Situation(
        "node_exporter only: an administrator disables a port",
        steps=(at(300, port(1, "admin_down")),),
        lasts=15 * MINUTE,
        hardware=EXPORTER_OF_OTHERS,
    ),
]
