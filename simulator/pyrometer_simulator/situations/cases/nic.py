"""Situations of ports, links and fabric: what is planned on a node, and what breaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pyrometer_simulator.situations.host import NICS, WHOLE_NODE
from pyrometer_simulator.situations.model import HOUR, MINUTE, Action, Situation, Step, at, within
from pyrometer_simulator.situations.site import Site

# A node that is away without a word is told once, as a warning; only what its ports say is the subject here.
AWAY = frozenset({"NodeExporterDown"})
LISTED = frozenset({"NodeInMaintenance"})
EXPORTER_OF_OTHERS = replace(NICS, hcas=2, node_exporter=True, ours=False)
BESIDE_GPUS = replace(NICS, gpus=8)
WITH_STORAGE = replace(NICS, hcas=10, gpus=8)
SMALL = replace(NICS, hcas=1, ethernet=0)
ALL_PORTS = range(8)


def port(index: int, act: str, **settings: object) -> Action:
    """Return a step on an HCA of the first node, by the name of its method."""
    return lambda site: getattr(site.node.tree.nic(f"mlx5_{index}"), act)(**settings)


def ports(indices: Sequence[int], act: str) -> Action:
    """Return the same step on several HCAs."""
    return lambda site: [getattr(site.node.tree.nic(f"mlx5_{index}"), act)() for index in indices]


def counting(index: int, counter: str, by: int, *, every: float, times: int) -> Action:
    """Return a step after which a counter of an HCA goes on rising."""
    return lambda site: site.every(every, partial(site.node.tree.nic(f"mlx5_{index}").count, counter, by), times)


def flaps(index: int, *, every: float, times: int) -> Action:
    """Return a step after which a link is lost again and again."""
    return lambda site: site.every(every, site.node.tree.nic(f"mlx5_{index}").flap, times)


def cards(indices: Sequence[int], act: str) -> Action:
    """Return a step on the bus: cards fall off it (``lose``) or come back (``find``)."""
    return lambda site: [getattr(site.node.tree, act)(f"mlx5_{index}") for index in indices]


def slurm(state: str) -> Action:
    """Return a step after which Slurm has the node in a state."""
    line = f'pyrometer_slurm_node_unavailable_info{{node="gpu-001",state="{state}",reason="riser",user="ops"}} 1\n'
    return lambda site: site.serve("cluster", line.encode)


def roce(site: Site) -> None:
    """Give all HCAs the counters that they have where the link layer is Ethernet."""
    for node in site.nodes:
        for nic in node.tree.nics:
            for name in ("rp_cnp_handled", "np_ecn_marked_roce_packets"):
                nic.hw_counters.set(name, 0)


def congestion(site: Site) -> None:
    """Let one port of the first node be throttled far more often than those of the others."""
    for node in site.nodes:
        by = 30000 if node is site.node else 90
        site.every(10, partial(node.tree.nic("mlx5_1").count, "rp_cnp_handled", by), 90)


def virtual_functions(site: Site) -> None:
    """Make two of the devices virtual functions."""
    for name in ("mlx5_6", "mlx5_7"):
        site.node.tree.make_virtual(name)


def kubernetes(site: Site) -> None:
    """Cordon the node, as kube-state-metrics shows it."""
    site.serve("kube-state-metrics", 'kube_node_spec_unschedulable{node="gpu-001"} 1\n'.encode)


def everything_breaks() -> tuple[Step, ...]:
    """Return what a repair looks like from outside: links, cards and the node itself go."""
    return (
        at(300, ports(ALL_PORTS, "down")),
        at(420, cards((1, 2), "lose")),
        at(700, lambda site: site.reboot(away=200, training=60)),
    )


def switched_off_and_on(site: Site) -> None:
    """Disable a port for two minutes, as ``ibportstate`` does; it trains with errors."""
    nic = site.node.tree.nic("mlx5_3")
    nic.admin_down()
    site.after(120, nic.train)
    site.after(150, partial(nic.count, "symbol_error", 80))
    site.after(150, nic.up)


def pods_take_virtual_functions(site: Site) -> None:
    """Take two virtual functions away for five minutes; their links go down with them."""
    for name in ("mlx5_6", "mlx5_7"):
        site.node.tree.nic(name).down()
        site.after(30, partial(site.node.tree.unplug, name))
        site.after(300, partial(site.node.tree.plug, name))


SILENT = [
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

LOUD = [
    Situation(
        "a cable is pulled",
        steps=(at(300, port(3, "down")),),
        lasts=15 * MINUTE,
        fires={"NicLinkDown": within(300, not_before=240, series=1)},
    ),
    Situation(
        "a link does not come back after a reboot",
        steps=(at(300, lambda site: site.reboot(away=100, training=40)), at(445, port(3, "train"))),
        lasts=30 * MINUTE,
        fires={"NicLinkDown": within(1300, series=1)},
        beside=AWAY,
    ),
    Situation(
        "a link flaps three times in three minutes",
        steps=(at(300, flaps(3, every=60, times=3)),),
        lasts=15 * MINUTE,
        fires={"NicLinkFlapping": within(180, series=1, ends_within=360)},
    ),
    Situation(
        "a link flaps right after a driver reload has settled",
        steps=(at(300, lambda site: site.reload_openibd()), at(600, flaps(3, every=60, times=3))),
        lasts=20 * MINUTE,
        fires={"NicLinkFlapping": within(480, series=1)},
    ),
    Situation(
        "a planned reboot, and hours later two losses of one link",
        steps=(
            at(300, lambda site: site.reboot(away=100, training=60)),
            at(3600, port(0, "flap")),
            at(6000, port(0, "flap")),
        ),
        lasts=1.8 * HOUR,
        hardware=SMALL,
        fires={"NicLinkFlappingChronic": within(300, not_before=60, series=1)},
        beside=AWAY,
        fault_at=6000,
    ),
    Situation(
        "24 losses in two hours, five minutes apart",
        steps=(at(300, flaps(0, every=300, times=24)),),
        lasts=2.1 * HOUR,
        hardware=SMALL,
        fires={"NicLinkFlappingChronic": within(600, series=2)},
    ),
    Situation(
        "one dead link beside two that flap",
        steps=(
            at(300, flaps(1, every=62, times=8)),
            at(331, flaps(2, every=62, times=8)),
            at(440, port(3, "down")),
        ),
        lasts=15 * MINUTE,
        fires={"NicLinkFlapping": within(240, series=2), "NicLinkDown": within(480, series=1)},
    ),
    Situation(
        "all links of a node go at once",
        steps=(at(300, ports(ALL_PORTS, "down")), at(900, ports(ALL_PORTS, "up"))),
        lasts=20 * MINUTE,
        fires={"FabricMassEvent": within(45, series=1, ends_within=780)},
    ),
    Situation(
        "a card falls off the bus",
        steps=(at(300, cards((3,), "lose")),),
        lasts=15 * MINUTE,
        fires={"NicLost": within(200, series=1)},
    ),
    Situation(
        "four of eight cards fall off the bus",
        steps=(at(300, cards((0, 1, 2, 3), "lose")), at(1000, cards((0, 1, 2, 3), "find"))),
        lasts=25 * MINUTE,
        fires={"NicLost": within(200, series=4, ends_within=760)},
    ),
    Situation(
        "a card is gone after a reboot",
        steps=(at(300, lambda site: site.reboot(away=100, training=40)), at(350, cards((3,), "lose"))),
        lasts=30 * MINUTE,
        fires={"NicLost": within(1300, series=1)},
        beside=AWAY,
    ),
    Situation(
        "the files of a card give nothing any more",
        steps=(at(300, lambda site: site.node.tree.break_files("mlx5_3")),),
        lasts=15 * MINUTE,
        fires={"NicNotAnswering": within(200, series=1)},
    ),
    Situation(
        "a new node with two of eight cables missing",
        steps=(at(-1000, ports((2, 6), "train")),),
        lasts=25 * MINUTE,
        fires={"NicLinkDown": within(1300, series=2)},
        hardware=BESIDE_GPUS,
        fault_at=0,
    ),
    Situation(
        "a new node with five of eight links at half rate",
        steps=tuple(at(-1000, port(index, "up", gbps=200)) for index in range(5)),
        lasts=15 * MINUTE,
        fires={"NicLinkDegraded": within(450, series=5)},
        hardware=BESIDE_GPUS,
        fault_at=0,
    ),
    Situation(
        "a link trains at half its rate",
        steps=(at(300, port(3, "down")), at(305, port(3, "up", gbps=200))),
        lasts=15 * MINUTE,
        fires={"NicLinkDegraded": within(400, series=1)},
    ),
    Situation(
        "a cable with symbol errors",
        steps=(at(300, counting(3, "symbol_error", 2, every=20, times=40)),),
        lasts=20 * MINUTE,
        fires={"NicSymbolErrors": within(120, series=1)},
    ),
    Situation(
        "a link recovers every ten seconds",
        steps=(at(300, counting(3, "link_error_recovery", 1, every=10, times=60)),),
        lasts=15 * MINUTE,
        fires={"NicLinkRecoveries": within(180, series=1)},
    ),
    Situation(
        "packets are sent again for want of an answer",
        steps=(at(300, counting(3, "local_ack_timeout_err", 50, every=10, times=60)),),
        lasts=15 * MINUTE,
        fires={"NicAckTimeouts": within(240, series=1)},
    ),
    Situation(
        "a port receives broken packets",
        steps=(at(300, counting(3, "port_rcv_errors", 400, every=10, times=60)),),
        lasts=15 * MINUTE,
        fires={"NicReceiveErrors": within(240, series=1)},
    ),
    Situation(
        "a module is too hot",
        steps=(at(-1000, port(3, "heat", celsius=55.0)), at(300, port(3, "heat", celsius=74.0))),
        lasts=15 * MINUTE,
        fires={"NicModuleHot": within(460, series=1)},
        fault_at=300,
    ),
    Situation(
        "one port of four nodes is congested",
        steps=(
            at(-1000, roce),
            at(60, congestion),
        ),
        lasts=15 * MINUTE,
        nodes=4,
        hardware=replace(NICS, hcas=2),
        fires={"NicCongested": within(660, series=1)},
        fault_at=60,
    ),
    Situation(
        "node_exporter only: one cable flaps, InfiniBand port and interface",
        steps=(at(300, flaps(1, every=50, times=4)),),
        lasts=15 * MINUTE,
        hardware=EXPORTER_OF_OTHERS,
        fires={"NodeExporterNicFlapping": within(240, series=1)},
    ),
    Situation(
        "node_exporter only: a cable is pulled",
        steps=(at(300, port(1, "down")),),
        lasts=15 * MINUTE,
        hardware=EXPORTER_OF_OTHERS,
        fires={"NodeExporterNicLinkDown": within(300, series=1)},
    ),
    Situation(
        "a leaf's 32 ports go at 511 nodes, without UFM",
        steps=(at(120, port(0, "down")), at(420, port(0, "up"))),
        lasts=11 * MINUTE,
        nodes=2,
        copies={0: 31, 1: 478},
        hardware=SMALL,
        fires={"FabricMassEvent": within(60, series=1, ends_within=500)},
    ),
]

SITUATIONS = [*SILENT, *LOUD]
