"""Parse the nodes of ``sinfo --Node --json``: which are spare, which are out of service, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyrometer_exporters.cluster.slurm.shapes import document, names, number, text, words

STATES = (
    "idle", "allocated", "mixed", "planned", "reserved", "maintenance", "draining", "drained", "down", "powered_down",
    "unknown",
)  # fmt: skip
UNAVAILABLE = ("maintenance", "draining", "drained", "down", "unknown")

# sinfo(1), NODE STATE CODES, and the flags of Slurm's data parsers (slurm.h, NODE_STATE_*, 20.11 to 25.05). The first
# match wins: a node that is down and drained is down. One that reboots because somebody said so is down only for that.
_STATES: tuple[tuple[str, frozenset[str]], ...] = (
    ("maintenance", frozenset({"REBOOT_ISSUED", "REBOOT"})),
    ("down", frozenset({"DOWN", "ERROR", "NOT_RESPONDING", "NO_RESPOND", "INVALID_REG"})),
    ("draining", frozenset({"DRAINING", "FAILING"})),
    ("drained", frozenset({"DRAIN", "DRAINED", "FAIL"})),
    ("maintenance", frozenset({"MAINTENANCE", "MAINT"})),
    ("allocated", frozenset({"ALLOCATED", "COMPLETING"})),
    ("mixed", frozenset({"MIXED"})),
    # It reboots as soon as it is idle, with REBOOT_REQUESTED.
    ("maintenance", frozenset({"REBOOT_REQUESTED"})),
    ("powered_down", frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP"})),
    # Idle, but kept from all but one job: by a reservation, because another job has the block of the topology alone, or
    # because it has the network's performance counters.
    ("reserved", frozenset({"RESERVED", "BLOCKED", "PERFCTRS"})),
    ("planned", frozenset({"PLANNED"})),
    ("idle", frozenset({"IDLE"})),
)
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})


@dataclass(frozen=True)
class Node:
    """A node; ``state`` is one of STATES, ``since`` the Unix time at which its reason was set, None where unknown."""

    name: str
    partitions: tuple[str, ...]
    state: str
    reason: str = ""
    user: str = ""
    since: float | None = None


def nodes_of(data: bytes) -> list[Node]:
    """Return the nodes in the answer, each once.

    An entry is such as ``{"node": {"state": ["IDLE", "DRAIN"]}, "nodes": {"nodes": ["gpu-003"]}, "partition": {"name":
    "gpu"}, "reason": "GPU 5 fell off", ...}``; up to 22.05 ``{"name": "gpu-003", "state": "idle", "state_flags":
    ["DRAIN"], "partitions": ["gpu"], "reason": "GPU 5 fell off", "reason_changed_at": 1700000000, ...}``.

    Raises:
        PartError: The answer is no such document, see :func:`document`.
    """
    nodes: dict[str, Node] = {}
    for entry in document(data, "sinfo", "nodes", "statistics"):
        for node in _nodes(entry):
            before = nodes.get(node.name)
            more = () if before is None else tuple(p for p in before.partitions if p not in node.partitions)
            nodes[node.name] = replace(node, partitions=(*more, *node.partitions))
    return list(nodes.values())


def state_of(flags: frozenset[str]) -> str | None:
    """Return one of STATES, or None for a node that does not exist yet."""
    if "FUTURE" in flags:
        return None
    state = next((state for state, any_of in _STATES if flags & any_of), "unknown")
    if state == "drained" and flags & _BUSY:
        return "draining"
    # Drained by "scontrol reboot ASAP", which returns it once it has rebooted.
    return "maintenance" if state == "drained" and "REBOOT_REQUESTED" in flags else state


def _nodes(entry: Mapping[str, Any]) -> Iterator[Node]:
    inner, group = _object(entry.get("node")), _object(entry.get("nodes"))
    flags = words(inner.get("state", entry.get("state"))) | words(entry.get("state_flags"))
    state = state_of(flags)
    if state is None:
        return
    reason, user, since = _reason(entry)
    partition = text(_object(entry.get("partition")).get("name"))
    listed = entry.get("partitions")
    partitions = tuple(map(text, listed)) if isinstance(listed, list) else (partition,)
    for name in names(group.get("nodes") or entry.get("name") or entry.get("hostname")):
        yield Node(name, tuple(filter(None, partitions)), state, reason, user, since)


def _reason(entry: Mapping[str, Any]) -> tuple[str, str, float | None]:
    """Return reason, user and time of a node out of service; a text in some releases, an object in others."""
    reason = entry.get("reason")
    if isinstance(reason, Mapping):
        description, user, since = reason.get("description"), reason.get("user"), number(reason.get("time"))
    else:
        description, user, since = reason, entry.get("reason_set_by_user"), number(entry.get("reason_changed_at"))
    return text(description), text(user), since or None  # 0 means that it was never set


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
