"""Faults of ports, cards and the fabric: somebody has to hear, once, and which part it is."""

from __future__ import annotations

from dataclasses import replace

from pyrometer_simulator.situations.host import NICS
from pyrometer_simulator.situations.model import HOUR, MINUTE, Situation, at, within
from pyrometer_simulator.situations.steps import (
    ALL_PORTS,
    AWAY,
    BESIDE_GPUS,
    EXPORTER_OF_OTHERS,
    SMALL,
    cards,
    congestion,
    counting,
    flaps,
    pause_storm,
    port,
    ports,
    roce,
)

SITUATIONS = [
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
        "a link flaps five times, two to four minutes apart",
        steps=tuple(at(seconds, port(3, "flap")) for seconds in (300, 420, 580, 800, 1040)),
        lasts=26 * MINUTE,
        # Two losses of a day are a warning, as long as there is no third. A pause of four minutes ends the alert; what
        # returns within half an hour continues the same message.
        fires={"NicLinkFlapping": within(330, series=1, ends_within=1120, times=3)},
        beside=frozenset({"NicLinkFlappingChronic"}),
    ),
    Situation(
        "a link flaps three times and then stays down",
        steps=(at(300, flaps(3, every=60, times=3)), at(480, port(3, "down"))),
        lasts=18 * MINUTE,
        # The loss that it stays down with is news once more.
        fires={"NicLinkFlapping": within(180, series=1, times=2), "NicLinkDown": within(480, series=1)},
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
        "a port stops its switch with pause frames (a storm)",
        steps=(at(300, pause_storm),),
        lasts=20 * MINUTE,
        hardware=replace(NICS, hcas=0),
        fires={"NicPauseStorm": within(120, series=1)},
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
