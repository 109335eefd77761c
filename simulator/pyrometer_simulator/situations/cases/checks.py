"""Situations of a node's fitness: what only its own checks can know."""

from __future__ import annotations

from dataclasses import replace

from pyrometer_exporters.node.active import kept
from pyrometer_simulator.situations.host import NICS
from pyrometer_simulator.situations.model import MINUTE, Action, Situation, at, within
from pyrometer_simulator.situations.site import Site
from pyrometer_simulator.situations.steps import LISTED

TESTED = replace(NICS, collectors=("nic", "kernel", "maintenance", "active"))
CHECKED = replace(NICS, collectors=("nic", "kernel", "maintenance", "checks"), expect="{hcas: 8, rate: 400e9}")
DAY = 24 * 60 * MINUTE
BOOTED = replace(NICS, hcas=1, node_exporter=True)
BOOTS = (5 * MINUTE, 20 * MINUTE, 35 * MINUTE)


def never_plugged_in(*names: str) -> Action:
    """Return a step after which these HCAs have never had a link."""

    def step(site: Site) -> None:
        for name in names:
            site.node.tree.nic(name).train()

    return step


def plugged_in(*names: str) -> Action:
    """Return a step that gives these HCAs their link."""

    def step(site: Site) -> None:
        for name in names:
            site.node.tree.nic(name).up()

    return step


def at_rate(gbps: int) -> Action:
    """Return a step after which all links run at this rate."""

    def step(site: Site) -> None:
        for nic in site.node.tree.nics:
            nic.up(gbps)

    return step


def boot_all(site: Site) -> None:
    """Reboot every node."""
    for node in site.nodes:
        site.reboot(node, away=60)


def tested(*, ok: bool) -> Action:
    """Return a step after which ``pyrometer-test`` has left this result of NCCL."""

    def step(site: Site) -> None:
        kept.save(
            site.node.state,
            {
                ("nccl", ""): kept.Tried(
                    kept.OK if ok else kept.FAILED, "" if ok else "nccl_all_reduce is 302.1 GB/s", site.now
                )
            },
        )

    return step


SITUATIONS = [
    Situation(
        "a checked node is well",
        steps=(at(0, lambda _site: None),),
        lasts=30 * MINUTE,
        hardware=CHECKED,
    ),
    Situation(
        "three of eight cables are missing from the first day on, and eight are stated",
        steps=(at(-DAY, never_plugged_in("mlx5_1", "mlx5_3", "mlx5_6")),),
        lasts=30 * MINUTE,
        hardware=CHECKED,
        fires={"NodeCheckFailed": within(21 * MINUTE, series=1, named=("hca_links",))},
        fault_at=0,
    ),
    Situation(
        "two of eight cables are missing from the first day on: the other six are evidence, each cable is named",
        steps=(at(-DAY, never_plugged_in("mlx5_3", "mlx5_6")),),
        lasts=30 * MINUTE,
        hardware=CHECKED,
        fires={"NicLinkDown": within(17 * MINUTE, series=2)},
        fault_at=0,
    ),
    Situation(
        "all links run at half of the stated rate from the first day on",
        steps=(at(-DAY, at_rate(200)),),
        lasts=30 * MINUTE,
        hardware=CHECKED,
        fires={"NodeCheckFailed": within(21 * MINUTE, series=1, named=("hca_rate",))},
        fault_at=0,
    ),
    Situation(
        "three cables that were missing are plugged in",
        steps=(
            at(-DAY, never_plugged_in("mlx5_1", "mlx5_3", "mlx5_6")),
            at(25 * MINUTE, plugged_in("mlx5_1", "mlx5_3", "mlx5_6")),
        ),
        lasts=40 * MINUTE,
        hardware=CHECKED,
        fires={"NodeCheckFailed": within(21 * MINUTE, ends_within=31 * MINUTE, series=1)},
        fault_at=0,
    ),
    Situation(
        "a node in maintenance lacks three cables",
        steps=(
            at(-DAY, never_plugged_in("mlx5_1", "mlx5_3", "mlx5_6")),
            at(-10, lambda site: site.node.put_in_maintenance()),
        ),
        lasts=30 * MINUTE,
        hardware=CHECKED,
        beside=LISTED,
        fault_at=0,
    ),
    Situation(
        "an idle node fails an active test, the exporter restarts, and the test passes again",
        steps=(
            at(-DAY, tested(ok=True)),
            at(0, tested(ok=False)),
            at(10 * MINUTE, lambda site: site.node.stop_exporter()),
            at(20 * MINUTE, tested(ok=True)),
        ),
        lasts=35 * MINUTE,
        hardware=TESTED,
        fires={
            "NodeTestFailed": within(2 * MINUTE, not_before=MINUTE, ends_within=23 * MINUTE, series=1, named=("nccl",))
        },
        fault_at=0,
    ),
    Situation(
        "a node crashes three times within the hour, the other three do not",
        steps=tuple(at(seconds, lambda site: site.reboot(away=100, crash=True)) for seconds in BOOTS),
        lasts=55 * MINUTE,
        nodes=4,
        hardware=BOOTED,
        fires={"NodeBootsOften": within(41 * MINUTE, not_before=30 * MINUTE, series=1, named=("gpu-001",))},
        beside=frozenset({"NodeExporterDown"}),
    ),
    Situation(
        "an upgrade boots all four nodes three times",
        steps=tuple(at(seconds, boot_all) for seconds in BOOTS),
        lasts=55 * MINUTE,
        nodes=4,
        hardware=BOOTED,
        beside=frozenset({"NodeExporterDown"}),
    ),
]
