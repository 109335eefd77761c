"""One look at the node: all checks that are on, each with its verdict."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyrometer_exporters.node.checks import kept
from pyrometer_exporters.node.checks.check import Check, Verdict, discover
from pyrometer_exporters.node.checks.config import Settings, load
from pyrometer_exporters.node.checks.node import Expected, Gpus, Node, Paths
from pyrometer_exporters.node.checks.subjects.processes import STUCK, stuck_since
from pyrometer_exporters.node.checks.workers import Answer, run_in_workers

Runner = Callable[[Sequence[Check], Node], Mapping[str, Answer]]


@dataclass(frozen=True)
class Result:
    """A check and its answer; ``severity`` is the configured one, else the verdict's, else the check's."""

    check: Check
    severity: str
    verdict: Verdict
    seconds: float

    @property
    def action(self) -> str:
        """The step to take."""
        return self.verdict.action or self.check.action

    @property
    def keeps_jobs_away(self) -> bool:
        """True for a critical failure with other ground than what was learned."""
        return self.verdict.state == "failed" and self.severity == "critical" and not self.verdict.learned


@dataclass(frozen=True)
class Look:
    """The findings of a look.

    Attributes:
        node: the node's name.
        at: when it ended, in seconds since the epoch.
        results: one for each check that ran.
        notes: what could not be kept or read, in words.
    """

    node: str
    at: float
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()

    def of(self, state: str) -> list[Result]:
        """Return the results of a state, critical ones first."""
        results = [result for result in self.results if result.verdict.state == state]
        return sorted(results, key=lambda result: result.severity != "critical")

    @property
    def healthy(self) -> bool:
        """True if no critical check failed."""
        return not any(result.severity == "critical" for result in self.of("failed"))


@dataclass(frozen=True)
class Looker:
    """Looks at the node.

    Args:
        paths: where its files are.
        config: the configuration's file; None for none.
        state: the exporter's state folder; None for none.
        ask_gpus: asks the driver.
        run: runs the checks; in child processes by default.
        wall: the time, in seconds since the epoch.
        replaced: fields of the :class:`Node` that are other than the machine's.
    """

    paths: Paths
    config: Path | None
    state: Path | None
    ask_gpus: Gpus | None
    run: Runner = run_in_workers
    wall: Callable[[], float] = time.time
    replaced: Mapping[str, Any] = field(default_factory=dict)

    def look(self, *, keep: bool = False, only: Sequence[str] = (), ignore: re.Pattern[str] | None = None) -> Look:
        """Run the checks.

        Args:
            keep: write down what there is, to be expected from tomorrow on.
            only: names of checks; empty for all that are on.
            ignore: names of checks that don't run.

        Raises:
            UsageError: the configuration can't be used.
        """
        settings = load(self.config, node_name(), discover())
        before = kept.load(self.state)
        checks = [
            check for check in settings.checks
            if (not only or check.name in only) and not (ignore and ignore.match(check.name))
        ]  # fmt: skip
        node = self._node(settings, before)
        answers = self.run(checks, node)
        results = tuple(
            Result(check, settings.severities.get(check.name) or verdict.severity or check.severity, verdict, seconds)
            for check in checks
            for verdict, seconds in (answers[check.name],)
        )
        look = Look(node_name(), self.wall(), results)
        return replace(look, notes=self._keep(look, node, before)) if keep else look

    def _node(self, settings: Settings, before: kept.Kept) -> Node:
        expected = Expected(settings.expect, before.learned)
        earlier = {STUCK: before.stuck} if self.state is not None else {}
        return Node(
            self.paths, expected, settings.limits, settings.listed, earlier, self.ask_gpus, wall=self.wall,
            **self.replaced,
        )  # fmt: skip

    def _keep(self, look: Look, node: Node, before: kept.Kept) -> tuple[str, ...]:
        facts = {kind: parts for result in look.results for kind, parts in result.verdict.facts.items()}
        try:
            stuck = stuck_since(node)
            kept.save(self.state, before.after(facts, stuck=stuck, now=look.at, uptime=node.boottime()))
        except OSError as error:
            return (f"the node's hardware could not be saved: {error}",)
        return ()


def node_name() -> str:
    """Return the node's name; in a container the host's comes from the environment."""
    return os.environ.get("NODE_NAME") or socket.gethostname()
