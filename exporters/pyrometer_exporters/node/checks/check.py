"""Define a check, and the answers that it may give.

A check family is one file in ``subjects/`` with ``CHECKS``, a tuple of :class:`Check`; nothing else has to be touched
to add one. A check is a function of a :class:`~pyrometer_exporters.node.checks.node.Node` that returns a
:class:`Verdict`; it may raise or hang, which costs it alone.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pyrometer_exporters.node.checks.parts import Facts

if TYPE_CHECKING:
    from pyrometer_exporters.node.checks.node import Node

State = Literal["ok", "failed", "unknown", "absent"]
Severity = Literal["critical", "warning"]
Worker = Literal["files", "gpus", "mounts"]

SEVERITIES: Final = ("critical", "warning")
WORKERS: Final[tuple[Worker, ...]] = ("files", "gpus", "mounts")
"""Checks of one worker share a process, one after the other: what hangs in one worker delays no other."""


class Verdict(NamedTuple):
    """The answer of a check.

    Attributes:
        state: ``ok``; ``failed``, with evidence of a loss; ``unknown``, it applies here and could not be looked at;
            ``absent``, it doesn't apply here.
        reason: in words; for ``ok`` what can't be known, mostly empty.
        facts: what this look saw, each kind as a whole: what stays for a day is expected of the node from then on. A
            kind that is missing was not looked at.
        severity: how bad it is, where that is not the check's own severity.
        action: what to do, where that is not the check's own action.
        learned: whether the only ground is what was learned of the node: that alerts, and keeps no job away.
    """

    state: State
    reason: str = ""
    facts: Facts = MappingProxyType({})
    severity: Severity | None = None
    action: str = ""
    learned: bool = False


class Problem(NamedTuple):
    """One thing that is wrong; the fields are those of :class:`Verdict`."""

    reason: str
    severity: Severity | None = None
    action: str = ""
    learned: bool = False


def ok(**facts: Mapping[str, Any]) -> Verdict:
    """Return that the check passed: it looked, and saw what it has to see."""
    return Verdict("ok", "", facts)


def failed(reason: str) -> Verdict:
    """Return that something is wrong, named in one line."""
    return Verdict("failed", reason)


def unknown(reason: str, **facts: Mapping[str, Any]) -> Verdict:
    """Return that the check applies to this node and could not be looked at."""
    return Verdict("unknown", reason, facts)


def absent(reason: str, **facts: Mapping[str, Any]) -> Verdict:
    """Return that the check doesn't apply to this node."""
    return Verdict("absent", reason, facts)


def judged(problems: Sequence[str | Problem], blind: Sequence[str] = (), **facts: Mapping[str, Any]) -> Verdict:
    """Return one verdict of several parts.

    Args:
        problems: what is wrong, each part in its words.
        blind: parts that could not be looked at, in words: without a problem they make the verdict unknown.
        facts: see :class:`Verdict`.
    """
    parts = [problem if isinstance(problem, Problem) else Problem(problem) for problem in problems]
    if not parts:
        return unknown(listed(blind), **facts) if blind else ok(**facts)
    severities = {part.severity for part in parts}
    worst: Severity | None = "critical" if "critical" in severities else None if None in severities else "warning"
    actions = dict.fromkeys(part.action for part in parts if part.severity in (worst, None))
    return Verdict(
        "failed", listed([part.reason for part in parts]), facts, worst, " ".join(filter(None, actions)),
        all(part.learned for part in parts),
    )  # fmt: skip


MOST_LISTED: Final = 8


def listed(parts: Sequence[str]) -> str:
    """Join parts with semicolons; beyond eight, say how many more there are.

    >>> listed([str(n) for n in range(10)])
    '0; 1; 2; 3; 4; 5; 6; 7; and 2 more'
    """
    more = [f"and {len(parts) - MOST_LISTED} more"] if len(parts) > MOST_LISTED else []
    return "; ".join([*parts[:MOST_LISTED], *more])


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: the label ``check``.
        title: what holds when it passes.
        source: where it is read.
        anchor: whose practice in the field it is.
        action: what to do when it fails, an imperative sentence.
        run: answers it.
        severity: ``critical`` if a job would fail or be slow on this node, else ``warning``; a verdict may differ.
        worker: the process that it runs in.
        limits: its thresholds, which the configuration may change.
        enabled: whether it runs unless the configuration says otherwise.
    """

    name: str
    title: str
    source: str
    anchor: str
    action: str
    run: Callable[[Node], Verdict]
    severity: Severity = "critical"
    worker: Worker = "files"
    limits: Mapping[str, float] = field(default_factory=dict)
    enabled: bool = True


def discover() -> tuple[Check, ...]:
    """Return all checks, family by family."""
    from pyrometer_exporters.node.checks import subjects  # noqa: PLC0415  which import this module

    names = sorted(module.name for module in pkgutil.iter_modules(subjects.__path__, f"{subjects.__name__}."))
    return tuple(check for name in names for check in importlib.import_module(name).CHECKS)
