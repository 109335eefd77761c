"""Slurm through `scontrol`: the one interface that every cluster has (slurmrestd is often not set up).

`scontrol update nodename=...` takes one request for state, reason and comment, so the mark is at the node exactly if it
was drained: the reason is gone after a resume, the comment stays, and that is how a crashed service knows that it did
drain a node which somebody has resumed since.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping

from pyrometer_alerting.model import text
from pyrometer_alerting.policy.rules import SlurmSettings
from pyrometer_alerting.policy.schedulers import NodeState, RefusedError, SchedulerError

# `ALL` and lists such as gpu-[001-511] are names of many nodes to Slurm: never passed on.
NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
MAX_ANSWER_BYTES = 32 << 20
_WORD = re.compile(r"(?:^|(?<=\s))(NodeName|State|Partitions)=(\S*)")
_TEXT = re.compile(r"(?<=\s)(Comment|Reason)=(.*?)(?=\s[A-Z][A-Za-z]*=|$)")
_MARK = re.compile(r"\s*pyrometer:[0-9a-f]{12}")
# States in which a node gets no new jobs; a flag behind a + counts, too.
_OUT = frozenset({
    "DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "MAINT", "NOT_RESPONDING", "POWERED_DOWN",
    "POWERING_DOWN", "PLANNED_DOWN", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED", "UNKNOWN", "INVALID",
    "INVALID_REG", "FUTURE",
})  # fmt: skip
_HELD = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"})


class Slurm:
    """The scheduler of a cluster with Slurm."""

    name = "Slurm"

    def __init__(self, settings: SlurmSettings) -> None:
        self._settings = settings

    def nodes(self) -> Mapping[str, NodeState]:
        """Run `scontrol show node`.

        Raises:
            SchedulerError: there was no usable answer.
        """
        answer = self._run("--oneliner", "--all", "show", "node")
        states = [_node(line) for line in answer.splitlines() if line.startswith("NodeName=")]
        if not states:
            raise SchedulerError("Slurm names no node")
        return {state.name: state for state in states}

    def drain(self, node: str, reason: str, mark: str) -> None:
        """Drain one node, with the mark behind its comment.

        Raises:
            RefusedError: Slurm said no.
            SchedulerError: it is not known whether it was done.
        """
        self._update(node, mark, "state=drain", f"reason={_plain(reason)} [{mark}]")

    def resume(self, node: str, mark: str) -> None:
        """Resume one node.

        Raises:
            RefusedError: Slurm said no.
            SchedulerError: it is not known whether it was done.
        """
        self._update(node, mark, "state=resume")

    def _update(self, node: str, mark: str, *changes: str) -> None:
        if not NODE.fullmatch(node) or node.upper() == "ALL":
            raise RefusedError(f"{node!r} is not the name of a single node")
        comment = _comment(self._run("--oneliner", "show", "node", node))
        kept = _plain(_MARK.sub("", comment).strip())
        self._run("update", f"nodename={node}", *changes, f"comment={f'{kept} {mark}'.strip()}")

    def _run(self, *arguments: str) -> str:
        command = [self._settings.scontrol, *arguments]
        try:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._settings.seconds,
                env=dict(os.environ) | {"LC_ALL": "C"},
                check=False,
            )
        except FileNotFoundError:
            raise RefusedError(f"no {command[0]} here") from None
        except subprocess.TimeoutExpired:
            raise SchedulerError(f"Slurm did not answer within {self._settings.seconds:g} s") from None
        except OSError as error:
            raise RefusedError(f"{command[0]}: {error.strerror}") from None
        if ended.returncode < 0 or len(ended.stdout) > MAX_ANSWER_BYTES:
            raise SchedulerError(f"{command[0]} was killed, or printed too much")
        if ended.returncode:
            raise _refusal((ended.stderr or ended.stdout).decode(errors="replace"))
        return ended.stdout.decode(errors="replace")


def _refusal(said: str) -> SchedulerError:
    """Return the error of what scontrol said: it speaks of a controller that is away as of one that refuses."""
    line = text.plain(next(iter(said.strip().splitlines()), "no reason given"), 200)
    away = re.search(r"(?i)unable to contact|timed out|socket|connect|communicat|time.?out", said) is not None
    return SchedulerError(f"Slurm: {line}") if away else RefusedError(f"Slurm: {line}")


def _node(line: str) -> NodeState:
    values = _fields(line)
    states = frozenset(re.split(r"[+*~#!%$@^-]+", values.get("State", "UNKNOWN").split(" ")[0].upper())) - {""}
    star = "*" in values.get("State", "")  # it does not answer
    reason = re.sub(r"\s+\[[^\[\]]*@[^\[\]]*\]$", "", values.get("Reason", ""))
    return NodeState(
        name=values.get("NodeName", ""),
        in_service=not states & _OUT and not star,
        held=bool(states & _HELD),
        pools=tuple(filter(None, values.get("Partitions", "").split(","))),
        why=reason,
        marks=" ".join((values.get("Comment", ""), reason)),
    )


def _fields(line: str) -> dict[str, str]:
    """Return the first value of each known name: people's own texts, which may look like fields, come last."""
    found: dict[str, str] = {}
    for place in (*_WORD.finditer(line), *_TEXT.finditer(line)):
        found.setdefault(place[1], place[2])
    return found


def _comment(answer: str) -> str:
    found = _fields(answer.strip()).get("Comment", "").strip()
    return "" if found == "(null)" else found


def _plain(value: str) -> str:
    """Return text that is one argument of scontrol, and one line of its answers."""
    return text.plain(value.replace('"', "'"), 300)
