"""Runs kept apart: expressions in which runs of one name, which are different jobs, would become one."""

from __future__ import annotations

from collections.abc import Iterator

from pyrometer_dashboards.promql import Expression

NAME, JOB = "run", "job_id"
# Whose jobs follow each other: what these keep beside the name is one run, on purpose (train.rules.yaml).
CONTINUED = frozenset(("lineage", "user"))


def confusing(tree: Expression) -> Iterator[str]:
    """Yield each aggregation and matching that keeps the name of a run without its job."""
    for node, _ in tree.walk():
        if node.kind == "aggregation" and _confuses(node.grouping == "without", node.labels):
            yield f"{node.name} {node.grouping} ({', '.join(node.labels)})"
        if node.kind == "binary":
            for word in ("on", "ignoring"):
                given = node.extra.get(word)
                if given is not None and _confuses(word == "ignoring", given.split(",")):
                    yield f"{node.name} {word} ({given})"


def unchosen(tree: Expression) -> Iterator[str]:
    """Yield the series that a variable chooses by the name of one run alone."""
    for node, _ in tree.walk():
        chosen = {label: (operator, value) for label, operator, value in node.matchers}
        operator, value = chosen.get(NAME, ("", ""))
        if operator == "=" and value.startswith("$") and JOB not in chosen:
            yield node.name


def _confuses(dropped: bool, labels: list[str] | tuple[str, ...]) -> bool:
    names = {label.strip() for label in labels}
    if dropped:
        return JOB in names and NAME not in names
    return NAME in names and JOB not in names and not names & CONTINUED
