"""Facts from the dumps of PyTorch's Flight Recorder: whom a hung run waits for, and where in the code.

The dumps of all ranks are joined here: in each group, ranks whose latest collective has the highest number and is not
finished wait for those that did not come to it; see :mod:`pyrometer_kit.collectives` for who is to blame. A dump from
before the run's last step is of another moment: its rank counts as one without a dump.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyrometer_alerting.diagnosis.look import Look, Questions
from pyrometer_alerting.model.fact import Fact
from pyrometer_kit.collectives import Communicator, Suspect, culprits

MOST_SUSPECTS = 8
_LABELS = ("attempt", "rank", "group", "group_name", "group_ranks", "collective", "state", "place")


class _Latest(NamedTuple):
    number: int
    collective: str
    waits: bool
    place: str


@dataclass
class _Group:
    """A group of ranks, with the latest collective of each."""

    name: str = ""
    size: int = 0
    latest: dict[int, _Latest] = field(default_factory=dict)

    @property
    def front(self) -> _Latest:
        """Return the collective that ranks wait in: the highest number, and of several names the commonest."""
        highest = max(one.number for one in self.latest.values())
        names = Counter(one.collective for one in self.latest.values() if one.number == highest)
        name = names.most_common(1)[0][0]
        return max(
            (one for one in self.latest.values() if one.number == highest and one.collective == name),
            key=lambda one: (one.waits, one.place),
        )

    def waiting(self) -> list[int]:
        """Return the ranks that wait at the front."""
        front = self.front
        return [rank for rank, one in self.latest.items() if one.waits and one[:2] == front[:2]]


def dumps(questions: Questions) -> Look:
    """Return the ranks that did not reach a collective in which others wait."""
    query = f"max by ({', '.join(_LABELS)}) (pyrometer_train_flight_recorder_collective{questions.of_run()})"
    found = questions.values(query, _LABELS)
    newest = max((labels[0] for labels in found), key=lambda text: (len(text), text), default="")
    early = _of_another_moment(questions) if found else set()
    groups: dict[str, _Group] = {}
    evidence: dict[int, bool] = {}
    for (attempt, rank, name, title, size, collective, state, place), number in found.items():
        if attempt != newest or not rank.isdigit() or (attempt, rank) in early:
            continue
        if not name:  # it waits in a send or receive, and is no culprit
            evidence[int(rank)] = True
            continue
        group = groups.setdefault(name, _Group())
        group.name, group.size = group.name or title, max(group.size, int(size) if size.isdigit() else 0)
        group.latest[int(rank)] = _Latest(int(number), collective, state == "waiting", place)
    return Look(tuple(_facts(questions, groups, evidence, query)), frozenset({"not_arrived"}))


def _of_another_moment(questions: Questions) -> set[tuple[str, ...]]:
    """Return attempt and rank of the dumps that were written before the last step that any rank made."""
    run = questions.of_run()
    written = f"max by (attempt, rank) (pyrometer_train_flight_recorder_dump_timestamp_seconds{run})"
    stepped = f"max by (attempt) (pyrometer_train_last_step_timestamp_seconds{run})"
    return set(questions.values(f"{written} < on(attempt) group_left {stepped}", ("attempt", "rank")))


def _facts(questions: Questions, groups: Mapping[str, _Group], evidence: Mapping[int, bool], query: str) -> list[Fact]:
    standing = {name: group for name, group in groups.items() if group.waiting()}
    silent = {int(rank) for rank in questions.ranks if rank.isdigit()} - {
        rank for group in groups.values() for rank in group.latest
    }
    suspects = culprits([_communicator(name, group, silent) for name, group in standing.items()], evidence)
    suspects = [one for one in suspects if str(one.rank) in questions.ranks and not evidence.get(one.rank)]
    certain = [one for one in suspects if one.certain]
    facts = []
    for suspect in (certain or suspects)[:MOST_SUSPECTS]:
        place = questions.ranks[str(suspect.rank)]
        where = {"node": place.node, "gpu": place.gpu} if place.gpu else {"node": place.node}
        detail = _wait_in(suspect.communicator, groups) + _last_of(suspect, groups)
        strength = 1.0 if certain else 1.0 / len(suspects)
        facts.append(Fact("not_arrived", where, detail, strength=strength, peers=0.0, source=query))
    return facts


def _communicator(name: str, group: _Group, silent: set[int]) -> Communicator:
    """Return the group's progress; who is in another collective of the same number has not come to this one."""
    front = group.front
    counts = {
        rank: one.number - (one.number == front.number and one.collective != front.collective)
        for rank, one in group.latest.items()
    }
    absent = silent if group.size and len(counts) + len(silent) == group.size else set()
    return Communicator(name, counts, dict.fromkeys(absent, "unresponsive"))


def _wait_in(name: str, groups: Mapping[str, _Group]) -> str:
    group = groups[name]
    front, size = group.front, max(group.size, len(group.latest))
    title = f"{group.name} group" if group.name and group.name != "undefined" else f"group {name}"
    place = f" at {front.place}" if front.place else ""
    return f"{len(group.waiting())} of {size} ranks wait in {front.collective} {front.number:,} of the {title}{place}; "


def _last_of(suspect: Suspect, groups: Mapping[str, _Group]) -> str:
    rank = suspect.rank
    last = groups[suspect.communicator].latest.get(rank)
    if last is None:
        return f"rank {rank} has written no dump"
    place = f" at {last.place}" if last.place else ""
    front = groups[suspect.communicator].front
    if last.number == front.number:
        return f"rank {rank} is in {last.collective} instead{place}"
    return f"rank {rank} did not reach it; its last one there was {last.collective} {last.number:,}{place}"
