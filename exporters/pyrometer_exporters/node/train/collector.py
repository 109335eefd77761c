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
from collections.abc import Iterable, Iterator, Mapping

from pyrometer.ring import PARTS
from pyrometer_exporters.framework.collector import CollectorSpec, Context, Endpoint, Reply
from pyrometer_exporters.framework.exposition import OPENMETRICS_CONTENT_TYPE, Renderer
from pyrometer_exporters.framework.metrics import Down, Family, Sample, new_sample
from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.train.batches import FAMILIES as BATCH_FAMILIES
from pyrometer_exporters.node.train.batches import series_of
from pyrometer_exporters.node.train.consumers import Consumers
from pyrometer_exporters.node.train.cursor_file import CursorFile
from pyrometer_exporters.node.train.points import PointStore
from pyrometer_exporters.node.train.rings import MAX_TEXT
from pyrometer_exporters.node.train.stacks import Stacks
from pyrometer_exporters.node.train.tracker import CHANGING_TEXTS, Rank, Tracker
from pyrometer_kit.http_message import Request

log = logging.getLogger(__name__)

# A ring holds 4,096 steps; one poll a second loses none up to 4,000 steps/s, at eight small reads a second.
POLL_SECONDS = 1.0
LOCK_SECONDS = 3.0

_RANK = ("run", "attempt", "rank")
STEPS = Family("pyrometer_train_steps_total", "counter", "Steps that the rank has finished.", _RANK)
STEP_SECONDS = Family(
    "pyrometer_train_step_seconds_total", "counter", "Seconds that the rank spent in finished steps.", _RANK
)
TOKENS = Family(
    "pyrometer_train_tokens_total",
    "counter",
    "Tokens trained on: the rank's share, so that the sum is the run's.",
    _RANK,
)
FLOPS = Family(
    "pyrometer_train_flops_total",
    "counter",
    "Model FLOPs done: the rank's share, so that rate()/peak is its exact average MFU over any window.",
    _RANK,
)
PART_SECONDS = Family(
    "pyrometer_train_step_part_seconds_total",
    "counter",
    "Seconds that the rank spent in each part of its steps; parts that it never named are absent.",
    (*_RANK, "part"),
)
LAST_STEP = Family(
    "pyrometer_train_last_step_timestamp_seconds",
    "gauge",
    "When the rank finished its latest step; absent before the first and after a run has closed.",
    _RANK,
)
LAST_STEP_NUMBER = Family(
    "pyrometer_train_last_step",
    "gauge",
    "Number of the latest step that the rank finished; the rank with the lowest is the one the others wait for.",
    _RANK,
)
CURRENT_PART = Family(
    "pyrometer_train_current_part_seconds",
    "gauge",
    "How long the rank has been in the part that it is in now; part is step inside a step but in no named part, "
    "between outside, between_ticks where that can't be told. Absent once its process is gone.",
    (*_RANK, "part"),
)
LONGEST_TICK = Family(
    "pyrometer_train_longest_tick_seconds",
    "gauge",
    "Longest time from a tick to the next, but for the first ten and for pauses that have a name: those without may "
    "last as long again. Only of loops that tick.",
    _RANK,
)
RANK_UP = Family(
    "pyrometer_train_rank_up",
    "gauge",
    "1 while the rank's process lives, 0 once it is gone without having closed its run; absent after a good end.",
    _RANK,
)
RANK_END = Family(
    "pyrometer_train_rank_end_timestamp_seconds", "gauge", "When it was gone without having closed its run.", _RANK
)
RANK_START = Family(
    "pyrometer_train_rank_start_timestamp_seconds",
    "gauge",
    "When the rank began to report: between this and its first step it was starting.",
    _RANK,
)
GC_PAUSES = Family(
    "pyrometer_train_gc_pauses_total", "counter", "Pauses of Python's garbage collector of 5 ms or more.", _RANK
)
GC_PAUSE_SECONDS = Family(
    "pyrometer_train_gc_pause_seconds_total",
    "counter",
    "Seconds in pauses of the garbage collector of 5 ms or more; shorter ones hide behind the GPU's queue.",
    _RANK,
)
LAST_GC_STEP = Family(
    "pyrometer_train_last_gc_step",
    "gauge",
    "Number of the step that the latest pause of 5 ms or more fell into; equal on all ranks that collect together.",
    _RANK,
)
RANK_INFO = Family(
    "pyrometer_train_rank_info",
    "gauge",
    "1; joins a rank to its GPU, pipeline stage and replica.",
    (*_RANK, "local_rank", "gpu", "uuid", "stage", "replica"),
)
_RUN_TEXTS = (
    "model", "convention", "dtype", "gpu_model", "global_batch_size", "micro_batch_size", "sequence_length",
    "recompute", "job_id",
)  # fmt: skip
RUN_INFO = Family(
    "pyrometer_train_run_info",
    "gauge",
    "1; what must be equal for MFU numbers to be comparable. source is client, or log:<format>.",
    ("run", "attempt", "world_size", *_RUN_TEXTS, "source"),
)
PEAK_FLOPS = Family(
    "pyrometer_train_peak_flops_per_second",
    "gauge",
    "Peak dense FLOP/s of one GPU that MFU is counted against; absent, and MFU with it, where the GPU is unknown.",
    ("run", "attempt"),
)
PEAK_UNKNOWN = Family(
    "pyrometer_train_peak_flops_unknown",
    "gauge",
    "1 where the run's FLOPs are counted but no peak is known for this GPU and dtype: it has no MFU.",
    ("run", "attempt", "gpu_model", "dtype"),
)
GPUS_UNKNOWN = Family(
    "pyrometer_train_gpus_unknown",
    "gauge",
    "1 where the run's FLOPs are counted but its log doesn't say how many GPUs share them: it has no MFU.",
    ("run", "attempt"),
)
EXPECTED_MFU = Family(
    "pyrometer_train_expected_mfu_ratio",
    "gauge",
    "MFU, 0-1, that the job expects of its configuration; absent if it gives none.",
    ("run", "attempt"),
)
RINGS_LEFT_OUT = Family(
    "pyrometer_train_rings_left_out",
    "gauge",
    "Rings that are not followed, by the numeric id of the user: budget = more than the user's fair share, foreign = "
    "their run belongs to another user. Absent at 0.",
    ("user", "reason"),
)
BATCHES_LEFT_OUT = Family(
    "pyrometer_train_batches_left_out_total",
    "counter",
    "Batches that are not served: future = they claim to end later than now, budget = beyond the limit of all runs.",
    ("reason",),
)
CONSUMERS_LEFT_OUT = Family(
    "pyrometer_train_consumers_left_out_total",
    "counter",
    "Requests of /batches for whose consumer there was no place: they got the newest batches, and no cursor.",
    (),
)
FAMILIES = (
    RINGS_LEFT_OUT, BATCHES_LEFT_OUT, CONSUMERS_LEFT_OUT, STEPS, STEP_SECONDS, TOKENS, FLOPS, PART_SECONDS,
    LAST_STEP, LAST_STEP_NUMBER, CURRENT_PART, LONGEST_TICK, RANK_UP, RANK_END, RANK_START, GC_PAUSES,
    GC_PAUSE_SECONDS, LAST_GC_STEP, RANK_INFO, RUN_INFO, PEAK_FLOPS, PEAK_UNKNOWN, GPUS_UNKNOWN, EXPECTED_MFU,
)  # fmt: skip


class TrainCollector:
    """Tracks the rings in a thread of its own, and serves their counters and batches."""

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._cursor_file = CursorFile(context.state)
        saved = self._cursor_file.load()
        self._store = PointStore(saved.cursors)
        self._consumers = Consumers(saved.cursors, context.clock.monotonic())
        self._tracker = Tracker(context.rings, context.clock, self._store, saved.offset_ms, saved.owners)
        self._saved = saved.offset_ms, dict(saved.owners)
        self._stacks = Stacks(context.procfs, context.clock)
        self._renderer = Renderer()
        self._descriptions = Descriptions()
        self._lock = threading.Lock()
        self._folder_down: Down | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll_for_ever, name="train-rings", daemon=True)
        self._thread.start()

    def collect(self, until: float) -> Iterable[Sample | Down]:
        """See :class:`Collector`."""
        with self._locked(until - time.monotonic()):
            self._poll()
            now, offset = self._clock.monotonic(), self._tracker.offset() / 1000
            ranks = self._tracker.ranks()
            samples: list[Sample | Down] = list(self._tracker.downs())
            if self._folder_down is not None:
                samples.append(self._folder_down)
            for rank in ranks:
                samples.extend(rank_samples(rank, now, offset))
            samples.extend(self._descriptions.samples(ranks))
            samples.extend(self._left_out())
        return samples

    def _left_out(self) -> Iterator[Sample]:
        for reason, counts in self._tracker.left_out().items():
            for uid, count in counts.items():
                yield RINGS_LEFT_OUT.sample(count, str(uid), reason)
        yield BATCHES_LEFT_OUT.sample(self._tracker.future, "future")
        yield BATCHES_LEFT_OUT.sample(self._store.shortened, "budget")
        yield CONSUMERS_LEFT_OUT.sample(self._consumers.refused)

    def endpoints(self) -> Mapping[str, Endpoint]:
        """See :class:`ServesEndpoints`."""
        return {"/batches": self.batches, "/stacks": self.stacks}

    def stacks(self, _request: Request) -> Reply:
        """Serve the stack traces of this node's stalled ranks, of those that allow it."""
        with self._locked():
            self._poll()
            report = self._stacks.report(self._tracker.ranks())
        return Reply("text/plain; charset=utf-8", report.encode("utf-8", errors="replace"))

    def batches(self, request: Request) -> Reply:
        """Serve every batch that ``consumer`` at this address hasn't taken; others' cursors don't move."""
        name = request.query.get("consumer", "")[:MAX_TEXT]
        with self._locked():
            self._poll()
            consumer = self._consumer(request.peer, name) if name else None
            pending = self._store.pending(consumer, self._clock.wall())
            if consumer and self._tracker.offset_ms != self._saved[0]:
                self._save()  # before a consumer has a timestamp made with it
        body = self._renderer.openmetrics(series_of(pending))

        def delivered(whole: bool) -> None:
            if whole and consumer:
                with self._locked():
                    self._store.confirm(consumer, pending)
                    self._save()

        return Reply(OPENMETRICS_CONTENT_TYPE, body, delivered)

    def _consumer(self, address: str, name: str) -> str | None:
        consumer, evicted = self._consumers.admit(address, name, self._clock.monotonic())
        if evicted is not None:
            self._store.drop(evicted)
        if consumer is not None:
            self._store.adopt(consumer, name)  # saved before cursors had an address
        return consumer

    def close(self) -> None:
        """See :class:`Collector`."""
        self._stop.set()
        self._thread.join(LOCK_SECONDS)
        with self._locked():
            self._tracker.close()

    def _save(self) -> None:
        self._saved = offset, owners = self._tracker.offset_ms, self._tracker.owners
        self._cursor_file.save(self._store.cursors(), offset, owners)

    def _poll_for_ever(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            try:
                with self._locked():
                    self._poll()
            except Exception:
                log.exception("reading the rings failed; retrying in %s s", POLL_SECONDS)

    def _poll(self) -> None:
        try:
            self._tracker.poll()
            if self._tracker.owners != self._saved[1]:
                self._save()  # who was first is known to this process only
            self._stacks.poll(self._tracker.ranks())
            self._folder_down = None
        except OSError as error:
            self._folder_down = self._tracker.folder_down(error)

    @contextlib.contextmanager
    def _locked(self, seconds: float = LOCK_SECONDS) -> Iterator[None]:
        if not self._lock.acquire(timeout=max(0.0, seconds)):
            reason = "deadline"
            raise PartError(reason, "an earlier read of the rings is still running")
        try:
            yield
        finally:
            self._lock.release()


def rank_samples(rank: Rank, now: float, offset: float) -> Iterator[Sample]:
    """Yield the samples of a rank that change; ``now`` in monotonic seconds, ``offset`` the wall clock less that."""
    header, labels = rank.header, rank.labels
    yield new_sample(STEPS, labels, header.steps)
    yield new_sample(STEP_SECONDS, labels, header.step_total / 1e9)
    yield new_sample(RANK_START, labels, header.created / 1e9 + offset)
    yield from _shares(rank, labels)
    for part, nanoseconds in zip(PARTS, header.part_totals, strict=True):
        if nanoseconds:
            yield new_sample(PART_SECONDS, (*labels, part), nanoseconds / 1e9)
    if not header.closed:
        yield new_sample(RANK_UP, labels, rank.ended_at is None)
        yield from _position(rank, labels, now, offset)
    yield from _pauses(rank, labels)


class Descriptions:
    """The info samples of ranks and runs, rebuilt only where they have changed."""

    def __init__(self) -> None:
        self._cache: dict[Rank, tuple[object, tuple[Sample, ...]]] = {}

    def samples(self, ranks: Iterable[Rank]) -> Iterator[Sample]:
        """Yield those of these ranks, and drop all others."""
        before, self._cache = self._cache, {}
        for rank in ranks:
            state = (*(rank.text(name) for name in CHANGING_TEXTS), bool(rank.header.flops_extra))
            cached = before.get(rank)
            if cached is None or cached[0] != state:
                cached = state, tuple(_description(rank))
            self._cache[rank] = cached
            yield from cached[1]


def _description(rank: Rank) -> Iterator[Sample]:
    meta, header = rank.meta, rank.header
    info = (meta.texts[name] for name in ("gpu", "uuid", "stage", "replica"))
    yield RANK_INFO.sample(1, *rank.labels, meta.local_rank, *info)
    texts = (rank.text(name) for name in _RUN_TEXTS)
    yield RUN_INFO.sample(1, meta.run, meta.attempt, str(meta.world_size or ""), *texts, meta.source)
    if meta.expected_mfu is not None:
        yield EXPECTED_MFU.sample(meta.expected_mfu, meta.run, meta.attempt)
    if not meta.world_size and (meta.flops_per_token is not None or header.flops_extra):
        yield GPUS_UNKNOWN.sample(1, meta.run, meta.attempt)
    if rank.peak is not None:
        yield PEAK_FLOPS.sample(rank.peak, meta.run, meta.attempt)
    elif meta.flops_per_token is not None or header.flops_extra:
        yield PEAK_UNKNOWN.sample(1, meta.run, meta.attempt, meta.texts["gpu_model"], meta.texts["dtype"])


def _shares(rank: Rank, labels: tuple[str, ...]) -> Iterator[Sample]:
    """Yield the rank's share of the run's tokens and FLOPs.

    Without a default per step, they are the sums of the steps that the job gave numbers for. A log stands for all
    ranks, so its share is the whole.
    """
    meta, header = rank.meta, rank.header
    for family, per_step, extra in (
        (TOKENS, meta.tokens_per_step, header.tokens_extra),
        (FLOPS, meta.flops_per_step, header.flops_extra),
    ):
        total = header.steps * (per_step or 0.0) + extra
        if (per_step is not None or extra) and 0.0 <= total < math.inf:
            yield new_sample(family, labels, total / (1 if meta.source != "client" else meta.world_size))


def _pauses(rank: Rank, labels: tuple[str, ...]) -> Iterator[Sample]:
    """Yield nothing where the client doesn't count pauses: zero would mean that there are none."""
    header = rank.header
    if header.part_totals[PARTS.index("gc")]:
        yield new_sample(GC_PAUSES, labels, header.gc_pauses)
        yield new_sample(GC_PAUSE_SECONDS, labels, header.gc_pause_total / 1e9)
    if header.gc_step > 0:
        yield new_sample(LAST_GC_STEP, labels, rank.meta.first_step + header.gc_step - 1)


def _position(rank: Rank, labels: tuple[str, ...], now: float, offset: float) -> Iterator[Sample]:
    header = rank.header
    if rank.last_end:
        yield new_sample(LAST_STEP, labels, rank.last_end / 1e9 + offset)
        yield new_sample(LAST_STEP_NUMBER, labels, rank.last_step)
    if header.longest_tick > 0:
        yield new_sample(LONGEST_TICK, labels, header.longest_tick / 1e9)
    if rank.ended_at is not None:  # its process is gone: it is in no part
        yield new_sample(RANK_END, labels, rank.ended_at + offset)
        return
    part, since = rank.position()
    yield new_sample(CURRENT_PART, (*labels, part), max(0.0, now - since / 1e9))


COLLECTOR = CollectorSpec(
    name="train",
    help="Training steps, from the rings that ranks write through the client.",
    families=(*FAMILIES, *BATCH_FAMILIES),
    build=TrainCollector,
)
