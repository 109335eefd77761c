"""A fake Slurm of two commands, ``squeue`` and ``sinfo``, in a folder for PATH or for flags.

The JSON has the shapes of the releases (data parsers v0.0.37 of 22.05, v0.0.39 of 23.02, v0.0.40 of 23.11,
v0.0.41 of 24.05), in the fields that matter for jobs, nodes and errors.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RELEASES = ("22.05", "23.02", "23.11", "24.05")
_PARSERS = {"22.05": "v0.0.37", "23.02": "v0.0.39", "23.11": "v0.0.40", "24.05": "v0.0.41"}


@dataclass(frozen=True)
class SlurmJob:
    """A job; ``states`` such as ("RUNNING", "CONFIGURING"), times in Unix seconds."""

    job_id: int
    name: str
    states: tuple[str, ...] = ("RUNNING",)
    reason: str = "None"
    user: str = "ada"
    partition: str = "gpu"
    submitted: int = 1_800_000_000
    ends: int = 1_800_100_000


@dataclass(frozen=True)
class SlurmNode:
    """A node; ``states`` such as ("IDLE", "DRAIN")."""

    name: str
    states: tuple[str, ...] = ("IDLE",)
    reason: str = ""
    user: str = ""
    since: int = 0
    partitions: tuple[str, ...] = ("gpu",)


class FakeSlurm:
    """The two commands in ``folder``; change ``jobs`` and ``nodes``, then call :meth:`publish`."""

    def __init__(self, folder: Path, release: str = "24.05") -> None:
        self.folder = folder
        self.release = release
        self.jobs: list[SlurmJob] = []
        self.nodes: list[SlurmNode] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.publish()

    @property
    def squeue(self) -> str:
        """The path of squeue."""
        return str(self.folder / "squeue")

    @property
    def sinfo(self) -> str:
        """The path of sinfo."""
        return str(self.folder / "sinfo")

    def publish(self) -> None:
        """Let both commands report the present jobs and nodes."""
        self.say("squeue", json.dumps(squeue_document(self.release, self.jobs)))
        self.say("sinfo", json.dumps(sinfo_document(self.release, self.nodes)))

    def say(self, command: str, answer: str) -> None:
        """Let a command print this and succeed."""
        answered = self.folder / f"{command}.answer"
        new = answered.with_suffix(".new")
        new.write_text(answer, encoding="utf-8")
        new.replace(answered)
        self._script(command, f"cat {shlex.quote(str(answered))}")

    def hang(self, command: str) -> None:
        """Let a command hang in a child process, as a wrapper script would."""
        self._script(command, "sleep 600 & wait")

    def fail(self, command: str, complaint: str = "slurm_load_jobs error: Unable to contact slurm controller") -> None:
        """Let a command fail as it does without its controller."""
        self._script(command, f"echo {shlex.quote(f'{command}: error: {complaint}')} >&2; exit 1")

    def remove(self, command: str) -> None:
        """Remove a command."""
        (self.folder / command).unlink(missing_ok=True)

    def _script(self, command: str, body: str) -> None:
        script = self.folder / command
        new = self.folder / f".{command}.new"
        new.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        new.chmod(0o755)
        new.replace(script)


def squeue_document(release: str, jobs: Sequence[SlurmJob]) -> dict[str, Any]:
    """Return what ``squeue --json`` of the release prints."""
    return {**_frame(release), "jobs": [_job(release, job) for job in jobs]}


def sinfo_document(release: str, nodes: Sequence[SlurmNode]) -> dict[str, Any]:
    """Return what ``sinfo --Node --json`` of the release prints."""
    if release == "22.05":
        return {**_frame(release), "nodes": [_old_node(node) for node in nodes]}
    rows = [_row(release, node, partition) for node in nodes for partition in node.partitions]
    return {**_frame(release), "sinfo": rows}


def _frame(release: str) -> dict[str, Any]:
    major, minor = release.split(".")
    plugin = {"type": "", "name": "", "data_parser": f"data_parser/{_PARSERS[release]}"}
    slurm = {"version": {"major": major, "micro": "3", "minor": minor}, "release": f"{release}.3"}
    frame: dict[str, Any] = {"meta": {"plugin": plugin, "slurm" if release >= "23.11" else "Slurm": slurm}}
    frame["errors"] = []
    if release != "22.05":
        frame["warnings"] = []
    return frame


def _number(release: str, value: int) -> int | dict[str, Any]:
    return value if release == "22.05" else {"set": True, "infinite": False, "number": value}


def _job(release: str, job: SlurmJob) -> dict[str, Any]:
    return {
        "account": "research",
        "array_job_id": _number(release, 0),
        "job_id": job.job_id,
        "name": job.name,
        "user_id": 1000,
        "user_name": job.user,
        "partition": job.partition,
        "job_state": list(job.states) if release >= "23.11" else job.states[-1],
        "state_reason": job.reason,
        "submit_time": _number(release, job.submitted),
        "end_time": _number(release, job.ends),
        "time_limit": {"set": False, "infinite": True, "number": 0} if release != "22.05" else 4294967295,
        "nodes": "",
    }


def _old_node(node: SlurmNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "hostname": node.name,
        "state": node.states[0].lower(),
        "state_flags": list(node.states[1:]),
        "partitions": list(node.partitions),
        "reason": node.reason,
        "reason_changed_at": node.since,
        "reason_set_by_user": node.user or None,
    }


def _row(release: str, node: SlurmNode, partition: str) -> dict[str, Any]:
    reason: str | dict[str, Any] = node.reason
    if release == "23.02":
        reason = {"description": node.reason, "time": _number(release, node.since), "user": node.user}
    return {
        "cluster": "demo",
        "partition": {"name": partition, "nodes": {"configured": "gpu-[001-008]", "total": 8}},
        "node": {"state": list(node.states)},
        "nodes": {"allocated": 0, "idle": 0, "other": 1, "total": 1, "hostnames": [], "nodes": [node.name]},
        "reason": reason,
        "reservation": "",
    }
