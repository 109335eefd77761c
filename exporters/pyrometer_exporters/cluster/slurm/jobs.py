"""Parse the jobs of ``squeue --json``, and map their states to: training, queued, or stuck."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyrometer_exporters.cluster.slurm.shapes import checked, number, text, words
from pyrometer_exporters.cluster.slurm.stream import DocumentReader
from pyrometer_exporters.framework.outcome import PartError

RUNNING, QUEUED, BLOCKED, ENDING, OTHER = STATES = ("running", "queued", "blocked", "ending", "other")

# States and reasons: squeue(1), JOB STATE CODES and JOB REASON CODES.
_ENDED = {
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
    "LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED",
}  # fmt: skip
_RUNNING = {"RUNNING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "EXPEDITING"}
_QUEUED = {"PENDING", "REQUEUED", "REQUEUE_FED", "POWER_UP_NODE"}
_BLOCKED = {"SUSPENDED", "STOPPED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
# A pending job with one of these waits for a person, not for nodes: it will never start on its own.
_WAITS_FOR_A_PERSON = {
    "jobheldadmin", "jobhelduser", "dependencyneversatisfied", "badconstraints", "invalidaccount", "invalidqos",
    "accountnotallowed", "qosnotallowed", "partitioninactive", "partitionnodelimit", "partitiontimelimit",
    "reservationdeleted", "jobholdmaxrequeue", "launchfailedrequeuedheld", "joblaunchfailure",
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A job that has not ended; ``state`` is one of STATES, ``reason`` is Slurm's for a job that isn't running."""

    job_id: str
    name: str
    user: str
    partition: str
    state: str
    reason: str


@dataclass(frozen=True)
class JobEnd:
    """The end of a job, also of one whose processes are still to go; ``state`` is Slurm's, ``at`` in Unix seconds."""

    job_id: str
    state: str
    at: float


@dataclass(frozen=True)
class Queue:
    """The jobs of the queue; where ``unread`` says why it could not be read, those that were asked for by name."""

    jobs: list[Job]
    unread: PartError | None = None
    ends: Sequence[JobEnd] = ()


class JobReader:
    """Takes squeue's answer in pieces, and keeps of each job that has not ended what counts.

    A job is such as ``{"job_id": 4711, "name": "llama-8b", "user_name": "ada", "partition": "gpu",
    "job_state": ["PENDING"], "state_reason": "Resources", ...}``.

    Attributes:
        ends: The ends of jobs that Slurm still lists and that have ended, or were told to end.
    """

    def __init__(self) -> None:
        self.ends: list[JobEnd] = []
        self._jobs: list[Job] = []
        self._document = DocumentReader("jobs", self._take)
        self.feed = self._document.feed

    def finish(self) -> list[Job]:
        """Return the jobs.

        Raises:
            PartError: ``bad_answer`` if the answer isn't such a document, ``refused`` if Slurm reports errors in it.
        """
        self._document.finish()
        entries: dict[str, object] = {"jobs": []} if self._document.found else {}
        checked(self._document.rest | entries, "jobs")
        return self._jobs

    def _take(self, entry: Mapping[str, Any]) -> None:
        reason = text(entry.get("state_reason"))
        flags = words(entry.get("job_state"))
        state, at = state_of(flags, reason), number(entry.get("end_time"))
        if state in (None, ENDING) and at and flags & _ENDED:
            self.ends.append(JobEnd(text(entry.get("job_id")), min(flags & _ENDED).lower(), at))
        if state is not None:
            user = text(entry.get("user_name")) or text(entry.get("user_id"))
            named = (text(entry.get("job_id")), text(entry.get("name")), user, text(entry.get("partition")))
            self._jobs.append(Job(*named, state, "" if reason == "None" else reason))


def jobs_of(data: bytes) -> list[Job]:
    """Return the jobs in a whole answer that have not ended.

    Raises:
        PartError: The answer is no such document, see :class:`JobReader`.
    """
    reader = JobReader()
    reader.feed(data)
    return reader.finish()


def state_of(flags: frozenset[str], reason: str) -> str | None:
    """Return one of STATES, or None for a job that has ended, which older releases list for a while."""
    if "COMPLETING" in flags:
        return ENDING
    if flags & _BLOCKED:
        return BLOCKED
    if flags & _QUEUED:  # before the ended states: a requeued job may still have the state it failed with
        return BLOCKED if _plain(reason) in _WAITS_FOR_A_PERSON else QUEUED
    if flags & _ENDED:
        return None
    return RUNNING if flags & _RUNNING else OTHER


@dataclass(frozen=True)
class WatchedRun:
    """A run that should be training: its name, and the pattern of its jobs' names.

    Attributes:
        job_name: The one name of its jobs, by which squeue can be asked; empty where a pattern was given.
    """

    run: str
    jobs: re.Pattern[str]
    job_name: str = ""

    def of(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the jobs of this run."""
        return [job for job in jobs if self.jobs.match(job.name)]


def _plain(reason: str) -> str:
    """Reduce a reason to letters: it is one word in most releases, several with blanks or underscores in some."""
    return re.sub(r"[^a-z]", "", reason.lower())
