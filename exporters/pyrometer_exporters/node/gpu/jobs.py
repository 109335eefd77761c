"""Find the job and user of a process, from its cgroup and nothing of its environment.

Sources: ``<procfs>/<pid>/cgroup``, such as ``0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0`` (Slurm
with cgroup v2), ``9:devices:/slurm/uid_1000/job_4711/step_0`` (v1), ``0::/kubepods.slice/kubepods-burstable.slice/
kubepods-burstable-pod2c48913c_b29f_11e7_9350_020968147796.slice/cri-containerd-1b9e.scope`` (Kubernetes),
``/pbs_jobs.service/jobid/4711.pbs01`` (PBS), ``/lsf/cluster1/job.4711.13150.1530048034`` (LSF),
``/user.slice/.../shell-0-fMPUXQyW5V.service`` (Flux under systemd); and
``<procfs>/<pid>/status``, a line of which is ``Uid:	1000	1000	1000	1000``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyrometer_exporters.node.users import Users

# slurmd puts its node's name in front where several run on one machine: /slurm_n1/uid_1000/..., n1_slurmstepd.scope.
_SLURM = re.compile(r"/[^/\n]*slurm[^/\n]*(?:/uid_\d+)?/job_(\d+)(?=/|$)", re.MULTILINE)
# A slice has _ for -, a static pod's uid is a bare hash; seen from another cgroup namespace, what is above is missing.
# Where only the kubelet of the two uses systemd, runc makes one folder of "<slice>:cri-containerd:<container>".
_POD = re.compile(
    r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?=[/:]|$)", re.MULTILINE
)
# PBS' hook has jobid/ with cgroup v1 and jobs/ with v2; releases before 20 had no folder of jobs. An array's element is
# 4711[3].pbs01.
_PBS = re.compile(
    r"/(?:pbs_jobs|pbspro)(?:\.service|\.slice)?/(?:jobid/|jobs/)?(\d+(?:\[\d+\])?\.[\w.-]+)(?=/|$)", re.MULTILINE
)
# Below job.<id> come the process and the time of the start; an element is 4711[3].
_LSF = re.compile(r"/lsf/[^/\n]+/job\.(\d+(?:\[\d+\])?)(?=[./]|$)", re.MULTILINE)
# The id in base 58, which Flux prints with a curled f.
_FLUX = re.compile(r"/(?:imp-)?shell-\d+-[fƒ]([1-9A-HJ-NP-Za-km-z]+)\.service(?=/|$)", re.MULTILINE)
_UID = re.compile(r"^Uid:\s+(\d+)", re.MULTILINE)
# A process that caused an Xid is often gone when the error is read; its number isn't soon given to another.
REMEMBER_SECONDS = 600.0
MOST_REMEMBERED = 4096
# A storm of Xids names the same few processes thousands of times a second, and each look at procfs costs as much as the
# rest of a line. Linux gives a number to another process only when it has gone through all 32,768 or more of them.
LATE_KEPT_SECONDS = 1.0


@dataclass(frozen=True)
class Job:
    """A batch job's id or a Kubernetes pod's uid, and who runs it."""

    job_id: str
    user: str
    """The name; the number where it has none or isn't known; empty where not even that is."""


class Jobs:
    """Looks up processes. May be used from any thread."""

    def __init__(
        self,
        procfs: Path,
        monotonic: Callable[[], float] = time.monotonic,
        users: Users | None = None,
    ) -> None:
        self._procfs = procfs
        self._monotonic = monotonic
        self._users = users or Users(procfs, monotonic)
        self._seen: dict[int, tuple[float, Job]] = {}
        self._late: dict[int, tuple[float, Job | None]] = {}

    def visible(self, pid: int) -> bool:
        """Return whether the process can be seen: it may have ended, or be in another PID namespace."""
        return (self._procfs / str(pid)).exists()

    def of(self, pid: int) -> Job | None:
        """Return the job of a process; None if it belongs to none or can't be seen."""
        try:
            job_id = job_of_cgroup((self._procfs / str(pid) / "cgroup").read_text(errors="replace"))
        except OSError:
            return None
        if job_id is None:
            return None
        job = Job(job_id, self._user(pid))
        self._remember(pid, job)
        return job

    def of_the_late(self, pid: int) -> Job | None:
        """Return the job of a process that may have ended within the last minutes; looked up once a second at most."""
        now = self._monotonic()
        at, job = self._late.get(pid, (-LATE_KEPT_SECONDS, None))
        if now - at >= LATE_KEPT_SECONDS:
            if len(self._late) >= MOST_REMEMBERED:
                self._late.clear()
            at, job = self._late[pid] = now, self._look_up_late(pid)
        return job

    def _look_up_late(self, pid: int) -> Job | None:
        present = self.of(pid)
        if present is not None or self.visible(pid):  # the number was given to another
            return present
        at, job = self._seen.get(pid, (0.0, None))
        return job if job is not None and self._monotonic() - at <= REMEMBER_SECONDS else None

    def _user(self, pid: int) -> str:
        try:
            uid = _UID.search((self._procfs / str(pid) / "status").read_text(errors="replace"))
        except OSError:
            return ""
        return self._users.name(int(uid[1])) if uid else ""

    def _remember(self, pid: int, job: Job) -> None:
        now = self._monotonic()
        if len(self._seen) >= MOST_REMEMBERED:
            fresh = {pid: seen for pid, seen in self._seen.copy().items() if now - seen[0] <= REMEMBER_SECONDS}
            self._seen = fresh if len(fresh) < MOST_REMEMBERED else {}
        self._seen[pid] = now, job


def job_of_cgroup(text: str) -> str | None:
    """Return the job in a ``/proc/<pid>/cgroup``: a batch system's before Kubernetes', as it may itself run in pods.

    >>> job_of_cgroup("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0")
    '4711'
    """
    if slurm := _SLURM.search(text):
        return slurm[1]
    for pattern in (_PBS, _LSF):
        if batch := pattern.search(text):
            return batch[1]
    if flux := _FLUX.search(text):
        return f"f{flux[1]}"
    if pod := _POD.search(text):
        return pod[1].replace("_", "-")
    return None
