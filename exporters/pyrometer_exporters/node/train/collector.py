"""Training steps of this node's ranks, from the rings that the client writes (``import pyrometer``).

Counters per rank on ``/metrics``; every batch of the reporting rank (rank 0 of the run) on ``/batches``, with its own
timestamp, once per ``?consumer=``. One step in a ring: start and end in ns of CLOCK_MONOTONIC, tokens, FLOPs, loss,
tags; its layout is in ``pyrometer.ring``.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from pyrometer.ring import PARTS
from pyrometer_exporters.framework.collector import CollectorSpec, Context, Endpoint, FlagGroup, Reply
from pyrometer_exporters.framework.exposition import OPENMETRICS_CONTENT_TYPE, openmetrics
from pyrometer_exporters.framework.metrics import Down, Sample, new_sample
from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.train import families
from pyrometer_exporters.node.train.batches import FAMILIES as BATCH_FAMILIES
from pyrometer_exporters.node.train.batches import series_of
from pyrometer_exporters.node.train.consumers import Consumers
from pyrometer_exporters.node.train.cursor_file import CursorFile
from pyrometer_exporters.node.train.description import MAX_TEXT
from pyrometer_exporters.node.train.flight_recorder import FLIGHT_RECORDER_FAMILIES, FlightRecorder, Writer
from pyrometer_exporters.node.train.flight_recorder import POLL_SECONDS as DUMP_SECONDS
from pyrometer_exporters.node.train.halted import HALTED, Halted
from pyrometer_exporters.node.train.mfu import unknown_reasons
from pyrometer_exporters.node.train.points import PointStore
from pyrometer_exporters.node.train.rank import Rank
from pyrometer_exporters.node.train.stacks import STACK_INFO, Stacks
from pyrometer_exporters.node.train.timing import NAMES as TIMINGS
from pyrometer_exporters.node.train.tracker import Tracker, is_over
from pyrometer_exporters.node.users import Users
from pyrometer_kit.http_message import Request

log = logging.getLogger(__name__)

# A ring holds 4,096 steps; one poll a second loses none up to 4,000 steps/s, at eight small reads a second.
POLL_SECONDS = 1.0
LOCK_SECONDS = 3.0


class TrainCollector:
    """Tracks the rings in a thread of its own, and serves their counters and batches."""

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._cursor_file = CursorFile(context.state)
        saved = self._cursor_file.load()
        self._store = PointStore(saved.cursors)
        self._consumers = Consumers(saved.cursors, context.clock.monotonic())
        self._tracker = Tracker(
            context.rings,
            context.clock,
            self._store,
            saved.offset_ms,
            saved.holders,
            procfs=context.procfs,
            model_of=context.gpu_models.of,
        )
        self._saved = saved.offset_ms, dict(saved.holders)
        self._stacks = Stacks(context.procfs, context.clock)
        self._halted = Halted(context.procfs)
        self._users = Users(context.procfs, context.clock.monotonic)
        self._lock = threading.Lock()
        self._folder_down: Down | None = None
        self._stop = threading.Event()
        rings = ("the rings", POLL_SECONDS, self._tracker.wait, self._read_rings)
        self._thread = threading.Thread(target=self._repeat, args=rings, name="train-rings", daemon=True)
        self._thread.start()
        directories = getattr(context.flags, "collector.train.flight-recorder-directory", None) or []
        self._dumps = FlightRecorder([Path(directory) for directory in directories], context.clock.wall)
        if directories:
            dumps = ("the Flight Recorder's dumps", DUMP_SECONDS, self._stop.wait, self.read_dumps)
            threading.Thread(target=self._repeat, args=dumps, name="train-dumps", daemon=True).start()

    def collect(self, until: float) -> Iterable[Sample | Down]:
        """See :class:`Collector`."""
        with self._locked(until - time.monotonic()):
            ranks = self._poll()
            now, offset = self._clock.monotonic(), self._tracker.offset() / 1000
            samples: list[Sample | Down] = list(self._tracker.downs())
            if self._folder_down is not None:
                samples.append(self._folder_down)
            for key, asked in self._tracker.names.clashes.items():
                samples.append(families.NAME_CLASH.sample(1, *key, asked))
            over = [rank for rank in ranks if is_over(rank, now)]
            ranks = [rank for rank in ranks if not is_over(rank, now)]
            for rank in over:
                samples.extend(end_samples(rank, offset))
            for rank in ranks:
                samples.extend(rank_samples(rank, now, offset))
            for rank in ranks:
                samples.extend(description_samples(rank, self._users.name(rank.file.uid)))
            samples.extend(self._stacks.samples(ranks))
            samples.extend(self._halted.samples(ranks, now))
            samples.extend(self._left_out())
        samples.extend(self._dumps.samples())
        return samples

    def _left_out(self) -> Iterator[Sample]:
        for uid, count in self._tracker.left_out().items():
            yield families.RINGS_LEFT_OUT.sample(count, str(uid), "budget")
        yield families.BATCHES_LEFT_OUT.sample(self._tracker.future, "future")
        yield families.BATCHES_LEFT_OUT.sample(self._store.shortened, "budget")
        yield families.CONSUMERS_LEFT_OUT.sample(self._consumers.refused)

    def endpoints(self) -> Mapping[str, Endpoint]:
        """See :class:`ServesEndpoints`."""
        return {"/batches": self.batches, "/stacks": self.stacks}

    def stacks(self, _request: Request) -> Reply:
        """Serve the stack traces of this node's stalled ranks, of those that allow it."""
        with self._locked():
            report = self._stacks.report(self._poll())
        return Reply("text/plain; charset=utf-8", report.encode("utf-8", errors="replace"))

    def batches(self, request: Request) -> Reply:
        """Serve every batch that ``consumer`` at this address hasn't taken; others' cursors don't move.

        With ``again=30``, also what it took in the last 30 s.
        """
        name = request.query.get("consumer", "")[:MAX_TEXT]
        again = request.query.get("again", "")
        repeat = float(again) if again.isascii() and again.isdigit() and len(again) < len("100") else 0.0
        with self._locked():
            self._poll()
            consumer = self._consumer(request.peer, name) if name else None
            pending = self._store.pending(consumer, self._clock.wall(), repeat)
            if consumer and self._tracker.offset_ms != self._saved[0]:
                self._save()  # before a consumer has a timestamp made with it
        body = openmetrics(series_of(pending))

        def delivered(whole: bool) -> None:
            if whole and consumer:
                with self._locked():
                    self._store.confirm(consumer, pending, self._clock.wall())
                    self._save()

        return Reply(OPENMETRICS_CONTENT_TYPE, body, delivered)

    def _consumer(self, address: str, name: str) -> str | None:
        consumer, evicted = self._consumers.admit(address, name, self._clock.monotonic())
        if evicted is not None:
            self._store.drop(evicted)
        return consumer

    def close(self) -> None:
        """See :class:`Collector`."""
        self._stop.set()
        self._tracker.stop_waiting()
        self._thread.join(LOCK_SECONDS)
        with self._locked():
            self._tracker.close()

    def _save(self) -> None:
        self._saved = offset, holders = self._tracker.offset_ms, self._tracker.names.holders
        self._cursor_file.save(self._store.cursors(), offset, holders)

    def _repeat(
        self, what: str, seconds: float, wait: Callable[[float], bool | None], read: Callable[[], object]
    ) -> None:
        while not self._stop.is_set():
            try:
                if not wait(seconds):
                    read()
            except Exception:
                log.exception("reading %s failed; retrying in %s s", what, seconds)
                self._stop.wait(seconds)

    def _read_rings(self) -> None:
        with self._locked():
            self._poll()

    def read_dumps(self) -> None:
        """Read the Flight Recorder's new dumps of this node's ranks."""
        with self._locked():
            offset, ranks = self._tracker.offset() / 1000, self._tracker.ranks()
            writers = [Writer(rank.labels, rank.file.uid, rank.header.created / 1e9 + offset) for rank in ranks]
        self._dumps.poll(writers)

    def _poll(self) -> list[Rank]:
        """Read the rings, look at ranks that have stalled, and return all."""
        try:
            self._tracker.poll()
            if self._tracker.names.holders != self._saved[1]:
                self._save()  # who was first is known to this process only
            ranks = self._tracker.ranks()
            self._stacks.poll(ranks)
            self._halted.look(ranks, self._clock.monotonic())
            self._folder_down = None
        except OSError as error:
            self._folder_down = self._tracker.folder_down(error)
            return self._tracker.ranks()
        return ranks

    @contextlib.contextmanager
    def _locked(self, seconds: float = LOCK_SECONDS) -> Iterator[None]:
        if not self._lock.acquire(timeout=max(0.0, seconds)):
            raise PartError("deadline", "an earlier read of the rings is still running")
        try:
            yield
        finally:
            self._lock.release()


def rank_samples(rank: Rank, now: float, offset: float) -> Iterator[Sample]:
    """Yield the samples of a rank that change; ``now`` in monotonic seconds, ``offset`` the wall clock less that."""
    header, labels = rank.header, rank.labels
    yield new_sample(families.STEPS, labels, header.steps)
    yield new_sample(families.STEP_SECONDS, labels, header.step_total / 1e9)
    yield new_sample(families.RANK_START, labels, header.created / 1e9 + offset)
    yield from _shares(rank, labels)
    for part, nanoseconds in zip(PARTS, header.part_totals, strict=True):
        if nanoseconds:
            yield new_sample(families.PART_SECONDS, (*labels, part), nanoseconds / 1e9)
    for reason, count in (("skipped", header.skipped), ("nan", rank.nan_losses)):
        if count:
            yield new_sample(families.SKIPPED_STEPS, (*labels, reason), count)
    for number, nanoseconds in enumerate(header.named_part_totals):
        if nanoseconds and (name := rank.file.part_name(len(PARTS) + number)):
            yield new_sample(families.PART_SECONDS, (*labels, name), nanoseconds / 1e9)
    if not header.closed:
        yield new_sample(families.RANK_UP, labels, rank.ended_at is None)
        yield from _position(rank, labels, now, offset)
    yield from _pauses(rank, labels)


def description_samples(rank: Rank, user: str = "") -> Iterator[Sample]:
    """Yield what a rank says of itself and its run, and who owns its ring."""
    meta, header = rank.meta, rank.header
    info = (meta.texts[name] for name in ("gpu", "uuid", "stage", "replica"))
    yield families.RANK_INFO.sample(1, *rank.labels, meta.local_rank, *info)
    texts = (rank.text(name) for name in families.RUN_TEXTS)
    yield families.RUN_INFO.sample(1, *rank.key, str(meta.world_size or ""), *texts, meta.source, user)
    if meta.expected_mfu is not None:
        yield families.EXPECTED_MFU.sample(meta.expected_mfu, *rank.key)
    for name, url in rank.links:
        yield families.LINK_INFO.sample(1, *rank.key, name, url)
    if meta.reporting and meta.source == "client" and header.timing in TIMINGS:
        yield families.TIMING_INFO.sample(1, *rank.key, TIMINGS[header.timing])
    if meta.reporting:
        for reason in unknown_reasons(meta, header, rank.peak, rank.mfu_check):
            yield families.MFU_UNKNOWN.sample(1, *rank.key, reason)
        if rank.mfu_check.suspect:
            yield families.MFU_SUSPECT.sample(1, *rank.key)
    if not meta.world_size and (meta.flops_per_token is not None or header.flops_extra):
        yield families.GPUS_UNKNOWN.sample(1, *rank.key)
    if rank.peak is not None:
        yield families.PEAK_FLOPS.sample(rank.peak, *rank.key)
    elif meta.flops_per_token is not None or header.flops_extra:
        yield families.PEAK_UNKNOWN.sample(1, *rank.key, meta.texts["gpu_model"], meta.texts["dtype"])


def _shares(rank: Rank, labels: tuple[str, ...]) -> Iterator[Sample]:
    """Yield the rank's share of the run's tokens and FLOPs.

    Without a default per step, they are the sums of the steps that the job gave numbers for. A log stands for all
    ranks, so its share is the whole.
    """
    meta, header = rank.meta, rank.header
    for family, per_step, extra in (
        (families.TOKENS, meta.tokens_per_step, header.tokens_extra),
        (families.FLOPS, meta.flops_per_step, header.flops_extra),
    ):
        total = header.steps * (per_step or 0.0) + extra
        if (per_step is not None or extra) and 0.0 <= total < math.inf:
            yield new_sample(family, labels, total / (1 if meta.source != "client" else meta.world_size))


def _pauses(rank: Rank, labels: tuple[str, ...]) -> Iterator[Sample]:
    """Yield nothing where the client doesn't count pauses: zero would mean that there are none."""
    header = rank.header
    if header.part_totals[PARTS.index("gc")]:
        yield new_sample(families.GC_PAUSES, labels, header.gc_pauses)
        yield new_sample(families.GC_PAUSE_SECONDS, labels, header.gc_pause_total / 1e9)
    if header.gc_step > 0:
        yield new_sample(families.LAST_GC_STEP, labels, rank.meta.first_step + header.gc_step - 1)


def _position(rank: Rank, labels: tuple[str, ...], now: float, offset: float) -> Iterator[Sample]:
    header = rank.header
    if rank.last_end:
        yield new_sample(families.LAST_STEP, labels, rank.last_end / 1e9 + offset)
        yield new_sample(families.LAST_STEP_NUMBER, labels, rank.last_step)
    if header.longest_tick > 0:
        yield new_sample(families.LONGEST_TICK, labels, header.longest_tick / 1e9)
    if rank.ended_at is not None:  # its process is gone: it is in no part
        yield from end_samples(rank, offset)
        return
    part, since = rank.position()
    yield new_sample(families.CURRENT_PART, (*labels, part), max(0.0, now - since / 1e9))


def end_samples(rank: Rank, offset: float) -> Iterator[Sample]:
    """Yield when and how the process of a rank ended that had not closed its run."""
    if rank.ended_at is not None:
        yield new_sample(families.RANK_END, rank.labels, rank.ended_at + offset)
        if rank.exit:
            yield new_sample(families.RANK_EXIT, (*rank.labels, rank.exit, rank.exit_part), 1)


def _add_flags(parser: FlagGroup) -> None:
    parser.add_argument(
        "--collector.train.flight-recorder-directory",
        dest="collector.train.flight-recorder-directory",
        action="append",
        default=None,
        metavar="DIRECTORY",
        help="folder of the dumps of PyTorch's Flight Recorder, as in TORCH_FR_DUMP_TEMP_FILE; several times if needed",
    )


COLLECTOR = CollectorSpec(
    name="train",
    help="Training steps, from the rings that ranks write through the client.",
    families=(*families.FAMILIES, STACK_INFO, HALTED, *FLIGHT_RECORDER_FAMILIES, *BATCH_FAMILIES),
    build=TrainCollector,
    add_flags=_add_flags,
)
