"""Define a check, and the answers that it may give.

A check family is one file in ``subjects/`` with ``CHECKS``, a tuple of :class:`Check`; nothing else has to be touched
to add one. A check is a function of a :class:`~pyrometer_exporters.node.checks.node.Node` that returns a
:class:`Verdict`; it may raise or hang, which costs it alone.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

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
        state: ``ok``; ``failed``; ``unknown``, it applies here and could not be run; ``absent``, it doesn't apply here.
        reason: in words; empty for ``ok``.
        facts: what a healthy node looks like by this check, to be expected of it from tomorrow on.
        severity: where it is another than the check's; what the site has configured goes first.
    """

    state: State
    reason: str = ""
    facts: Mapping[str, Any] = {}
    severity: Severity | None = None


def ok(**facts: Any) -> Verdict:  # noqa: ANN401  whatever JSON can hold
    """Return that the check passed; ``facts`` are what may be expected of this node from now on."""
    return Verdict("ok", "", facts)


def failed(reason: str) -> Verdict:
    """Return that something is wrong, named in one line."""
    return Verdict("failed", reason)


def unknown(reason: str, **facts: Any) -> Verdict:  # noqa: ANN401  whatever JSON can hold
    """Return that the check applies to this node and could not be run; ``facts`` as in :func:`ok`."""
    return Verdict("unknown", reason, facts)


def absent(reason: str) -> Verdict:
    """Return that the check doesn't apply to this node."""
    return Verdict("absent", reason)


def judged(problems: list[str], **facts: Any) -> Verdict:  # noqa: ANN401  whatever JSON can hold
    """Return :func:`failed` with all problems in one line, else :func:`ok`."""
    return failed(listed(problems)) if problems else ok(**facts)


MOST_LISTED: Final = 8


def listed(parts: list[str]) -> str:
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
        severity: ``critical`` if a job would fail or be slow on this node, else ``warning``.
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
