"""Follow a job over several answers of RAS: whether its counts rise, and whom it waits for when they don't."""

from __future__ import annotations

from typing import NamedTuple

from pyrometer_exporters.node.nccl.snapshot import Communicator, Peer, Snapshot
from pyrometer_kit import collectives
from pyrometer_kit.collectives import GONE, Suspect

# Two answers this far apart without a rise are no coincidence of a slow step; rules wait longer before they fire.
STANDING_SECONDS = 8.0
MOST_SUSPECTS = 64


class Named(NamedTuple):
    """A suspect with the process that it is."""

    suspect: Suspect
    peer: Peer


class Progress:
    """The progress of one job.

    Attributes:
        last_launch: wall clock of the answer in which a count last rose, by communicator.
        longest: longest time that all counts stood still before they rose again, in s.
    """

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.last_launch: dict[str, float] = {}
        self.longest = 0.0
        self._sums: dict[str, tuple[int, int]] = {}
        self._last_counts: dict[str, dict[Peer, int]] = {}
        self._rose_at: float | None = None
        self._looked_at = 0.0

    def standing(self) -> float:
        """Return for how long no count has risen at the latest answer, in s; 0 where one has, or none is known."""
        counted = any(one.bounds for one in self.snapshot.communicators)
        return self._looked_at - self._rose_at if self._rose_at is not None and counted else 0.0

    def add(self, snapshot: Snapshot, monotonic: float, wall: float) -> None:
        """Take the next answer."""
        self._remember_the_lost(snapshot)
        stood = self.standing()
        rose = False
        sums = {}
        for one in snapshot.communicators:
            sums[one.name] = len(one.launched), sum(one.launched)
            if self._sums.get(one.name) != sums[one.name]:
                rose = True
                self.last_launch[one.name] = wall
        if rose or sums.keys() != self._sums.keys():
            self.longest = max(self.longest, stood)
            self._rose_at = monotonic
        self._sums, self.snapshot, self._looked_at = sums, snapshot, monotonic
        self.last_launch = {name: at for name, at in self.last_launch.items() if name in sums}

    def suspects(self) -> list[Named]:
        """Return the ranks that the job waits for: those that don't answer always, others while nothing moves."""
        snapshot = self.snapshot
        found = collectives.culprits([self._communicator(one) for one in snapshot.communicators if not one.ending])
        if self.standing() < STANDING_SECONDS:
            found = [suspect for suspect in found if suspect.state in GONE]
        if snapshot.form == "text":
            found = _of_text(found)
        named = [Named(suspect, snapshot.peers[suspect.rank]) for suspect in found]
        return [one for one in named if one.peer.pid >= 0][:MOST_SUSPECTS]

    def _communicator(self, one: Communicator) -> collectives.Communicator:
        known = self._last_counts.get(one.name, {})
        peers = self.snapshot.peers
        return collectives.Communicator(
            one.name,
            dict(zip(one.peers, one.launched, strict=True)),
            {lost.peer: lost.state for lost in one.absent},
            {lost.peer: known[peers[lost.peer]] for lost in one.absent if peers[lost.peer] in known},
        )

    def _remember_the_lost(self, snapshot: Snapshot) -> None:
        """Keep the last count of each rank that gives none now."""
        before = {one.name: one for one in self.snapshot.communicators}
        kept: dict[str, dict[Peer, int]] = {}
        for one in snapshot.communicators:
            lost = {snapshot.peers[absent.peer] for absent in one.absent}
            if not lost:
                continue
            counts = {peer: count for peer, count in self._last_counts.get(one.name, {}).items() if peer in lost}
            earlier = before.get(one.name)
            for number, count in zip(earlier.peers, earlier.launched, strict=True) if earlier else ():
                if self.snapshot.peers[number] in lost:
                    counts[self.snapshot.peers[number]] = count
            kept[one.name] = counts
        self._last_counts = kept


def _of_text(found: list[Suspect]) -> list[Suspect]:
    """Return what can be said from a text, which leaves out communicators in which all ranks agree."""
    gone = [suspect for suspect in found if suspect.state in GONE]
    return gone or [suspect._replace(certain=suspect.certain and len(found) == 1) for suspect in found]
