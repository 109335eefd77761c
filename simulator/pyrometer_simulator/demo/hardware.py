"""The simulated hardware of the demo's nodes: made and changed by the director, felt by the training loop."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from pyrometer_simulator.host_files import HostFiles
from pyrometer_simulator.kmsg import KernelLog
from pyrometer_simulator.nvml import SimulatedGpus
from pyrometer_simulator.nvml.gpu_state import GpuState
from pyrometer_simulator.nvml.state_file import StateFile
from pyrometer_simulator.sysfs import SysfsTree

HCAS = 8
# 400 Gb/s links that gradients use about a third of the time.
BYTES_PER_SECOND = 400e9 / 8 / 3

# A node exporter reads from procfs its node's addresses, and the scheduler's job of the processes on its GPUs.
FIB_TRIE = "Local:\n  |-- {address}\n     /32 host LOCAL\n"
_CGROUP = "0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_{task}\n"
FIRST_PID = 4000
PROCESS_BYTES = 61 << 30


def node_address(number: int) -> str:
    """Return the address by which NCCL knows a node, from the node's number."""
    return f"10.0.0.{number}"


def exporter_flags(folder: Path, listen: str, state: Path | None = None) -> list[str]:
    """Return the arguments of ``pyrometer_simulator.node`` for the node in a folder."""
    places = {"sysfs": "sys", "procfs": "proc", "rings": "rings", "kmsg": "kmsg"}
    paths = [f"--path.{name}={folder / place}" for name, place in places.items()]
    listening = f"--web.listen-address={listen}"
    return [f"--gpus={folder / 'gpus'}", "--", listening, *paths, f"--path.state={state or folder / 'state'}"]


class Node:
    """A node as the director holds it: its GPUs and its links, at work."""

    def __init__(self, folder: Path, number: int, gpus: int) -> None:
        folder.mkdir(parents=True)
        (folder / "rings").mkdir()
        self.folder = folder
        self.log = KernelLog(folder / "kmsg")
        self.tree = SysfsTree(folder, hcas=HCAS, gpus=gpus)
        HostFiles(self.tree.sysfs, self.tree.procfs)
        (self.tree.procfs / "net").mkdir(exist_ok=True)
        (self.tree.procfs / "net/fib_trie").write_text(FIB_TRIE.format(address=node_address(number)))
        self.gpus = SimulatedGpus(folder / "gpus", count=gpus, seed=number, noise=0.01)
        for gpu in self.gpus:
            gpu.load(temperature=58 + (gpu.index * 3 + number) % 9)

    def run_processes(self, job: int, pids: Sequence[int]) -> None:
        """Let the processes of a scheduler's job exist, one on each GPU."""
        for gpu, pid in zip(self.gpus, pids, strict=False):
            gpu.set(processes=[[pid, PROCESS_BYTES]])
        for task, pid in enumerate(pids):
            (self.tree.procfs / str(pid)).mkdir(exist_ok=True)
            (self.tree.procfs / str(pid) / "cgroup").write_text(_CGROUP.format(job=job, task=task))

    def traffic(self, seconds: float) -> None:
        """Count what the links moved in so many seconds."""
        for nic in self.tree.nics:
            nic.traffic(int(BYTES_PER_SECOND * seconds))


class Hardware:
    """The nodes as the training loop feels them; read from the same files that the exporters read."""

    def __init__(self, folder: Path, nodes: Sequence[str], gpus: int) -> None:
        self._states = {node: StateFile(folder / node / "gpus") for node in nodes}
        self._gpus = gpus
        self._ports = [
            os.open(port / "state", os.O_RDONLY)
            for node in nodes
            for port in sorted((folder / node / "sys/class/infiniband").glob("*/ports/*"))
        ]

    def uuid(self, node: str, gpu: int) -> str:
        """Return a GPU's UUID."""
        return str(self._states[node].record(gpu).uuid.decode())

    def slowest(self) -> tuple[tuple[str, int] | None, float]:
        """Return the GPU with the lowest clock relative to its normal one, and its slowdown; (None, 1.0) if none."""
        place: tuple[str, int] | None = None
        now, worst = time.monotonic(), 1.0
        for node, state in self._states.items():
            for gpu in range(self._gpus):
                record = state.snapshot(gpu)
                factor = int(record.sm_clock) / max(1, GpuState(record, now).sm_clock())
                if factor > worst:
                    worst, place = factor, (node, gpu)
        return place, worst

    def links_up(self) -> bool:
        """Return whether every port of the run is ACTIVE: a collective needs them all."""
        return all(os.pread(port, 1, 0) == b"4" for port in self._ports)
