"""Steps of situations on GPUs, their driver and the kernel's log of their node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from pyrometer_simulator.nvml import SimulatedGpu
from pyrometer_simulator.situations.host import GPUS, ONE_GPU, Host
from pyrometer_simulator.situations.model import Action
from pyrometer_simulator.situations.site import Site

# The first driver that asks for a recovery action is 570.
OLDER_DRIVER = replace(ONE_GPU, driver="550.54.15")
# Reasons that the driver does not count are sampled: five times a second is the least that the longest gap allows.
SAMPLED = replace(GPUS, gpus=2, sampler_hz=5.0)
TWO_GPUS = replace(GPUS, gpus=2)
UNKNOWN_ERROR, TIMEOUT = 999, 10  # nvmlReturn_t
MIG_SLICE = {"id": 7, "profile": "1g.10gb", "used_mib": 12, "total_mib": 9984}


def gpus_of(node: Host) -> Iterator[SimulatedGpu]:
    """Yield the GPUs of a node."""
    yield from node.gpus or ()


def gpu(index: int, act: str, *arguments: object, **settings: object) -> Action:
    """Return a step on a GPU of the first node, by the name of its method."""
    return lambda site: getattr(list(gpus_of(site.node))[index], act)(*arguments, **settings)


def gpus(act: str, *arguments: object, **settings: object) -> Action:
    """Return the same step on all GPUs of the first node."""
    return lambda site: [getattr(each, act)(*arguments, **settings) for each in gpus_of(site.node)]


def all_gpus(act: str, *arguments: object, **settings: object) -> Action:
    """Return the same step on all GPUs of all nodes."""
    return lambda site: [getattr(each, act)(*arguments, **settings) for node in site.nodes for each in gpus_of(node)]


def xid(code: int, message: str, index: int = 0) -> Action:
    """Return a step in which the driver reports an error of a GPU of the first node."""
    return lambda site: site.node.log.xid(list(gpus_of(site.node))[index].pci_bus_id, code, message)


def contained_error(site: Site) -> None:
    """Let a program of the first GPU meet a broken row of memory, which the next reset replaces."""
    node = site.node
    first = next(gpus_of(node))
    node.log.xid(first.pci_bus_id, 63, "Row Remapper: New row marked for remapping, reset gpu to activate.")
    node.log.xid(first.pci_bus_id, 94, "Contained: SM (0x1). RST: No, D-RST: No", pid=4711)
    first.set(ecc_errors={"volatile/device_memory/uncorrected": 1}, remapped={"pending": 1}, recovery_action=4)


def reset_after_error(site: Site) -> None:
    """Reset the first GPU: the row is replaced, volatile counts restart."""
    first = next(gpus_of(site.node))
    first.set(ecc_errors=None, remapped={"uncorrected": 1}, recovery_action=None)
    first.reset_counters()


def answers_one_scrape_in_eight(site: Site) -> None:
    """Let the second GPU time out for 105 s of every two minutes, half an hour long: 7 of 8 scrapes every 15 s."""
    _answer_now_and_then(site, 105, 15)


def hangs_most_of_the_time(site: Site) -> None:
    """Let the second GPU time out for three and a half of every four minutes, half an hour long."""
    _answer_now_and_then(site, 210, 30)


def _answer_now_and_then(site: Site, silent: int, good: int) -> None:
    second = list(gpus_of(site.node))[1]
    for start in range(0, 1800, silent + good):
        site.after(start, partial(second.fail, TIMEOUT))
        site.after(start + silent, second.recover)


def take_gpus_out(site: Site) -> None:
    """Detach all GPUs but the first from the driver."""
    for each in list(gpus_of(site.node))[1:]:
        each.leave()


def upgrade_packages(site: Site) -> None:
    """Exchange the driver's packages under the loaded module, as unattended upgrades do."""
    site.node.driver.install("590.61.02")


def upgrade_driver(site: Site) -> None:
    """Upgrade the driver: it is away for six minutes."""
    upgrade_packages(site)
    site.reload_nvidia(away=360)


def reboot_without_module(site: Site) -> None:
    """Reboot into a kernel that the driver has no module for."""
    site.reboot(away=100)
    site.after(101, site.node.unload_nvidia)
