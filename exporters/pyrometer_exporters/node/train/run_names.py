"""Gives each job's run a name of its own, where two jobs of one name are on the node at the same time."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from pyrometer_exporters.node.train.description import MAX_TEXT, Meta
from pyrometer_exporters.node.train.points import RunKey

log = logging.getLogger(__name__)


class Holder(NamedTuple):
    """The user (uid) and the scheduler's job, empty where unknown, that a run's name belongs to."""

    uid: int
    job: str


class Newcomer(NamedTuple):
    """A ring that was found, and the process that writes it."""

    meta: Meta
    uid: int
    pid: int

    @property
    def holder(self) -> Holder:
        """Its user and job."""
        return Holder(self.uid, self.meta.texts["job_id"])


class RunNames:
    """Names of runs, each held by one user's job until the last ring of that is gone.

    Attributes:
        holders: Who holds each run and attempt.
        clashes: The name that a run asked for, by the run and attempt under which it is served instead.
    """

    def __init__(self, holders: Mapping[RunKey, Holder]) -> None:
        """Continue with the ``holders`` of an earlier process."""
        self.holders = dict(holders)
        self.clashes: dict[RunKey, str] = {}

    def name(self, new: Newcomer, living: Collection[Newcomer]) -> str:
        """Return the name under which a ring is served: the one that it asks for unless another job holds that.

        Args:
            new: The ring.
            living: Those already served whose processes live, by the names under which they are.
        """
        meta = new.meta
        suffixed = [
            f"{meta.run[: MAX_TEXT - len(s)]}{s}" for s in _suffixes(new, self.holders.get((meta.run, meta.attempt)))
        ]
        # After a restart of the exporter the name stays as it was.
        for name in suffixed[:-1]:
            if self.holders.get((name, meta.attempt)) == new.holder:
                return self._clash(name, meta)
        if self._is_free(meta.run, new, living):
            self.holders[meta.run, meta.attempt] = new.holder
            return meta.run
        name = next((name for name in suffixed if self._is_free(name, new, living)), suffixed[-1])
        self.holders[name, meta.attempt] = new.holder
        return self._clash(name, meta)

    def keep(self, runs: Collection[RunKey]) -> None:
        """Forget the names of all runs but these."""
        self.holders = {key: holder for key, holder in self.holders.items() if key in runs}
        self.clashes = {key: asked for key, asked in self.clashes.items() if key in runs}

    def _is_free(self, name: str, new: Newcomer, living: Collection[Newcomer]) -> bool:
        holder = self.holders.get((name, new.meta.attempt))
        if holder is None:
            return True
        if holder.uid != new.uid:  # another user's, until it is gone: what Prometheus has of it is not continued
            return False
        others = [one for one in living if (one.meta.run, one.meta.attempt) == (name, new.meta.attempt)]
        if holder.job != new.holder.job:  # a chain of jobs continues a run, one after the other
            return not others
        return not any(
            one.meta.rank == new.meta.rank and one.pid != new.pid and one.meta.source == new.meta.source == "client"
            for one in others
        )

    def _clash(self, name: str, meta: Meta) -> str:
        key = name, meta.attempt
        if key not in self.clashes:
            self.clashes[key] = meta.run
            log.warning(
                "two jobs on this node report as run %s, attempt %s: the later one is served as run %s; give each a "
                "name of its own",
                meta.run, meta.attempt, name,
            )  # fmt: skip
        return name


def _suffixes(new: Newcomer, holder: Holder | None) -> Iterator[str]:
    """Yield what is added to a name that another job holds, the same on all nodes of a job if possible."""
    job, launcher = new.holder.job, new.meta.launcher
    if job:
        yield f"@{job}"
        yield f"@{job}@uid{new.uid}"
    if holder is None or holder.uid != new.uid:
        yield f"@uid{new.uid}"
    if launcher:
        yield f"@launcher{launcher}"
    yield f"@pid{new.pid}"
