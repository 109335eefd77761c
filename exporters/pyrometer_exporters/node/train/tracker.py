"""Track the ranks of this node through their rings: find them, read their new batches, and detect their end."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pyrometer import ring
from pyrometer_exporters.framework.metrics import Down
from pyrometer_exporters.framework.outcome import reason_of
from pyrometer_exporters.framework.shared_folder import fair_shares
from pyrometer_exporters.node.train.batches import Point, RunKey
from pyrometer_exporters.node.train.description import BadRingError, Meta
from pyrometer_exporters.node.train.limits import (
    MAX_RECORDS_PER_POLL,
    MAX_RINGS,
    MAX_RINGS_PER_USER,
)
from pyrometer_exporters.node.train.points import PointStore
from pyrometer_exporters.node.train.rank import Rank, choose_loss_ranks, end_of, learn_exit, peak_of
from pyrometer_exporters.node.train.rank_exit import LOCKS_SECONDS, Ends, can_hold, hold
from pyrometer_exporters.node.train.ring_folder import Listed, RingFolder
from pyrometer_exporters.node.train.rings import Record, RingFile
from pyrometer_exporters.node.train.run_names import Holder, Newcomer, RunNames
from pyrometer_exporters.node.train.timing import is_launch
from pyrometer_kit.clock import Clock

log = logging.getLogger(__name__)

# A rank that ended stays visible: long enough for the last counts to be scraped at any usual interval, and for the
# question "who fell silent first" to be asked after a crash.
KEEP_CLOSED_SECONDS = 300.0
KEEP_CRASHED_SECONDS = 600.0
# Who died first is asked once the last has died: the others wait for it until their collectives time out, after 10
# minutes (NCCL), 30 (Gloo) or as long as the job says. Its end is served until then, or until the run begins again
KEEP_END_SECONDS = 86_400.0
# The difference of the two clocks changes when the wall clock is set, and only then: less is the reading's own noise.
CLOCK_STEP_MS = 100
# Writer and reader share one clock: a step that ends later than this from now was written by hand. Prometheus takes no
# sample that is more than ten minutes ahead, so one such would end its run's series.
AHEAD_SECONDS = 1.0
MAX_REPORTED = 20
"""Bad rings that are named; each is a series."""
_TAGGED = sum(ring.TAG_BITS.values())


class Tracker:
    """Follows the rings in the folders. Not thread-safe: the collector locks around it.

    Attributes:
        offset_ms: Wall clock less CLOCK_MONOTONIC.
        names: The names of runs, and whose they are.
        future: Number of batches left out because they end in the future.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        store: PointStore,
        offset_ms: int | None = None,
        holders: Mapping[RunKey, Holder] | None = None,
        *,
        procfs: Path | None = None,
        model_of: Callable[[str], str] = lambda _uuid: "",
    ) -> None:
        """Continue with the ``offset_ms`` of an earlier process: a batch that is read again keeps its timestamp."""
        self.offset_ms = offset_ms
        self.names = RunNames(holders or {})
        self.future = 0
        self._folder = folder
        self._clock = clock
        self._store = store
        self._procfs = procfs
        self._model_of = model_of
        self._keeps_status = can_hold()
        self._ends = Ends()
        self._listing = RingFolder(folder)
        self._ranks: dict[str, Rank] = {}
        self._bad: dict[str, str] = {}
        self._done: set[str] = set()
        self._left_out: Counter[int] = Counter()

    def poll(self) -> None:
        """Find new, changed and ended rings, and put new batches into the store.

        Raises:
            OSError: the folder can't be listed.
        """
        listed = self._listing.rings()
        # Bad ones are retried each time: a lack of descriptors or permissions may have passed.
        self._bad = {}
        self._done &= listed.keys()
        new = listed.keys() - self._ranks.keys() - self._done
        chosen = self._chosen(listed, new) if new or self._left_out else []
        locks_until = time.monotonic() + LOCKS_SECONDS
        for name in sorted(chosen, key=lambda name: (listed[name].changed, name)):
            self._open(name, locks_until)
        self._store.forget_future(self._clock.wall())
        self._follow_all(self._clock.monotonic())
        self._store.trim()
        now = self._clock.monotonic()
        shown = [rank for rank in self._ranks.values() if not is_over(rank, now)]
        runs = {rank.key for rank in shown}
        self.names.keep(runs)
        self._store.forget(runs | {rank.points_key for rank in shown})

    def _chosen(self, listed: Mapping[str, Listed], new: Iterable[str]) -> list[str]:
        """Return the new rings to follow, and drop what no longer fits: first what has ended, then the oldest."""
        by_user: dict[int, list[tuple[bool, int, str]]] = {}
        for name, rank in self._ranks.items():
            changed = listed[name].changed if name in listed else 0
            by_user.setdefault(rank.file.uid, []).append((rank.ended_at is None, changed, name))
        for name in new:
            by_user.setdefault(listed[name].uid, []).append((True, listed[name].changed, name))
        counts = {uid: len(of_user) for uid, of_user in by_user.items()}
        shares = fair_shares(counts, MAX_RINGS, MAX_RINGS_PER_USER)
        self._left_out = Counter({uid: count - shares[uid] for uid, count in counts.items() if count > shares[uid]})
        chosen = {name for uid, of in by_user.items() for *_, name in sorted(of, reverse=True)[: shares[uid]]}
        for name in self._ranks.keys() - chosen:
            self._drop(name)
            self._done.add(name)
        return [name for name in chosen if name not in self._ranks]

    def _follow_all(self, now: float) -> None:
        # Older rings first: a run's batches must come in order, over restarts of its process too.
        ranks = sorted(self._ranks.items(), key=lambda item: item[1].age)
        for name, rank in ranks:
            if rank.ended_at is None:
                with self._reporting(name):
                    rank.header = rank.file.header()
        choose_loss_ranks(list(self._ranks.values()))
        limits = self._record_limits([(name, rank) for name, rank in ranks if name in self._ranks])
        behind: set[RunKey] = set()
        begun: dict[tuple[str, int], int] = {}  # by name and user: their next job continues the run
        for _, rank in ranks:
            begun[rank.owner] = max(rank.header.created, begun.get(rank.owner, 0))
        for name, rank in ranks:
            if name not in self._ranks or (rank.reports and rank.points_key in behind):
                continue
            with self._reporting(name):
                self._follow(rank, now, limits.get(name, ring.CAPACITY))
                if rank.reports and rank.next_record < rank.settling.ready(rank.header, now):
                    behind.add(rank.points_key)
                elif _expired(rank, now, begun[rank.owner] / 1e9):
                    self._drop(name)
                    self._done.add(name)

    @contextlib.contextmanager
    def _reporting(self, name: str) -> Iterator[None]:
        """Have a ring that can't be read dropped and reported."""
        try:
            yield
        except (OSError, BadRingError) as error:
            self._drop(name)
            self._bad[name] = str(error)

    def _record_limits(self, ranks: list[tuple[str, Rank]]) -> dict[str, int]:
        """Return how many records to read of each ring now, fair among users; empty where all can be read."""
        pending: dict[int, dict[str, int]] = {}
        for name, rank in ranks:
            if rank.reports and rank.header.count > rank.next_record:
                waiting = min(rank.header.count - rank.next_record, ring.CAPACITY)
                pending.setdefault(rank.file.uid, {})[name] = waiting
        totals = {uid: sum(of_user.values()) for uid, of_user in pending.items()}
        if sum(totals.values()) <= MAX_RECORDS_PER_POLL:
            return {}
        shares = fair_shares(totals, MAX_RECORDS_PER_POLL)
        return {name: n for uid, of in pending.items() for name, n in fair_shares(of, shares[uid]).items()}

    def wait(self, seconds: float) -> None:
        """Wait until a rank's process ends, at most so long, and note when; the one call that needs no lock."""
        ended = self._ends.wait(seconds)
        now = self._clock.monotonic()
        for rank in list(self._ranks.values()) if ended else ():
            process = rank.process
            if process is not None and process.fileno() in ended:
                process.ended_at = now

    def stop_waiting(self) -> None:
        """End :meth:`wait`, now and from now on."""
        self._ends.wake()

    def ranks(self) -> list[Rank]:
        """Return the newest ring of each rank of each run, including those that have ended and not expired.

        A process that has started ranks, as ``torch.multiprocessing.spawn`` does, is none itself.
        """
        launchers = {(rank.key, rank.file.uid, rank.meta.launcher) for rank in self._ranks.values()}
        newest: dict[tuple[RunKey, str], Rank] = {}
        for rank in sorted(self._ranks.values(), key=lambda rank: rank.age):
            if rank.header.count or (rank.key, rank.file.uid, rank.file.pid) not in launchers:
                newest[rank.key, rank.meta.rank] = rank
        return list(newest.values())

    def downs(self) -> list[Down]:
        """Return the files that can't be read as rings, and why others are left out."""
        downs = [Down(name, "bad_ring", why) for name, why in sorted(self._bad.items())[:MAX_REPORTED]]
        if count := sum(self.left_out().values()):
            downs.append(Down("rings", "too_many_rings", f"{count} of the oldest files are not read"))
        if why := self._listing.unsafe():
            downs.append(Down("rings", "unsafe_folder", why))
        return downs

    def left_out(self) -> Counter[int]:
        """Return by user the number of rings beyond their fair share, which are not followed."""
        return self._left_out + Counter(self._listing.left_out)

    def close(self) -> None:
        """Close all files."""
        for rank in self._ranks.values():
            rank.release()
        self._ranks.clear()
        self._ends.close()

    def _open(self, name: str, locks_until: float) -> None:
        try:
            with self._listing.opened(name) as folder:
                file = RingFile(self._listing.place(name), folder)
        except FileNotFoundError:
            return  # removed since the folder was listed
        except (OSError, BadRingError) as error:
            self._bad[name] = str(error)
            return
        # From its first record, even if some consumers have it: a new consumer gets the whole ring.
        process = None if self._procfs is None else hold(self._procfs, file.identity, locks_until)
        if process is not None:
            self._ends.add(process)
        # A closed ring as well: else anybody's would pass for the newest of a run, and a clash's end for the other job.
        run = self.names.name(
            Newcomer(file.meta, file.uid, process.pid if process else file.pid, file.pid), self._living()
        )
        file.meta = replace(file.meta, run=run)
        self._ranks[name] = Rank(file, file.first_header, 0, peak_of(file.meta), process=process)

    def _living(self) -> list[Newcomer]:
        return [
            Newcomer(rank.meta, rank.file.uid, rank.process.pid if rank.process else rank.file.pid, rank.file.pid)
            for rank in self._ranks.values()
            if rank.ended_at is None and not rank.header.closed and rank.file.alive()
        ]

    def _follow(self, rank: Rank, now: float, limit: int) -> None:
        if rank.ended_at is not None:
            learn_exit(rank, keeps_status=self._keeps_status)
            return
        if rank.header.count > rank.next_record or rank.latest is None:
            self._read_on(rank, limit)
        if rank.header.closed or not rank.file.alive():
            rank.header = rank.file.header()  # its last words, written since the header was read
            if rank.header.count > rank.next_record:
                if not rank.settling.final:
                    rank.settling.final = True
                    self._read_on(rank, limit)
                return
            for point in rank.launches.end():  # no further step comes
                self._store.add(rank.points_key, rank.judged(point), rank.file.uid)
            # For a ring found after a restart of the exporter the end lies in the past: after its last step.
            found_dead = rank.last_end and not rank.seen_alive
            rank.ended_at = min(now, max(rank.last_end, rank.header.created) / 1e9) if found_dead else end_of(rank, now)
            if not rank.header.closed:
                rank.exit, rank.exit_part = rank.file.last_words(), rank.file.last_part() or rank.position()[0]
            rank.file.close()  # thousands of runs that come and go cost no descriptors
            learn_exit(rank, keeps_status=self._keeps_status)
        else:
            rank.seen_alive = True

    def _read_on(self, rank: Rank, limit: int) -> None:
        """Read up to ``limit`` new records of the reporting rank, and only the latest of any other."""
        rank.learn_gpu_model()
        rank.join_gpu_model(self._model_of, self._procfs)
        rank.learn_links()
        count = rank.header.count
        first = max(rank.next_record, count - ring.CAPACITY) if rank.reports else count - 1
        ready = rank.settling.ready(rank.header, self._clock.monotonic()) if rank.reports else count
        until = max(first, min(ready, first + limit)) if rank.reports else count
        for record in self._past(rank, min(first, until - 1), until):
            rank.count_loss(record)
            if rank.reports and record.sequence >= first:
                for point in to_points(record, rank, self.offset()):
                    self._store.add(rank.points_key, point, rank.file.uid)
        if ready < count:
            for _ in self._past(rank, count - 1, count):
                pass
        rank.next_record = until

    def _past(self, rank: Rank, first: int, until: int) -> Iterator[Record]:
        """Yield records, and take each for the latest; those that end in the future are left out."""
        latest_end = (self._clock.monotonic() + AHEAD_SECONDS) * 1e9
        for record in rank.file.records(first, until):
            if max(record.end, record.on_device().end) > latest_end:
                self.future += record.sequence >= rank.next_record
                continue
            rank.latest = record
            yield record

    def offset(self) -> int:
        """Return the wall clock less CLOCK_MONOTONIC in ms; it changes only when the clock is set."""
        before, wall, after = self._clock.monotonic(), self._clock.wall(), self._clock.monotonic()
        now = int((wall - before) * 1000)
        # If another thread or process ran between the two reads, the difference means nothing.
        at_once = (after - before) * 1000 < CLOCK_STEP_MS / 2
        if self.offset_ms is None or (at_once and abs(now - self.offset_ms) >= CLOCK_STEP_MS):
            self.offset_ms = now
        return self.offset_ms

    def _drop(self, name: str) -> None:
        self._ranks.pop(name).release()

    def folder_down(self, error: OSError) -> Down:
        """Return the reason why the folder itself can't be read."""
        if isinstance(error, FileNotFoundError):
            return Down("rings", "no_rings", f"no folder {self._folder}: no training rank has reported here yet")
        return Down("rings", reason_of(error), f"{self._folder}: {error.strerror}")


def is_over(rank: Rank, now: float) -> bool:
    """Return whether a rank ended so long ago that only its end is served any more."""
    if rank.ended_at is None:
        return False
    return now - rank.ended_at > (KEEP_CLOSED_SECONDS if rank.header.closed else KEEP_CRASHED_SECONDS)


def _expired(rank: Rank, now: float, begun: float) -> bool:
    """Return whether to forget a rank that has ended; its run ``begun`` then for the last time on this node."""
    if rank.ended_at is None or not is_over(rank, now):
        return False
    return rank.header.closed or begun > rank.ended_at or now - rank.ended_at > KEEP_END_SECONDS


def to_points(record: Record, rank: Rank, offset_ms: int) -> list[Point]:
    """Convert a record to a batch; launches to the mean of their span, which is empty until the span ends."""
    if not is_launch(record, rank.header):
        return [to_point(record, rank, offset_ms)]
    return [rank.judged(mean) for mean in rank.launches.add(_point(record, rank, offset_ms))]


def to_point(record: Record, rank: Rank, offset_ms: int) -> Point:
    """Convert a record to a batch, a log's line to the mean of its steps.

    ``offset_ms`` is the wall clock less CLOCK_MONOTONIC.

    MFU = model FLOPs of the step / (step seconds x GPUs x peak FLOP/s of one GPU).
    """
    return rank.judged(_point(record, rank, offset_ms))


def _point(record: Record, rank: Rank, offset_ms: int) -> Point:
    meta = rank.meta
    timed = record.on_device()
    seconds = max(1, timed.end - timed.start) / 1e9
    flops = _flops(record, meta)
    return Point(
        timestamp=timed.end // 1_000_000 + offset_ms,
        sequence=record.sequence,
        step=meta.first_step + record.sequence if record.step is None else record.step,
        seconds=seconds / record.steps,
        mfu=None,
        flops_per_second=None if flops is None or not meta.world_size else flops / seconds / meta.world_size,
        loss=record.loss,
        grad_norm=record.grad_norm,
        tags=_tags(record, meta),
        ring=rank.ring,
        steps=None if meta.source == "client" else record.steps,
        reported_mfu=record.reported_mfu,
        reported_flops_per_second=record.reported_flops,
        metrics=record.metrics,
    )


def _tags(record: Record, meta: Meta) -> tuple[str, ...]:
    tags = tuple([tag for tag, bit in ring.TAG_BITS.items() if record.flags & bit]) if record.flags & _TAGGED else ()
    return tags if record.sequence >= meta.warmup_steps or "warmup" in tags else (*tags, "warmup")


def _flops(record: Record, meta: Meta) -> float | None:
    if record.flops is not None:
        return record.flops
    if record.tokens is not None and meta.flops_per_token is not None:
        return record.tokens * meta.flops_per_token
    return meta.flops_per_step
