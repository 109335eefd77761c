"""Steps of situations on ports, cards and the services around a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pyrometer_simulator.situations.host import NICS
from pyrometer_simulator.situations.model import Action, Step, at
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


def pause_storm(site: Site) -> None:
    """Let the firmware count a storm of pause frames of an interface, five minutes long."""
    site.node.kernel.count("eth0", "tx_pause_storm_error_events", 0)
    site.node.kernel.count("eth0", "tx_pause_storm_warning_events", 0)
    site.every(60, partial(site.node.kernel.count, "eth0", "tx_pause_storm_warning_events", 1), 5)


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
