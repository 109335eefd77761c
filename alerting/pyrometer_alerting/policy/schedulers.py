"""Who gives nodes to jobs: what the policy asks of Slurm and Kubernetes, whatever it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class SchedulerError(Exception):
    """No usable answer, so nothing is known; the message is one line that may be shown."""


class RefusedError(SchedulerError):
    """It answered that it will not: nothing has changed."""


@dataclass(frozen=True)
class NodeState:
    """One node as its scheduler sees it.

    `in_service` is False where it gets no jobs, for any reason; `held` is True where somebody drained or cordoned it.
    `marks` is whatever text of it may hold an action's mark, `why` what people wrote about it.
    """

    name: str
    in_service: bool
    held: bool
    pools: tuple[str, ...] = ()
    why: str = ""
    marks: str = ""


class Scheduler(Protocol):
    """The scheduler of one cluster; every method raises SchedulerError."""

    name: str

    def nodes(self) -> Mapping[str, NodeState]:
        """Return all nodes by their names."""
        ...

    def drain(self, node: str, reason: str, mark: str) -> None:
        """Take a node out of service, and leave the mark at it; its jobs go on."""
        ...

    def resume(self, node: str, mark: str) -> None:
        """Put a node back into service; the mark of the action stays at it."""
        ...
