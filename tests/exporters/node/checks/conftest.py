"""A healthy node with eight GPUs and eight HCAs, as files and under the real pynvml; and looks at it."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pyrometer_exporters.node.checks.check import Verdict
from pyrometer_exporters.node.checks.gpus import DriverAsker
from pyrometer_exporters.node.checks.look import Look, Looker
from pyrometer_exporters.node.checks.node import Paths
from pyrometer_exporters.node.checks.workers import run_here
from pyrometer_simulator.host_files import HostFiles
from pyrometer_simulator.kmsg import KernelLog
from pyrometer_simulator.nvml import SimulatedGpus, installed
from pyrometer_simulator.nvml.installation import Installation
from pyrometer_simulator.sysfs import SysfsTree

STATED = "expect: {gpus: 8, hcas: 8, rate: 400e9, driver: 590.48.01, services: [slurmd], huge_pages: 1024}\n"


class Now:
    """The time, in seconds since the epoch."""

    def __init__(self) -> None:
        self.seconds = self.began = time.time()
        self.ahead = 0.0  # by how much somebody has set the clock

    def __call__(self) -> float:
        return self.seconds + self.ahead


class Node:
    """The parts of a node, and what the checks say of it."""

    def __init__(self, folder: Path) -> None:
        self.tree = SysfsTree(folder / "tree")
        self.gpus = SimulatedGpus(folder / "gpus", monotonic=time.monotonic)
        self.files = HostFiles(self.tree.sysfs, self.tree.procfs)
        self.log = KernelLog(folder / "kmsg", lambda: time.clock_gettime(time.CLOCK_BOOTTIME))
        self.log.write("Linux version 6.8.0-60-generic", level=5)
        self.driver = Installation(self.tree.procfs, folder / "lib", "590.48.01")
        self.state = folder / "state"
        self.state.mkdir()
        self.config = folder / "checks.yaml"
        self.config.write_text(STATED)
        self.now = Now()
        self.clock_state: int | None = 0
        self.paths = Paths(self.tree.sysfs, self.tree.procfs, Path("/"), self.log.path, folder / "dev")
        self.looker = Looker(
            self.paths, self.config, self.state, DriverAsker(patience=0.5), run=run_here, wall=self.now,
            replaced={
                "statvfs": self.files.disks.statvfs, "clock_state": lambda: self.clock_state, "boottime": self.boottime,
            },
        )  # fmt: skip
        for port in self.root_ports:
            self.write_acs(port, 0x0)

    def boottime(self) -> float:
        """Return the seconds since the boot, which go on as the time does."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self.now.seconds - self.now.began

    @property
    def root_ports(self) -> list[Path]:
        """The folders of the ports above GPUs."""
        devices = self.tree.sysfs / "bus/pci/devices"
        return [(devices / address).resolve().parent for address in self.tree.gpu_addresses]

    def write_acs(self, port: Path, control: int) -> None:
        """Write a port's configuration: advanced error reporting, and behind it ACS with this control register."""
        config = bytearray(4096)
        struct.pack_into("<I", config, 0x100, 0x148 << 20 | 1 << 16 | 0x0001)
        struct.pack_into("<IHH", config, 0x148, 1 << 16 | 0x000D, 0x5F, control)
        (port / "config").write_bytes(config)

    def look(self, *only: str, keep: bool = False, stated: str | None = None) -> Look:
        if stated is not None:
            self.config.write_text(stated)
        return self.looker.look(only=only, keep=keep)

    def verdict(self, check: str, *, stated: str | None = None) -> Verdict:
        (result,) = self.look(check, stated=stated).results
        return result.verdict

    def without_state(self) -> None:
        self.looker = replace(self.looker, state=None)

    def a_day_later(self) -> None:
        self.now.seconds += 86_400

    def learn(self) -> None:
        """Let the node be well for a day."""
        self.look(keep=True)
        self.a_day_later()
        assert self.look(keep=True).healthy


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    with installed(made.gpus.path):
        yield made
    made.files.disks.release()
