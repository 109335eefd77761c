"""Jobs of ``squeue --json``, and what their states mean for a run: does it train, will it, or is it stuck?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pyrometer_exporters.cluster.slurm.shapes import document, text, words

RUNNING, QUEUED, BLOCKED, ENDING, OTHER = STATES = ("running", "queued", "blocked", "ending", "other")

# States and reasons: squeue(1), JOB STATE CODES and JOB REASON CODES.
_ENDED = {
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
    "LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED",
}  # fmt: skip
_RUNNING = {"RUNNING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "EXPEDITING"}
_QUEUED = {"PENDING", "REQUEUED", "REQUEUE_FED", "POWER_UP_NODE"}
_BLOCKED = {"SUSPENDED", "STOPPED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
# A pending job with one of these waits for a person, not for nodes: it will never start by itself.
_WAITS_FOR_A_PERSON = {
    "jobheldadmin", "jobhelduser", "dependencyneversatisfied", "badconstraints", "invalidaccount", "invalidqos",
    "accountnotallowed", "qosnotallowed", "partitioninactive", "partitionnodelimit", "partitiontimelimit",
    "reservationdeleted", "jobholdmaxrequeue", "launchfailedrequeuedheld", "joblaunchfailure",
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A job that has not ended; ``state`` is one of STATES, ``reason`` Slurm's word for why it isn't running."""

    job_id: str
    name: str
    user: str
    partition: str
    state: str
    reason: str


def jobs_of(data: bytes) -> list[Job]:
    """The jobs in the answer that have not ended. Raises PartError, see :func:`document`.

    A job is such as ``{"job_id": 4711, "name": "llama-8b", "user_name": "ada", "partition": "gpu",
    "job_state": ["PENDING"], "state_reason": "Resources", ...}``.
    """
    found = []
    for entry in document(data, "jobs"):
        reason = text(entry.get("state_reason"))
        state = state_of(words(entry.get("job_state")), reason)
        if state is not None:
            user = text(entry.get("user_name")) or text(entry.get("user_id"))
            named = (text(entry.get("job_id")), text(entry.get("name")), user, text(entry.get("partition")))
            found.append(Job(*named, state, "" if reason == "None" else reason))
    return found


def state_of(flags: frozenset[str], reason: str) -> str | None:
    """One of STATES; None for a job that has ended, which older releases list for a while."""
    if "COMPLETING" in flags:
        return ENDING
    if flags & _BLOCKED:
        return BLOCKED
    if flags & _QUEUED:  # before the ended ones: a requeued job may still carry what it failed of
        return BLOCKED if _plain(reason) in _WAITS_FOR_A_PERSON else QUEUED
    if flags & _ENDED:
        return None
    return RUNNING if flags & _RUNNING else OTHER


@dataclass(frozen=True)
class WatchedRun:
    """A run that should be training: its name, and what its jobs are called."""

    run: str
    jobs: re.Pattern[str]

    def of(self, jobs: Iterable[Job]) -> list[Job]:
        """Its jobs."""
        return [job for job in jobs if self.jobs.match(job.name)]


def _plain(reason: str) -> str:
    """Reasons are one word in most releases, and several with blanks or underscores in some."""
    return re.sub(r"[^a-z]", "", reason.lower())
