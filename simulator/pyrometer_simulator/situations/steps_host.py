"""Steps of situations on hosts: their kernel's log, their disks and bonds, and the services of the monitoring host."""

from __future__ import annotations

from dataclasses import replace

from pyrometer_simulator.situations.host import HOST, Disk
from pyrometer_simulator.situations.model import Action
from pyrometer_simulator.situations.node_exporter import disk_lines
from pyrometer_simulator.situations.site import Site

BESIDE_NODE_EXPORTER = replace(HOST, node_exporter=True)

OUT_OF_MEMORY = "Memory cgroup out of memory: Killed process 4711 (python) total-vm:1024kB, anon-rss:512kB, UID:1000"
UNCORRECTED_MEMORY = "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1)"
CORRECTED_MEMORY = "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1)"
UNCORRECTED_PCIE = "pcieport 0000:3a:00.0: AER: Uncorrectable (Fatal) error message received from 0000:3b:00.0"
CORRECTED_PCIE = "pcieport 0000:3a:00.0: AER: Correctable error message received from 0000:3b:00.0"
NVME_TIMEOUT = "nvme nvme0: I/O 22 QID 3 timeout, aborting"
NVME_READ = "I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2"


def kernel_says(*lines: str) -> Action:
    """Return a step after which the kernel's log of the first node has these lines."""

    def write(site: Site) -> None:
        for line in lines:
            site.node.log.write(line)

    return write


def kernel_repeats(line: str, *, every: float, times: int) -> Action:
    """Return a step after which the kernel's log of the first node has this line again and again."""
    return lambda site: site.every(every, lambda: site.node.log.write(line), times)


def disk(**settings: object) -> Action:
    """Return a step that changes the root file system of the first node."""

    def change(site: Site) -> None:
        for name, value in settings.items():
            setattr(site.node.disks[0], name, value)

    return change


def disk_fills(*, by: float, every: float, times: int) -> Action:
    """Return a step after which the root file system of the first node loses a share of its room again and again."""

    def less(site: Site) -> None:
        site.node.disks[0].free -= by

    return lambda site: site.every(every, lambda: less(site), times)


def bond(active: int) -> Action:
    """Return a step after which so many of the two interfaces of a bond of the first node work."""
    return lambda site: site.node.bonds.update(bond0=(active, 2))


def monitoring_disk(free: float) -> Action:
    """Return a step that adds the monitoring host with so much free room."""
    disk = Disk("/var/lib/prometheus", free=free)
    text = "".join(f"{line}\n" for line in disk_lines([disk])).encode()
    return lambda site: site.serve("host", lambda: text, node="monitoring", instance="monitoring:9100")
