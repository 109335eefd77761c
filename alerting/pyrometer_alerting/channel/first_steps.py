"""The first step of a cause: *Now* in its runbook, for the part at hand, with names and commands filled in.

The runbook is the only source: docs/alerts.md says how it is written. A name that is no plain word is not put into a
command that people paste.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from pyrometer_alerting.channel import runbooks
from pyrometer_alerting.model import text

SLURM, KUBERNETES, NO_SCHEDULER = "slurm", "kubernetes", "none"
SCHEDULERS = (SLURM, KUBERNETES, NO_SCHEDULER)
_DRAINS = {
    SLURM: "`scontrol update NodeName={node} State=DRAIN Reason={reason}`",
    KUBERNETES: "`kubectl cordon {node}`",
    NO_SCHEDULER: "take {node} out of service",
}
# Commands that end a job, or restart it where nodes are not drained, in place of the words that say so.
_JOB = re.compile(r"[1-9]\d*(_\d+)?")
_JOB_COMMANDS: Mapping[str, Mapping[str, str]] = {
    SLURM: {
        "restart the run without it after the next checkpoint": "`scontrol requeue {job}` after the next checkpoint",
        "end the run and start it without it": "`scontrol requeue {job}`",
        "end the job": "`scancel {job}`",
    }
}
_NOW = re.compile(r"\*\*Do\.\*\* Now: (.*?)(?=\n\n|\n1\. |\Z)", re.DOTALL)
_EXTENT = re.compile(r"(?:^| )(A GPU|A node|Several): ")
_OF_RUN = re.compile(r"[,;] [^,;.`]*\bthe run\b[^,;.`]*")
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


@cache
def steps() -> Mapping[str, Mapping[str, str]]:
    """Return the step of each heading of the runbooks by extent; the empty extent holds for all others."""
    found = {}
    documents = "\n".join(map(runbooks.source, runbooks.PAGES))
    for section in re.split(r"\n(?=###? )", documents):
        heading, now = section.partition("\n")[0].lstrip("# "), _NOW.search(section)
        if now is not None:
            before, *pieces = _EXTENT.split(" ".join(now[1].split()))
            found[heading] = {"": before, **dict(zip(pieces[::2], pieces[1::2], strict=True))}
    return found


def scheduler_of(schedulers: str, cluster: str) -> str:
    """Return a cluster's scheduler from a text such as `slurm,lab=kubernetes`; one without a cluster is all others'."""
    pairs = [given.rpartition("=")[::2] for given in schedulers.split(",")]
    named = {name.strip(): scheduler.strip() for name, scheduler in pairs}
    return named.get(cluster) or named.get("", NO_SCHEDULER)


def first_step(
    runbook: str, labels: Mapping[str, str], *, has_run: bool, scheduler: str, cause: str = "", job: str = ""
) -> str:
    """Return the first step in mrkdwn, its commands in backticks; empty where the runbook has none.

    Args:
        runbook: its heading.
        labels: those of the part; none is no single part.
        has_run: whether a run is concerned.
        scheduler: one of SCHEDULERS.
        cause: what the scheduler is told as the reason.
        job: the id of the run's job; empty where it is not known.
    """
    by_extent = steps().get(runbook)
    if by_extent is None:
        return ""
    extent = "A GPU" if labels.get("gpu") else "A node" if labels.get("node") else "Several"
    step = by_extent.get(extent) or by_extent[""] or next(iter(by_extent.values()))
    step = step if has_run else _OF_RUN.sub("", step)
    if has_run and _JOB.fullmatch(job):
        for words, command in _JOB_COMMANDS.get(scheduler, {}).items():
            step = step.replace(words, command.format(job=job))
    if labels.get("switch") and labels.get("switch_port"):
        port = f"port {text.clean(labels['switch_port'])} of switch {text.clean(labels['switch'])}"
        step = step.replace("the switch port at the other end", port)
    return _filled(step, labels, scheduler, re.sub(r"\W+", "_", cause.lower()).strip("_") or "pyrometer")


def drain_command(scheduler: str, node: str, reason: str) -> str:
    """Return how a node is taken out of service, a command in backticks; empty where its name is no plain word."""
    return _DRAINS[scheduler].format(node=node, reason=reason[:60]) if _SAFE.fullmatch(node) else ""


def _filled(step: str, labels: Mapping[str, str], scheduler: str, reason: str) -> str:
    node, port = labels.get("node", ""), labels.get("device", "")
    names = {"NODE": node, "N": labels.get("gpu", ""), "PORT": port}
    drain = drain_command(scheduler, node, reason) or "drain the node"
    step = re.sub(r"[Dd]rain NODE", lambda _match: drain, step)
    pieces = step.split("`")
    for place in range(len(pieces)):
        for name, value in names.items():
            safe = value if _SAFE.fullmatch(value) else ""
            shown = safe or ("the node" if name == "NODE" and place % 2 == 0 else name)
            pieces[place] = re.sub(rf"\b{name}\b", shown, pieces[place])
        pieces[place] = text.escape(pieces[place])
    return "`".join(pieces)
