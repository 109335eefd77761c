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
        counted = any(comm.bounds for comm in self.snapshot.communicators)
        return self._looked_at - self._rose_at if self._rose_at is not None and counted else 0.0

    def add(self, snapshot: Snapshot, monotonic: float, wall: float) -> None:
        """Take the next answer."""
        self._remember_the_lost(snapshot)
        stood = self.standing()
        rose = False
        sums = {}
        for comm in snapshot.communicators:
            sums[comm.name] = len(comm.launched), sum(comm.launched)
            if self._sums.get(comm.name) != sums[comm.name]:
                rose = True
                self.last_launch[comm.name] = wall
        if rose or sums.keys() != self._sums.keys():
            self.longest = max(self.longest, stood)
            self._rose_at = monotonic
        self._sums, self.snapshot, self._looked_at = sums, snapshot, monotonic
        self.last_launch = {name: at for name, at in self.last_launch.items() if name in sums}

    def suspects(self) -> list[Named]:
        """Return the ranks that the job waits for: those that don't answer always, others while nothing moves."""
        snapshot = self.snapshot
        suspects = collectives.culprits(
            [self._communicator(comm) for comm in snapshot.communicators if not comm.ending]
        )
        if self.standing() < STANDING_SECONDS:
            suspects = [suspect for suspect in suspects if suspect.state in GONE]
        if snapshot.form == "text":
            suspects = _of_text(suspects)
        named = [Named(suspect, snapshot.peers[suspect.rank]) for suspect in suspects]
        return [comm for comm in named if comm.peer.pid >= 0][:MOST_SUSPECTS]

    def _communicator(self, comm: Communicator) -> collectives.Communicator:
        counts = self._last_counts.get(comm.name, {})
        peers = self.snapshot.peers
        return collectives.Communicator(
            comm.name,
            dict(zip(comm.peers, comm.launched, strict=True)),
            {lost.peer: lost.state for lost in comm.absent},
            {lost.peer: counts[peers[lost.peer]] for lost in comm.absent if peers[lost.peer] in counts},
        )

    def _remember_the_lost(self, snapshot: Snapshot) -> None:
        """Keep the last count of each rank that gives none now."""
        before = {comm.name: comm for comm in self.snapshot.communicators}
        kept: dict[str, dict[Peer, int]] = {}
        for comm in snapshot.communicators:
            lost = {snapshot.peers[absent.peer] for absent in comm.absent}
            if not lost:
                continue
            counts = {peer: count for peer, count in self._last_counts.get(comm.name, {}).items() if peer in lost}
            earlier = before.get(comm.name)
            for number, count in zip(earlier.peers, earlier.launched, strict=True) if earlier else ():
                if self.snapshot.peers[number] in lost:
                    counts[self.snapshot.peers[number]] = count
            kept[comm.name] = counts
        self._last_counts = kept


def _of_text(suspects: list[Suspect]) -> list[Suspect]:
    """Return what can be said from a text, which leaves out communicators in which all ranks agree."""
    gone = [suspect for suspect in suspects if suspect.state in GONE]
    return gone or [suspect._replace(certain=suspect.certain and len(suspects) == 1) for suspect in suspects]
