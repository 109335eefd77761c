"""Who gives nodes to jobs: what the policy asks of Slurm and Kubernetes, whatever it is.

Each drain is noted at its node, in words that the Slurm scripts read and write, too: so all who drain count the same
drains, also without the database.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

OURS = "pyrometer: "
"""What every reason of ours begins with, that of the scripts, too."""
AGAIN = "again within a day: "


class SchedulerError(Exception):
    """No usable answer, so nothing is known; the message is one line that may be shown."""


class RefusedError(SchedulerError):
    """It answered that it will not: nothing has changed."""


@dataclass(frozen=True)
class Claim:
    """A node is unfit for these topics since then (Unix seconds): `topic,topic@since[:again][:checksum][:policy]`.

    The scripts write it before a drain, and with the reason's checksum once it is drained; one with `policy` behind it
    is ours, and the scripts do not take it back.
    """

    topics: tuple[str, ...]
    since: float
    again: bool = False
    checksum: int | None = None

    @classmethod
    def read(cls, words: str) -> Claim | None:
        """Return the claim of these words; None if they are none."""
        match = re.fullmatch(r"([^@:\s]*)@(\d{1,12})((?::[a-z0-9]*)*)", words)
        if match is None:
            return None
        more = match[3].split(":")
        sums = [int(part) for part in more if part.isdigit()]
        return cls(
            tuple(filter(None, match[1].split(","))), float(match[2]), "again" in more, sums[-1] if sums else None
        )

    def of_reason(self, why: str) -> str:
        """Return the words at a node that the policy drains for this reason."""
        topics = ",".join(map(word, self.topics))
        return f"{topics}@{self.since:.0f}:{'again:' if self.again else ''}{checksum(why)}:policy"


@dataclass(frozen=True)
class NodeState:
    """One node as its scheduler sees it.

    `in_service` is False where it gets no jobs, for any reason; `held` is True where somebody drained or cordoned it.
    `marks` is whatever text of it may hold an action's mark, `why` what people wrote about it, `claim` what we wrote,
    `returned_at` when we brought it back (Unix seconds; 0 for never). `stops`: somebody has stopped all drains here.
    """

    name: str
    in_service: bool
    held: bool
    pools: tuple[str, ...] = ()
    why: str = ""
    marks: str = ""
    claim: Claim | None = None
    returned_at: float = 0.0
    stops: bool = False

    @property
    def is_ours(self) -> bool:
        """True if it is out of service for a reason of ours which nobody has changed."""
        claim = self.claim
        return self.held and self.why.startswith(OURS) and claim is not None and claim.checksum == checksum(self.why)


class Scheduler(Protocol):
    """The scheduler of one cluster; every method raises SchedulerError."""

    name: str

    def nodes(self) -> Mapping[str, NodeState]:
        """Return all nodes by their names."""
        ...

    def drain(self, node: str, reason: str, mark: str, claim: Claim) -> None:
        """Take a node out of service, and leave the mark and the claim at it; its jobs go on.

        One that is out of service by now is refused.
        """
        ...

    def resume(self, node: str, mark: str, why: str, returned_at: float = 0.0) -> None:
        """Put a node back into service; the mark of the action, if any, stays at it, and when it was returned.

        One that has another reason than `why` by now is refused.
        """
        ...

    def stop(self, node: str, *, on: bool) -> None:
        """Write at a node that all drains are stopped, or take that back."""
        ...


def refuse_change(state: NodeState, why: str | None) -> None:
    """Refuse what was decided on an older state: a drain (`why` is None) of a held node, a return for another reason.

    Raises:
        RefusedError: somebody has changed it.
    """
    if why is None and state.held:
        raise RefusedError(f"somebody else has drained it: {state.why}")
    if why is not None and not (state.held and state.why == why):
        raise RefusedError(f"its reason is another one by now: {state.why}" if state.held else "it is in service")


def word(topic: str) -> str:
    """Return a topic as one word of a claim."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", topic)


def checksum(content: str) -> int:
    """Return what POSIX' cksum says of a text, as the scripts ask it."""
    data = content.encode("utf-8", "surrogateescape")
    length, rest = b"", len(data)
    while rest:
        length, rest = length + bytes([rest & 0xFF]), rest >> 8
    crc = 0
    for byte in data + length:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc & 0x80000000 else 0)) & 0xFFFFFFFF
    return crc ^ 0xFFFFFFFF
