"""Tells apart what has one name and one job on a node: what one shell or one job starts several times."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from pyrometer_exporters.node.train.batches import RunKey
from pyrometer_exporters.node.train.description import MAX_TEXT, Meta

log = logging.getLogger(__name__)


class Holder(NamedTuple):
    """Whose a run's name is.

    Attributes:
        uid: The user.
        pids: The newest process of each rank that was given the name. Only these tell apart what one shell starts.
    """

    uid: int
    pids: Mapping[str, int] = {}


class Newcomer(NamedTuple):
    """Hold what a ring that was just found says of itself, and which process writes it.

    ``told_pid`` is the process as the ring says, by the ids of the job's own PID namespace.
    """

    meta: Meta
    uid: int
    pid: int
    told_pid: int = 0

    def key(self, name: str) -> RunKey:
        """Return the key of its run under a name."""
        return (name, *self.meta.key[1:])


class RunNames:
    """Names of runs, each held by one user's job until the last ring of that is gone.

    Runs of one name in different jobs need none of this: their job tells them apart everywhere.

    Attributes:
        holders: Who holds each run.
        clashes: The name that a run asked for, by the run under which it is served instead.
    """

    def __init__(self, holders: Mapping[RunKey, Holder]) -> None:
        """Continue with the ``holders`` of an earlier process."""
        self.holders = dict(holders)
        self.clashes: dict[RunKey, str] = {}

    def name(self, new: Newcomer, living: Collection[Newcomer]) -> str:
        """Return the name under which a ring is served: the one that it asks for unless another holds that.

        Args:
            new: The ring.
            living: Those already served whose processes live, by the names under which they are.
        """
        meta = new.meta
        holder = self.holders.get(meta.key)
        suffixed = [f"{meta.run[: MAX_TEXT - len(s)]}{s}" for s in _suffixes(new, holder)]
        name = self._kept(suffixed, new, living) or next(
            (name for name in (meta.run, *suffixed) if self._is_free(name, new, living)), suffixed[-1]
        )
        self._hold(name, new)
        return meta.run if name == meta.run else self._clash(name, new)

    def _kept(self, suffixed: Sequence[str], new: Newcomer, living: Collection[Newcomer]) -> str | None:
        """Return the name that this process or its job has had before, as after a restart of the exporter."""
        of_user = {
            name: holder
            for name in (new.meta.run, *suffixed)
            if (holder := self.holders.get(new.key(name))) and holder.uid == new.uid
        }
        of_process = [name for name, holder in of_user.items() if holder.pids.get(new.meta.rank) == new.pid]
        candidates = of_process or [name for name in suffixed[:-1] if name in of_user]
        return next((name for name in candidates if self._is_free(name, new, living)), None)

    def _hold(self, name: str, new: Newcomer) -> None:
        key = new.key(name)
        before = self.holders.get(key)
        pids = before.pids if before and before.uid == new.uid else {}
        holder = Holder(new.uid, {**pids, new.meta.rank: new.pid})
        self.holders = {**self.holders, key: holder}  # a new one: whoever saved the last sees that it changed

    def keep(self, runs: Collection[RunKey]) -> None:
        """Forget the names of all runs but these."""
        self.holders = {key: holder for key, holder in self.holders.items() if key in runs}
        self.clashes = {key: asked for key, asked in self.clashes.items() if key in runs}

    def _is_free(self, name: str, new: Newcomer, living: Collection[Newcomer]) -> bool:
        holder = self.holders.get(new.key(name))
        if holder is None:
            return True
        if holder.uid != new.uid:  # another user's, until it is gone: what Prometheus has of it is not continued
            return False
        return not any(
            other.pid != new.pid
            and other.told_pid != new.meta.launcher  # it started the ranks, and its own ring stays empty
            and other.meta.source == new.meta.source == "client"
            and (other.meta.rank == new.meta.rank or other.meta.world_size != new.meta.world_size)
            for other in living
            if other.meta.key == new.key(name)
        )

    def _clash(self, name: str, new: Newcomer) -> str:
        key, meta = new.key(name), new.meta
        if key not in self.clashes:
            self.clashes[key] = meta.run
            log.warning(
                "two runs on this node report as run %s of job %s, attempt %s: the later one is served as run %s; give "
                "each its own name",
                meta.run, meta.texts["job_id"] or "without an id", meta.attempt, name,
            )  # fmt: skip
        return name


def _suffixes(new: Newcomer, holder: Holder | None) -> Iterator[str]:
    """Yield what is added to a name that another holds, the same on all nodes of a job if possible."""
    launcher = new.meta.launcher
    if holder is None or holder.uid != new.uid:
        yield f"@uid{new.uid}"
    if launcher:
        yield f"@launcher{launcher}"
    yield f"@pid{new.pid}"
