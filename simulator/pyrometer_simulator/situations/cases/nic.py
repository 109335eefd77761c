"""Situations of ports, links and fabric, and of what is planned on a node."""

from __future__ import annotations

from pyrometer_simulator.situations.model import MINUTE, Situation, at, within

# A node that is away without a word is told once, as a warning; only what its ports say is the subject here.
AWAY = frozenset({"NodeExporterDown"})

SITUATIONS = [
    Situation(
        "nothing happens",
        steps=(),
        lasts=15 * MINUTE,
    ),
    Situation(
        "the node exporter is restarted",
        steps=(at(300, lambda site: site.node.stop_exporter()),),
        lasts=15 * MINUTE,
    ),
    Situation(
        "a cable is pulled",
        steps=(at(300, lambda site: site.node.tree.nic("mlx5_3").down()),),
        lasts=20 * MINUTE,
        fires={"NicLinkDown": within(300, not_before=240, series=1)},
    ),
    Situation(
        "a link flaps three times in three minutes",
        steps=(at(300, lambda site: site.every(60, site.node.tree.nic("mlx5_3").flap, 3)),),
        lasts=20 * MINUTE,
        fires={"NicLinkFlapping": within(180, series=1, ends_within=360)},
    ),
]
