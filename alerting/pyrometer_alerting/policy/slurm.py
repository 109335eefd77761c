"""Slurm through `scontrol`: the one interface that every cluster has (slurmrestd is often not set up).

`scontrol update nodename=...` takes one request for state, reason and comment, so the mark is at the node exactly if it
was drained: the reason is gone after a resume, the comment stays, and that is how a crashed service knows that it did
drain a node which somebody has resumed since.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence

from pyrometer_alerting.model import text
from pyrometer_alerting.policy.rules import SlurmSettings
from pyrometer_alerting.policy.schedulers import Claim, NodeState, RefusedError, SchedulerError, refuse_change

# `ALL` and lists such as gpu-[001-511] are names of many nodes to Slurm: never passed on.
NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
MAX_ANSWER_BYTES = 32 << 20
_WORD = re.compile(r"\s(State|Partitions)=(\S*)")
# People's texts come last, and may look like fields: only these end them (Slurm's src/api/node_info.c).
_TEXT = re.compile(r"\s(Reason|Comment|Extra|InstanceId|InstanceType|ReservationName|ResvName)=")
_MARK = re.compile(r"\s*\bpyrometer:[0-9a-f]{12}\b")
_CLAIM, _BACK, _STOP = (re.compile(rf"(?:^|(?<=[ =]))pyrometer-{word}(?:\s+|$)") for word in
                        (r"unfit=(\S*)", r"back=(\d{1,12})", "stop"))  # fmt: skip
# Slurm says one of these to a request that it will never take (src/common/slurm_errno.c).
_NO = re.compile(
    r"(?i)invalid node (name|state)|^node \S+ not found|permission denied|access/permission|invalid user"
    r"|not authorized|invalid option"
)
# States in which a node gets no new jobs; a flag behind a + counts, too.
_OUT = frozenset({
    "DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "MAINT", "MAINTENANCE", "NOT_RESPONDING",
    "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "PLANNED_DOWN", "REBOOT", "REBOOT_ISSUED",
    "REBOOT_REQUESTED", "UNKNOWN", "INVALID", "INVALID_REG", "FUTURE",
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
        states = [_node(line) for line in answer.split("\n") if line.startswith("NodeName=")]
        if not states:
            raise SchedulerError("Slurm names no node")
        return {state.name: state for state in states}

    def drain(self, node: str, reason: str, mark: str, claim: Claim) -> None:
        """Drain one node, with claim and mark behind its comment.

        Raises:
            RefusedError: Slurm said no, or somebody has drained it meanwhile.
            SchedulerError: it is not known whether it was done.
        """
        state, comment = self._look(node)
        refuse_change(state, None)
        why = f"{_plain(reason)} [{mark}]"
        kept = _CLAIM.sub("", comment) if comment is not None else None
        words = [f"pyrometer-unfit={claim.of_reason(why)}", mark]
        self._update(node, kept, "state=drain", f"reason={why}", words=words)

    def resume(self, node: str, mark: str, why: str, returned_at: float = 0.0) -> None:
        """Resume one node, with the mark and when it was returned behind its comment.

        Raises:
            RefusedError: Slurm said no, or it has another reason by now.
            SchedulerError: it is not known whether it was done.
        """
        state, comment = self._look(node)
        refuse_change(state, why)
        kept = _BACK.sub("", _CLAIM.sub("", comment)) if comment is not None else None
        back = [f"pyrometer-back={returned_at:.0f}"] if returned_at else []
        self._update(node, kept, "state=resume", words=[*back, mark])

    def stop(self, node: str, *, on: bool) -> None:
        """Write the word that stops all drains into a node's comment, or remove it.

        Raises:
            RefusedError: Slurm said no, or the comment can't be told from other fields.
            SchedulerError: it is not known whether it was done.
        """
        _state, comment = self._look(node)
        if comment is None:
            raise RefusedError(f"the comment of {node} looks like other fields: change it by hand")
        marks = [mark.strip() for mark in _MARK.findall(comment)]
        self._update(node, _STOP.sub("", comment), words=[*marks, *(["pyrometer-stop"] if on else [])])

    def _look(self, node: str) -> tuple[NodeState, str | None]:
        """Return a node as it is right now, and its comment, None if that can't be told from other fields."""
        if not NODE.fullmatch(node) or node.upper() == "ALL":
            raise RefusedError(f"{node!r} is not the name of a single node")
        line = self._run("--oneliner", "show", "node", node).strip()
        return _node(line), _texts(line).get("Comment", "")

    def _update(self, node: str, comment: str | None, *changes: str, words: Sequence[str]) -> None:
        """Change a node in one request; a comment of people's that can't be told from other fields stays as it is."""
        if comment is not None:
            kept = _MARK.sub("", comment).strip()
            changes = (*changes, f"comment={' '.join(filter(None, (kept, *words)))}")
        self._run("update", f"nodename={node}", *changes)

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
        return ended.stdout.decode(errors="surrogateescape")


def _refusal(said: str) -> SchedulerError:
    """Return the error of what scontrol said; what no table lists may be over in a moment, and is waited for."""
    line = text.plain(next(iter(said.strip().splitlines()), "no reason given"), 200)
    return RefusedError(f"Slurm: {line}") if _NO.search(said) else SchedulerError(f"Slurm: {line}")


def _node(line: str) -> NodeState:
    line = line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    values = {match[1]: match[2] for match in reversed(list(_WORD.finditer(line)))}  # the first of each
    texts = _texts(line)
    states = frozenset(re.split(r"[+*~#!%$@^-]+", values.get("State", "UNKNOWN").upper())) - {""}
    star = "*" in values.get("State", "")  # it does not answer
    reason = re.sub(r"\s+\[[^\[\]@ ]*@[^\[\] ]*\](?=$|  )", "", texts.get("Reason") or "").strip()
    claim, back = _CLAIM.search(line), _BACK.search(line)
    return NodeState(
        name=line.removeprefix("NodeName=").split(" ")[0],
        in_service=not states & _OUT and not star,
        held=bool(states & _HELD),
        pools=tuple(filter(None, values.get("Partitions", "").split(","))),
        why=reason,
        marks=" ".join((texts.get("Comment") or "", reason)),
        claim=Claim.read(claim[1]) if claim else None,
        returned_at=float(back[1]) if back else 0.0,
        stops=_STOP.search(line) is not None,
    )


def _texts(line: str) -> dict[str, str | None]:
    """Return what people wrote, by its field; a comment is None where it can't be told from other fields."""
    places = list(_TEXT.finditer(line))
    ends = [*(place.start() for place in places[1:]), len(line)]
    found: dict[str, str | None] = {}
    for place, end in zip(places, ends, strict=False):
        found.setdefault(place[1], line[place.end() : end])
    names = [place[1] for place in places]
    # A reason of Slurm's has its author and time behind it.
    is_signed = "Reason" not in found or re.search(r" \[\S+@\S+\]", found["Reason"] or "")
    if names.count("Comment") > 1 or names.count("Reason") > 1 or not is_signed:
        found["Comment"] = None
    elif found.get("Comment") == "(null)":
        found["Comment"] = ""
    return found


def _plain(value: str) -> str:
    """Return text that is one argument of scontrol, one line of its answers, and looks like no field of them."""
    return text.plain(value.replace('"', "'").replace("=", ":"), 300)
