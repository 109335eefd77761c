"""Processes that can't be helped, and programs that must be running."""

from __future__ import annotations

import re
from typing import Any, Final

from pyrometer_exporters.node.checks.check import Check, Problem, Verdict, absent, judged, unknown
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.checks.processes import Process

STUCK: Final = "stuck"
"""The key of ``Node.earlier``: processes in state D, each with when it was first seen so."""
RUNTIMES: Final = ("containerd", "dockerd", "crio")
AGENTS: Final = ("slurmd", "kubelet")
# A name is cut to 15 bytes by the kernel.
_NAME_BYTES: Final = 15


def stuck_since(node: Node) -> dict[str, float]:
    """Return the processes that are in state D, by key, each with the uptime at which it was first seen so."""
    earlier, now = node.earlier.get(STUCK) or {}, node.boottime()
    return {key: min(earlier.get(key, now), now) for key in (_key(node, process) for process in _waiting(node))}


def _key(node: Node, process: Process) -> str:
    """Name a process and the wait that it is in: one that ran meanwhile waits for something else."""
    status = node.text(node.paths.procfs / str(process.pid) / "status") or ""
    switches = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)
    return f"{process.key}:{switches[1]}" if switches else process.key


def _waiting(node: Node) -> list[Process]:
    return [process for process in node.processes if process.state == "D" and not process.is_of_kernel]


def _stuck(node: Node) -> Verdict:
    """Compare with the look before: a process that waits for a disk for a moment is well."""
    earlier = node.earlier.get(STUCK)
    if earlier is None:
        return unknown("no earlier run to compare with: the exporter keeps one")
    now, limit = node.boottime(), node.limit("stuck_processes", "seconds")
    keys = [(process, _key(node, process)) for process in _waiting(node)]
    stuck = [(process, now - earlier[key]) for process, key in keys if key in earlier]
    return judged(
        [f"{process.name}[{process.pid}] has been in state D for {age:.0f} s" for process, age in stuck if age >= limit]
    )


def _zombies(node: Node) -> Verdict:
    count = sum(process.state == "Z" for process in node.processes)
    limit = node.limit("zombies", "count")
    return judged([f"{count} processes have exited but were not reaped"] if count >= limit else [])


def _running(node: Node) -> set[str]:
    return {process.name for process in node.processes if process.state not in "ZX"}


def _services_of_system(node: Node, names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return the programs of these names that root runs as a unit of the system: anybody can call a process kubelet."""
    return {
        process.name: {"name": process.name, "unit": unit}
        for process in node.processes
        if process.name in names and process.state not in "ZX" and (unit := _unit(node, process))
    }  # fmt: skip


def _unit(node: Node, process: Process) -> str:
    """Return the systemd unit of a process, ``containerd.service``; empty for a user's, a job's or a container's."""
    folder = node.paths.procfs / str(process.pid)
    unit = re.search(r":/system\.slice/([^/\n]+\.service)(?:/|$)", node.text(folder / "cgroup") or "", re.MULTILINE)
    uid = re.search(r"^Uid:\s+(\d+)", node.text(folder / "status") or "", re.MULTILINE)
    return unit[1] if unit and uid and uid[1] == "0" else ""


def _kind(node: Node, kind: str, names: tuple[str, ...], what: str) -> Verdict:
    """Judge programs of a kind: those that ran for a day have to run."""
    if not node.sees_processes:
        return absent("the host's processes can't be seen")
    running = _services_of_system(node, names)
    facts: dict[str, Any] = {kind: running}
    gone = [name for name in node.expected.learned(kind) if name not in running]
    if not running and not gone:
        return absent(f"no {what} has been seen on this node", **facts)
    problems = [Problem(f"{name} is not running (it was on the last healthy day)", learned=True) for name in gone]
    return judged(problems, **facts)


def _runtime(node: Node) -> Verdict:
    return _kind(node, "container_runtimes", RUNTIMES, "container runtime")


def _agent(node: Node) -> Verdict:
    return _kind(node, "agents", AGENTS, "slurmd or kubelet")


def _services(node: Node) -> Verdict:
    wanted = node.expected.get("services")
    if not wanted:
        return absent("none are configured")
    running = _running(node)
    missing = [f"{name} is not running" for name in wanted if name[:_NAME_BYTES] not in running]
    if missing and not node.sees_processes:
        return unknown("the host's processes can't be seen")
    return judged(missing)


CHECKS = (
    Check(
        "stuck_processes",
        "no process has been in state D for five minutes",
        "/proc/PID/stat",
        "gcm check-process (300 s), gpud os",
        "`cat /proc/PID/stack` shows where; for a dead mount or driver, reboot.",
        _stuck,
        severity="warning",
        limits={"seconds": 300},
    ),
    Check(
        "zombies",
        "few processes have exited without being reaped",
        "/proc/PID/stat",
        "gpud os (1000)",
        "Find the parent (`ps -o ppid= -p PID`) and restart it.",
        _zombies,
        severity="warning",
        limits={"count": 1000},
    ),
    Check(
        "container_runtime",
        "the container runtime that was a service of the system runs",
        "/proc/PID/stat",
        "gpud containerd and docker, Imbue",
        "`systemctl status containerd`, `journalctl -u containerd`.",
        _runtime,
    ),
    Check(
        "node_agent",
        "slurmd or kubelet runs, whichever was a service of the system",
        "/proc/PID/stat",
        "gpud kubelet, gcm check-service, LBNL NHC",
        "`systemctl status slurmd kubelet`.",
        _agent,
    ),
    Check(
        "services",
        "the programs listed under `services` are running",
        "/proc/PID/stat",
        "LBNL NHC check_ps_service, gcm",
        "`systemctl status NAME`.",
        _services,
    ),
)
