"""Situations of hosts: memory, CPU, PCIe, disks, bonds, and the exporter itself."""

from __future__ import annotations

from pyrometer_simulator.situations.host import HOST
from pyrometer_simulator.situations.model import MINUTE, Situation, at, within
from pyrometer_simulator.situations.steps import LISTED
from pyrometer_simulator.situations.steps_host import (
    BESIDE_NODE_EXPORTER,
    CORRECTED_MEMORY,
    CORRECTED_PCIE,
    NVME_READ,
    NVME_TIMEOUT,
    OUT_OF_MEMORY,
    UNCORRECTED_MEMORY,
    UNCORRECTED_PCIE,
    bond,
    disk,
    disk_fills,
    kernel_repeats,
    kernel_says,
    monitoring_disk,
)

SITUATIONS = [
    Situation(
        "a host corrects six memory errors and three PCIe errors in an hour",
        steps=(
            at(300, kernel_repeats(CORRECTED_MEMORY, every=600, times=6)),
            at(400, kernel_repeats(CORRECTED_PCIE, every=900, times=3)),
        ),
        lasts=60 * MINUTE,
        hardware=HOST,
    ),
    Situation(
        "a checkpoint fills a disk to four fifths and is deleted",
        steps=(
            at(600, disk_fills(by=0.01, every=15, times=40)),
            at(1500, disk(free=0.6)),
        ),
        lasts=45 * MINUTE,
        hardware=BESIDE_NODE_EXPORTER,
    ),
    Situation(
        "a file system that is mounted read-only is full",
        steps=(at(-1000, disk(free=0.0, read_only=True)),),
        lasts=20 * MINUTE,
        hardware=BESIDE_NODE_EXPORTER,
        fault_at=0,
    ),
    Situation(
        "one leg of a bond is away for three minutes while its switch reboots",
        steps=(at(-1000, bond(2)), at(300, bond(1)), at(480, bond(2))),
        lasts=15 * MINUTE,
        hardware=BESIDE_NODE_EXPORTER,
        fault_at=300,
    ),
    Situation(
        "a node in maintenance runs out of memory, meets errors of memory, PCIe and disks, and is nearly full",
        steps=(
            at(240, lambda site: site.node.put_in_maintenance()),
            at(300, kernel_says(OUT_OF_MEMORY, UNCORRECTED_MEMORY, UNCORRECTED_PCIE, NVME_TIMEOUT)),
            at(301, disk(free=0.03)),
            at(302, bond(1)),
        ),
        lasts=30 * MINUTE,
        hardware=BESIDE_NODE_EXPORTER,
        beside=LISTED,
        fault_at=300,
    ),
    Situation(
        "the node exporter is stopped for good",
        steps=(at(300, lambda site: site.node.shut_down()),),
        lasts=9 * MINUTE,
        hardware=HOST,
        fires={"NodeExporterDown": within(120, series=1)},
    ),
    Situation(
        "the kernel kills a process for lack of memory",
        steps=(at(300, kernel_says(OUT_OF_MEMORY)),),
        lasts=20 * MINUTE,
        hardware=HOST,
        fires={"HostOutOfMemory": within(60, series=1, ends_within=660)},
    ),
    Situation(
        "a process is killed for lack of memory just after a boot, before the first scrape",
        steps=(at(300, lambda site: site.reboot(away=240)), at(541, kernel_says(OUT_OF_MEMORY))),
        lasts=12 * MINUTE,
        hardware=HOST,
        fires={"HostOutOfMemory": within(330, series=1)},
        beside=frozenset({"NodeExporterDown"}),
    ),
    Situation(
        "a host meets a memory error that it can't correct",
        steps=(at(300, kernel_says(UNCORRECTED_MEMORY)),),
        lasts=8 * MINUTE,
        hardware=HOST,
        fires={"HostMachineCheck": within(60, series=1)},
    ),
    Situation(
        "a PCIe device reports an error that was not corrected",
        steps=(at(300, kernel_says(UNCORRECTED_PCIE)),),
        lasts=8 * MINUTE,
        hardware=HOST,
        fires={"HostPcieErrors": within(60, series=1)},
    ),
    Situation(
        "an NVMe disk times out, and minutes later fails reads",
        steps=(at(300, kernel_says(NVME_TIMEOUT)), at(600, kernel_says(NVME_READ, NVME_READ))),
        lasts=12 * MINUTE,
        hardware=HOST,
        fires={"HostDiskErrors": within(60, series=1)},
    ),
    Situation(
        "a bond goes on with one leg",
        steps=(at(-1000, bond(2)), at(300, bond(1))),
        lasts=13 * MINUTE,
        hardware=BESIDE_NODE_EXPORTER,
        fires={"NicBondDegraded": within(360, series=1)},
        fault_at=300,
    ),
    Situation(
        "a node's disk is nearly full",
        steps=(at(300, disk(free=0.08)),),
        lasts=20 * MINUTE,
        hardware=BESIDE_NODE_EXPORTER,
        fires={"HostDiskFull": within(760, series=1)},
    ),
    Situation(
        "a node's disk will be full within hours",
        steps=(at(60, disk(free=0.28)), at(61, disk_fills(by=0.0005, every=15, times=300))),
        lasts=60 * MINUTE,
        hardware=BESIDE_NODE_EXPORTER,
        fires={"HostDiskFull": within(45 * MINUTE, series=1)},
    ),
    Situation(
        "the monitoring host's disk is nearly full",
        steps=(at(1, monitoring_disk(0.04)),),
        lasts=9 * MINUTE,
        hardware=HOST,
        fires={"HostDiskFull": within(420, series=1)},
    ),
]
