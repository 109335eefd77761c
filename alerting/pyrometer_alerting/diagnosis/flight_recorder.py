"""Facts from the dumps of PyTorch's Flight Recorder: the ranks that hold up a collective in which the others wait.

Exporters serve what each rank's dump holds; :mod:`pyrometer.hang` joins it, as the command ``pyrometer-hang`` does with
the files. A dump from before the run's last step is of another moment: its rank counts as one without a dump.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyrometer.hang.blame import Hang, Meeting, examine
from pyrometer.hang.members import ranks_of
from pyrometer.hang.records import Collective, Dump, Part, Transfer
from pyrometer.hang.waits import Wait
from pyrometer_alerting.diagnosis.look import Look, Questions
from pyrometer_alerting.model.fact import Fact

MOST_SUSPECTS = 8
LEAST_RANKS = 4096  # that a label of a small run may name: a job writes it, and all of them are held in memory
_LABELS = (
    "attempt", "rank", "group", "group_name", "group_ranks", "group_members", "collective", "state", "place", "shape",
)  # fmt: skip
_TRANSFER = re.compile(r"(?:^|:)(send|recv) \d{1,9}(?:->|<-)(\d{1,9})")
_SHAPE = re.compile(r"(\d{1,18}) (\d{1,18}) (.*)")


def dumps(questions: Questions) -> Look:
    """Return the ranks that did not reach a collective in which others wait."""
    query = f"max by ({', '.join(_LABELS)}) (pyrometer_train_flight_recorder_collective{questions.of_run()})"
    found = questions.values(query, _LABELS)
    newest = max((labels[0] for labels in found), key=lambda text: (len(text), text), default="")
    early = _of_another_moment(questions) if found else set()
    ranks = {int(rank) for rank in questions.ranks if rank.isdecimal()}
    read = _Read(most_ranks=max(LEAST_RANKS, len(ranks)))
    for (attempt, rank, name, title, size, members, collective, state, place, shape), number in found.items():
        if attempt == newest and rank.isdecimal() and math.isfinite(number) and (attempt, rank) not in early:
            read.add(int(rank), _Series(name, title, size, members, collective, state, place, shape, int(number)))
    read.complete(ranks)
    return Look(tuple(_blamed(questions, read, query)), frozenset({"not_arrived"}))


def _of_another_moment(questions: Questions) -> set[tuple[str, ...]]:
    """Return attempt and rank of the dumps that were written before the last step that any rank made."""
    run = questions.of_run()
    written = f"max by (attempt, rank) (pyrometer_train_flight_recorder_dump_timestamp_seconds{run})"
    stepped = f"max by (attempt) (pyrometer_train_last_step_timestamp_seconds{run})"
    return set(questions.values(f"{written} < on(attempt) group_left {stepped}", ("attempt", "rank")))


@dataclass(frozen=True)
class _Series:
    """A series of a dump, its labels and its value."""

    name: str
    title: str
    size: str
    members: str
    collective: str
    state: str
    place: str
    shape: str
    number: int

    @property
    def group(self) -> str:
        """Return the group's key: disjoint groups may have one name."""
        return f"{self.name} {self.members}".strip()

    def operation(self) -> Collective:
        name = self.collective.split(":", 1)[-1]
        shape = _SHAPE.fullmatch(self.shape)
        parts = (Part(name, int(shape[1]), int(shape[2]), shape[3]),) if shape else ()
        return Collective(self.number, self.collective, self.state == "finished", self.place, parts=parts)


@dataclass
class _Read:
    """All ranks' dumps, with the titles and sizes of the groups."""

    most_ranks: int
    by_rank: dict[int, Dump] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, rank: int, series: _Series) -> None:
        dump = self.by_rank.setdefault(rank, Dump(rank))
        transfer = _TRANSFER.search(series.collective)
        group = series.group
        if group:
            self.titles[group] = series.title if series.title not in ("", "undefined") else f"group {series.name}"
            self.sizes[group] = max(self.sizes.get(group, 0), int(series.size) if series.size.isdecimal() else 0)
            members = ranks_of(series.members, self.most_ranks)
            if members:
                dump.members[group] = members
        elif series.state == "partial":
            dump.reaches_back = 1.0  # whether it was in a group of which it serves nothing can't be told
        if transfer or (not group and series.state == "waiting"):
            peer = int(transfer[2]) if transfer else -1
            sends = bool(transfer) and series.collective.find("send") >= 0
            dump.transfers.append(Transfer(group, sends, peer, series.number, series.operation()))
        elif group:
            _add(dump, group, series)

    def complete(self, ranks: set[int]) -> None:
        """Add the ranks without a dump to the groups that exactly they make whole, where members are not told."""
        silent = ranks - self.by_rank.keys()
        for group, size in self.sizes.items():
            heard = {rank for rank, dump in self.by_rank.items() if group in dump.latest}
            if len(heard) + len(silent) == size and not any(group in dump.members for dump in self.by_rank.values()):
                for rank in heard:
                    self.by_rank[rank].members[group] = frozenset(heard | silent)


def _add(dump: Dump, group: str, series: _Series) -> None:
    operation = series.operation()
    if series.state == "waiting":
        dump.open[group] = operation
    if series.state != "launched":
        dump.recent.setdefault(group, {})[operation.sequence] = operation
    latest = dump.latest.get(group)
    if latest is None or operation.sequence > latest.sequence:
        dump.latest[group] = operation


def _blamed(questions: Questions, read: _Read, query: str) -> list[Fact]:
    hang = examine(read.by_rank.values())
    named = [rank for rank in hang.named if str(rank) in questions.ranks]
    facts = []
    for rank in named[:MOST_SUSPECTS]:
        place = questions.ranks[str(rank)]
        where = {"node": place.node, "gpu": place.gpu} if place.gpu else {"node": place.node}
        strength = 1.0 if hang.sure else 1.0 / max(len(hang.named), len(hang.circle), 2)
        detail = _detail(rank, hang, read)
        facts.append(Fact("not_arrived", where, detail, strength=strength, peers=0.0, source=query))
    return facts


def _detail(rank: int, hang: Hang, read: _Read) -> str:
    """Return who waits for a rank, in the smallest group in which somebody does, and where that rank is."""
    waits = [wait for wait in hang.waits if rank in wait.awaited]
    if waits:
        wait = min(waits, key=lambda wait: (len(wait.members), wait.group))
        return _wait_at(wait, read) + _last_of(rank, wait, read.by_rank)
    meeting = next(meeting for meeting in hang.meetings if meeting.peer == rank)
    return (
        _meeting(meeting, read)
        + f"rank {rank} "
        + ("did not come to it" if rank in read.by_rank else "has written no dump")
    )


def _wait_at(wait: Wait, read: _Read) -> str:
    size = max(read.sizes.get(wait.group, 0), len(wait.members))
    name = f"{wait.collective.name or 'collective'} {wait.collective.sequence:,}"
    return (
        f"{len(wait.waiting)} of {size} ranks wait in {name} of the {_title(wait.group, read)}{_at(wait.collective)}; "
    )


def _meeting(meeting: Meeting, read: _Read) -> str:
    transfer = meeting.transfer
    verb = "sends to" if transfer.sends else "receives from"
    group = _title(transfer.group, read)
    return f"rank {meeting.rank} {verb} rank {meeting.peer} in the {group}{_at(transfer.collective)}; "


def _title(group: str, read: _Read) -> str:
    title = read.titles.get(group, group)
    return title if title.startswith("group ") else f"{title} group"


def _at(collective: Collective) -> str:
    return f" at {collective.place}" if collective.place else ""


def _last_of(rank: int, wait: Wait, by_rank: Mapping[int, Dump]) -> str:
    dump = by_rank.get(rank)
    if dump is None:
        return f"rank {rank} has written no dump"
    other = dict(wait.others).get(rank)
    last = dump.latest.get(wait.group)
    if other:
        return f"rank {rank} is in {other} instead{_at(dump.recent[wait.group][wait.collective.sequence])}"
    if rank in wait.idle:
        return f"rank {rank} launched it, but its GPU has not begun it"
    if last is None:
        return f"rank {rank} did not reach it"
    return f"rank {rank} did not reach it; its last one there was {last.name} {last.sequence:,}{_at(last)}"
