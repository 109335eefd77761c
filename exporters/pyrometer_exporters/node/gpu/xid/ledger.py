"""Count each Xid once, though several sources report it.

The driver reports an error twice, through NVML's events and in the kernel's log; either can miss some (NVML those of a
lost GPU, the log those that were overwritten or that we may not read). An event from one source is matched with one
that another reported shortly before, if this source has not reported that yet. So the count is the larger of the two
numbers, never the sum: correct if one of the sources is complete, in whatever order they come.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyrometer_exporters.node.gpu.xid.catalogue import Classes
from pyrometer_exporters.node.gpu.xid.lines import FALLEN_OFF_BUS, XidEvent

# How far apart the times may be that two sources give for one event: the kernel's log has a clock that is never
# adjusted. As long as one source is complete, longer than needed does no harm (see above).
WINDOW_SECONDS = 60.0
# Events kept of one Xid in a storm: older ones have been reported by every source that will.
MOST_RECENT = 2048
# A damaged line could name any GPU and number; nobody has so many.
MOST_SERIES = 1024


class Key(NamedTuple):
    """A GPU by PCI address and an Xid."""

    pci: str
    xid: int


@dataclass
class Seen:
    """One event, and the sources that reported it."""

    since: float
    """It came after this, and before ``at``; CLOCK_MONOTONIC, which an exporter's restart doesn't touch."""
    at: float
    sources: set[str]


class RecentEvents:
    """The latest events of one GPU and Xid, the oldest first, for sources that may still report them.

    In a storm one source has reported every event itself. So the first event that each source may still report is
    remembered, and no call looks at those before it again (`benchmarks/bench_xid_storm.py`).
    """

    def __init__(self, events: Iterable[Seen] = ()) -> None:
        self._events = deque(events, MOST_RECENT)
        self._dropped = 0
        self._open_from: dict[str, int] = {}
        """By source, the number of the first event that it has not reported; numbers count from the very first one."""

    def __iter__(self) -> Iterator[Seen]:
        return iter(self._events)

    def __bool__(self) -> bool:
        return bool(self._events)

    def match(self, source: str, since: float, at: float) -> bool:
        """Note that a source reports an event; return whether it is one that another source has reported."""
        for number in range(self._first_open(source), len(self._events)):
            seen = self._events[number]
            if source in seen.sources or seen.since - WINDOW_SECONDS > at or since - WINDOW_SECONDS > seen.at:
                continue
            seen.sources.add(source)
            return True
        self._dropped += len(self._events) == MOST_RECENT
        self._events.append(Seen(since, at, {source}))
        return False

    def expire(self, horizon: float) -> None:
        """Drop the events from before a moment."""
        while self._events and self._events[0].at < horizon:
            self._events.popleft()
            self._dropped += 1

    def _first_open(self, source: str) -> int:
        number = max(0, self._open_from.get(source, 0) - self._dropped)
        while number < len(self._events) and source in self._events[number].sources:
            number += 1
        self._open_from[source] = number + self._dropped
        return number


@dataclass(frozen=True)
class Owner:
    """The job and user of the process that an Xid named, if known."""

    job_id: str = ""
    user: str = ""


@dataclass(frozen=True)
class Last:
    """The latest Xid of a GPU."""

    event: XidEvent
    owner: Owner = Owner()


@dataclass
class Ledger:
    """The counts of a node. Not thread-safe.

    Attributes:
        boot: the kernel's boot id; events of another boot can't be reported twice.
        sequence: number of the last record of the kernel's log that counted, in ``boot``.
        counts: events by GPU, Xid and class.
        consequences: those of them that the driver called a consequence of an earlier Xid, by that.
        at: when the latest of each came, seconds since the epoch.
        last: the latest Xid of each GPU.
        old: GPUs whose latest Xid came before ``boot``.
        gone: GPUs that have fallen off the bus and not answered since.
        uuids: which GPU the counts of a PCI address belong to.
    """

    boot: str = ""
    sequence: int = -1
    counts: Counter[tuple[Key, str]] = field(default_factory=Counter)
    consequences: Counter[tuple[Key, str]] = field(default_factory=Counter)
    at: dict[Key, float] = field(default_factory=dict)
    last: dict[str, Last] = field(default_factory=dict)
    old: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    uuids: dict[str, str] = field(default_factory=dict)
    recent: dict[Key, RecentEvents] = field(default_factory=dict)
    """Events that other sources may still report, the oldest first."""
    heard: dict[str, float] = field(default_factory=dict)
    """When NVML was last asked for a GPU's events: later ones may yet be reported. Not kept over a restart."""
    changes: int = 0
    """Grows whenever something changed that must survive a restart."""

    def booted(self, boot: str) -> None:
        """Note the boot: after another one, events from before can't be reported again."""
        if boot != self.boot:
            self.boot, self.sequence = boot, -1
            self.old = set(self.last)
            self.recent.clear()
            self.gone.clear()

    def take(
        self, event: XidEvent, classes: Classes, came: tuple[float, float], wall: float, owner: Owner | None = None
    ) -> bool:
        """Note an event that a source reports; return whether it is new.

        Args:
            event: the event; what the kernel's log adds to one already counted is kept too.
            classes: which class an Xid has.
            came: between which two moments, seconds of CLOCK_MONOTONIC; the same where the source has the time.
            wall: when it happened, seconds since the epoch.
            owner: whose process it was.
        """
        key = Key(event.pci, event.xid)
        self._expire(key, came[1])
        if event.source == "bus_loss" and self._known_gone(key):
            return False
        new = not self._reported_by_another(key, event.source, came)
        counted = (key, classes.of(event.xid, event.message))
        if new and counted not in self.counts and len(self.counts) >= MOST_SERIES:
            return False
        self.changes += 1
        if new:
            self.counts[counted] += 1
            self.at[key] = wall
        if event.caused_by:
            self.consequences[key, event.caused_by] += 1
        if event.xid == FALLEN_OFF_BUS:
            self.gone.add(event.pci)
        if new or event.source == "kernel_log":  # the log names process and cause, NVML doesn't
            self.last[event.pci] = Last(event, owner or Owner())
            self.old.discard(event.pci)
        return new

    def answered(self, pci: str, uuid: str) -> None:
        """Note that a GPU answered: it is on the bus. If it is another GPU than before, its counts start at 0."""
        if pci in self.gone:
            self.gone.discard(pci)
            self.changes += 1
        if self.uuids.get(pci) == uuid:
            return
        if pci in self.uuids:
            self._forget(pci)
        self.uuids[pci] = uuid
        self.changes += 1

    def critical(self) -> Counter[str]:
        """Return the number of critical events by PCI address."""
        counts: Counter[str] = Counter()
        for (key, xid_class), count in self.counts.items():
            if xid_class == "critical":
                counts[key.pci] += count
        return counts

    def critical_at(self) -> dict[str, float]:
        """Return when the latest critical event came, by PCI address of the GPUs that had one."""
        times: dict[str, float] = {}
        for key, xid_class in self.counts:
            if xid_class == "critical" and key in self.at:
                times[key.pci] = max(self.at[key], times.get(key.pci, 0.0))
        return times

    def _known_gone(self, key: Key) -> bool:
        """Return whether a line without an Xid is a repetition: the driver prints one for each call on a lost GPU."""
        return key.pci in self.gone or bool(self.recent.get(key))

    def _reported_by_another(self, key: Key, source: str, came: tuple[float, float]) -> bool:
        recent = self.recent.get(key)
        if recent is None:
            recent = self.recent[key] = RecentEvents()
        return recent.match(source, *came)

    def _expire(self, key: Key, now: float) -> None:
        """Drop events that no source can report any more."""
        if len(self.recent) >= MOST_SERIES:
            self.recent.clear()
        recent = self.recent.get(key)
        horizon = min(now, self.heard.get(key.pci, now)) - WINDOW_SECONDS
        if recent is not None:
            recent.expire(horizon)

    def _forget(self, pci: str) -> None:
        self.counts = Counter({key: count for key, count in self.counts.items() if key[0].pci != pci})
        self.consequences = Counter({key: count for key, count in self.consequences.items() if key[0].pci != pci})
        self.at = {key: at for key, at in self.at.items() if key.pci != pci}
        self.last.pop(pci, None)


def encode(ledger: Ledger) -> dict[str, Any]:
    """Return the counts that must survive a restart, as JSON."""
    return {
        "boot": ledger.boot,
        "sequence": ledger.sequence,
        "counts": [[*key, name, count] for (key, name), count in ledger.counts.items()],
        "consequences": [[*key, cause, count] for (key, cause), count in ledger.consequences.items()],
        "at": [[*key, at] for key, at in ledger.at.items()],
        "last": {pci: [vars(last.event), vars(last.owner)] for pci, last in ledger.last.items()},
        "old": sorted(ledger.old),
        "gone": sorted(ledger.gone),
        "uuids": ledger.uuids,
        "recent": [
            [*key, seen.since, seen.at, sorted(seen.sources)]
            for key, recent in ledger.recent.items()
            for seen in recent
        ],
    }


def decode(data: Mapping[str, Any]) -> Ledger:
    """Decode a ledger that :func:`encode` wrote.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    recent: dict[Key, list[Seen]] = {}
    for pci, xid, since, at, sources in data["recent"]:
        recent.setdefault(_key(pci, xid), []).append(Seen(float(since), float(at), set(sources)))
    return Ledger(
        boot=str(data["boot"]),
        sequence=int(data["sequence"]),
        counts=_counter(data["counts"]),
        consequences=_counter(data["consequences"]),
        at={_key(pci, xid): float(at) for pci, xid, at in data["at"]},
        last={str(pci): Last(XidEvent(**event), Owner(**owner)) for pci, (event, owner) in data["last"].items()},
        old={str(pci) for pci in data.get("old", ())},  # not there in states of earlier releases
        gone={str(pci) for pci in data["gone"]},
        uuids={str(pci): str(uuid) for pci, uuid in data["uuids"].items()},
        recent={key: RecentEvents(events) for key, events in recent.items()},
    )


def _counter(rows: Any) -> Counter[tuple[Key, str]]:  # noqa: ANN401  whatever the file holds
    return Counter({(_key(pci, xid), str(name)): int(count) for pci, xid, name, count in rows})


def _key(pci: object, xid: object) -> Key:
    return Key(str(pci), int(str(xid)))
