"""The queue and the nodes of the cluster in Slurm, and the event log of its fabric manager."""

from __future__ import annotations

import getpass
import time
from pathlib import Path

from pyrometer_simulator.demo import scenario
from pyrometer_simulator.demo.hardware import HCAS
from pyrometer_simulator.demo.topology import JOB, NODES, RUN
from pyrometer_simulator.slurm import FakeSlurm, SlurmJob, SlurmNode
from pyrometer_simulator.ufm import HostPort, SwitchPort, UfmLog

# A leaf switch for each rail, as in rail-optimised fabrics.
_RAIL_SWITCHES = [f"leaf-{number:02d}" for number in range(1, HCAS + 1)]
# A day and a bit at the pace of the demo.
RUN_TOKENS = 40e9


class Cluster:
    """Slurm's commands and UFM's log, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.slurm = FakeSlurm(folder / "slurm")
        self._ufm = UfmLog(folder / "ufm/event.log")
        self.event_log = self._ufm.path
        now = int(time.time())
        self.slurm.jobs = [
            SlurmJob(JOB, RUN, user=_user(), submitted=now, ends=now + 86400),
            SlurmJob(scenario.HUNG_JOB, "protein-sft", user="grace", submitted=now, ends=now + 86400),
            SlurmJob(JOB + 1, "eval-suite", ("PENDING",), "Resources", "grace", submitted=now),
        ]
        self.slurm.nodes = [SlurmNode(node, ("ALLOCATED",)) for node in NODES]
        self.slurm.publish()
        for node in NODES:
            for rail in range(HCAS):
                self._ufm.link_up(*_ends(node, f"mlx5_{rail}"))

    def exporter_flags(self) -> list[str]:
        """Return the cluster exporter's flags."""
        return [
            f"--collector.slurm.run={RUN}", f"--collector.slurm.squeue={self.slurm.squeue}",
            f"--collector.slurm.sinfo={self.slurm.sinfo}", "--collector.slurm.interval=5",
            f"--collector.ufm.event-log={self.event_log}", f"--collector.ledger.target={RUN}={RUN_TOKENS:.0f}",
        ]  # fmt: skip

    def cancel(self, job: int) -> None:
        """Remove a job from the queue; its nodes are idle."""
        self.slurm.jobs = [other for other in self.slurm.jobs if other.job_id != job]
        self.slurm.publish()

    def drain(self, node: str) -> bool:
        """Take a node out of service, or return it if it is drained already; return whether it is drained now."""
        at = next(place for place, other in enumerate(self.slurm.nodes) if other.name == node)
        drained = "DRAIN" not in self.slurm.nodes[at].states
        self.slurm.nodes[at] = (
            SlurmNode(node, ("ALLOCATED", "DRAIN"), "pyrometer-demo drain", _user(), int(time.time()))
            if drained
            else SlurmNode(node, ("ALLOCATED",))
        )
        self.slurm.publish()
        return drained

    def flapped(self, node: str, device: str) -> None:
        """Write down that a link went down and up."""
        self._ufm.flap(*_ends(node, device))


def _ends(node: str, device: str) -> tuple[HostPort, SwitchPort]:
    rail = int(device.removeprefix("mlx5_"))
    return HostPort(node, device), SwitchPort(_RAIL_SWITCHES[rail], NODES.index(node) + 1)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in many containers
        return "ada"
