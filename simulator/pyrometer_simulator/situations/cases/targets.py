"""Situations of targets that are no nodes of ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyrometer_simulator.situations.host import TRAINING
from pyrometer_simulator.situations.model import MINUTE, Situation, at
from pyrometer_simulator.situations.site import Site


def foreign(name: str, away: Callable[[float], bool], site: Site) -> None:
    """Add a node_exporter of somebody else's whose job is called node, as ours is."""
    text = (
        f'node_boot_time_seconds 1700000000\nnode_uname_info{{nodename="{name}"}} 1\n'
        "process_resident_memory_bytes 900000000000\nprocess_cpu_seconds_total 9000\n"
    ).encode()
    site.serve("node", lambda: None if away(site.now) else text, instance=f"{name}:9100", node=name)


SITUATIONS = [
    Situation(
        "a foreign job called node: two of its targets go, one of them on a node of ours",
        steps=(
            at(-700, partial(foreign, "db-1", lambda now: now > 300)),
            at(-700, partial(foreign, "gpu-001", lambda now: 300 < now < 700)),
            at(-700, partial(foreign, "db-2", lambda _: False)),
        ),
        lasts=20 * MINUTE,
        hardware=TRAINING,
        fault_at=300,
    ),
]
