"""A rank of a run on this node, and what is served of it: its batches, their losses alone, and how it ended."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pyrometer import ring
from pyrometer_exporters.node.train.batches import LOSS, Point, RunKey
from pyrometer_exporters.node.train.description import Meta
from pyrometer_exporters.node.train.mfu import MfuCheck
from pyrometer_exporters.node.train.peaks import peak_flops
from pyrometer_exporters.node.train.rank_exit import HeldProcess, told
from pyrometer_exporters.node.train.rings import Header, Record, RingFile
from pyrometer_exporters.node.train.timing import LaunchSpan, Settling

CHANGING_TEXTS = ("global_batch_size", "sequence_length", "recompute")
"""Texts that may change with each step."""
# A look a second, at the processes' open files: NVML is read at the first scrape.
_JOIN_TRIES = 120
# The client looks for ten seconds or 1,000 steps; a ring holds 4,096.
_LINKED_STEPS = ring.CAPACITY
_BETWEEN_TICKS = {ring.NAMED: "step", ring.UNNAMED: "between_ticks"}


@dataclass(eq=False)
class Rank:
    """A rank of a run on this node, and its position in training."""

    file: RingFile
    header: Header
    next_record: int
    peak: float | None
    latest: Record | None = None
    ended_at: float | None = None
    seen_alive: bool = False
    has_loss: bool = False
    reports_loss: bool = False
    process: HeldProcess | None = None
    exit: str = ""
    exit_part: str = ""
    nan_losses: int = 0
    last_loss: int = -1
    mfu_check: MfuCheck = field(default_factory=MfuCheck)
    settling: Settling = field(default_factory=Settling)
    launches: LaunchSpan = field(default_factory=LaunchSpan)
    links: tuple[tuple[str, str], ...] = ()
    joins_tried: int = 0

    def __post_init__(self) -> None:
        self.meta = self.file.meta

    @cached_property
    def ring(self) -> str:
        """The file's name; one text for all points of the ring, of which thousands are kept."""
        return os.path.basename(self.file.path)  # noqa: PTH119

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Its run, job, attempt and number."""
        return (*self.key, self.meta.rank)

    @property
    def owner(self) -> tuple[str, int]:
        """Its run's name and user."""
        return self.meta.run, self.file.uid

    @property
    def last_end(self) -> int:
        """When the latest step ended, in ns of CLOCK_MONOTONIC; 0 before the first."""
        return self.latest.end if self.latest else 0

    @property
    def last_step(self) -> int:
        """Number of the latest step; a log says it itself."""
        logged = self.latest.step if self.latest else None
        return self.meta.first_step + self.header.count - 1 if logged is None else logged

    def position(self) -> tuple[str, int]:
        """Return the part that the rank is in now, and since when; after a part, the rest of the step begins."""
        header = self.header
        if header.part > 0 and (name := self.file.part_name(header.part - 1)):
            return name, header.part_started
        if header.step_started > self.last_end:
            return "step", max(header.step_started, header.part_started)
        ticks = _BETWEEN_TICKS.get(header.ticking) if self.last_end else None
        return ticks or "between", max(self.last_end or header.created, header.part_started)

    def text(self, name: str) -> str:
        """Return a text of the run's description, as of the latest step."""
        changed = getattr(self.latest, name, None) if name in CHANGING_TEXTS else None
        return self.meta.texts[name] if changed is None else str(changed)

    @cached_property
    def key(self) -> RunKey:
        """Its run, job and attempt."""
        return self.meta.key

    @property
    def reports(self) -> bool:
        """Return whether its batches, or their losses alone, are served."""
        return self.meta.reporting or self.reports_loss

    @property
    def points_key(self) -> RunKey:
        """The key of its batches in the store."""
        return self.key if self.meta.reporting else (*self.key, LOSS)

    def count_loss(self, record: Record) -> None:
        """Note that the rank has losses, and count those that are no numbers, each once."""
        if record.loss is not None:
            self.has_loss = True
            if record.sequence > self.last_loss:
                self.last_loss = record.sequence
                self.nan_losses += not math.isfinite(record.loss)

    def judged(self, point: Point) -> Point:
        """Return a batch with its MFU, where that is known and can be true."""
        rate = point.flops_per_second
        mfu = self.mfu_check.accept(None if rate is None or self.peak is None else rate / self.peak, self.meta)
        return replace(point, mfu=mfu)

    def learn_gpu_model(self) -> None:
        """Take the GPU's name from the first step where the rank didn't know it at its start.

        Raises:
            OSError: the file can't be read.
            BadRingError: it is truncated.
        """
        if self.meta.texts["gpu_model"] or not self.header.count or self.meta.source != "client":
            return
        if name := self.file.gpu_model():
            self._take_gpu_model(name)

    def join_gpu_model(self, model_of: Callable[[str], str], procfs: Path | None) -> None:
        """Take the GPU's name as NVML has it where the job knows none, has no peak of its own, and uses a GPU."""
        texts, meta = self.meta.texts, self.meta
        wanted = meta.reporting and meta.source == "client" and not texts["gpu_model"] and meta.peak_flops is None
        if not wanted or self.joins_tried >= _JOIN_TRIES or self.process is None or procfs is None:
            return
        self.joins_tried += 1
        name = model_of(texts["uuid"])
        if name and self.process.uses_gpu(procfs):
            self._take_gpu_model(name)

    def _take_gpu_model(self, name: str) -> None:
        self.meta = replace(self.meta, texts={**self.meta.texts, "gpu_model": name})
        self.peak = peak_of(self.meta)

    def learn_links(self) -> None:
        """Take the pages of the run in trackers, which may be opened after its start; they are read once.

        Raises:
            OSError: the file can't be read.
            BadRingError: it is truncated.
        """
        if self.meta.reporting and not self.links and self.header.count <= _LINKED_STEPS:
            self.links = self.file.links()

    def release(self) -> None:
        """Close the file and release the process."""
        self.file.close()
        if self.process is not None:
            self.process.close()

    @cached_property
    def age(self) -> tuple[int, str]:
        """For sorting, oldest first."""
        return (self.header.created, self.file.path)


def peak_of(meta: Meta) -> float | None:
    """Return the peak dense FLOP/s of the rank's GPU, as the job gives it or by its name; None where unknown."""
    return meta.peak_flops or peak_flops(meta.texts["gpu_model"], meta.texts["dtype"])


def choose_loss_ranks(ranks: Iterable[Rank]) -> None:
    """Choose the rank of each run whose losses are served where those of its reporting rank are not.

    In a pipeline the last stage has the loss, and rank 0 is of the first. Known by its stage, of the first replica
    where that is known, too; without stages where rank 0 is on this node and has finished steps without a loss.
    """
    by_run: dict[RunKey, list[Rank]] = {}
    for rank in ranks:
        by_run.setdefault(rank.key, []).append(rank)
    for of_run in by_run.values():
        reporting = [rank for rank in of_run if rank.meta.reporting]
        losses = [rank for rank in of_run if rank.reports_loss]
        if any(rank.has_loss for rank in reporting) or any(rank.ended_at is None for rank in losses):
            continue
        silent = any(rank.latest is not None for rank in reporting)
        candidates = [
            rank for rank in of_run if rank.has_loss and rank.ended_at is None and _is_late_stage(rank, silent)
        ]
        if candidates:
            chosen = min(candidates, key=lambda rank: int(rank.meta.rank))
            chosen.reports_loss = True
            # The one before it has served the losses of the same steps.
            if all(rank.last_end <= chosen.header.created for rank in losses):
                chosen.next_record = 0


def _is_late_stage(rank: Rank, silent: bool) -> bool:
    stage, replica = rank.meta.texts["stage"], rank.meta.texts["replica"]
    if rank.meta.reporting or replica not in ("", "0"):
        return False
    return stage != "0" if stage else silent


def end_of(rank: Rank, now: float) -> float:
    """Return when a rank ended that is found gone now: its process may have been seen to end."""
    ended = None if rank.process is None else rank.process.ended_at
    return now if ended is None else min(now, ended)


def learn_exit(rank: Rank, *, keeps_status: bool) -> None:
    """Ask the kernel how the process ended until it knows: its parent has to have waited for it."""
    if rank.process is None:
        return
    status = rank.process.end()
    if status or rank.header.closed or not keeps_status:
        rank.process.close()
        rank.process = None
    if not rank.header.closed:
        rank.exit = told(rank.exit, status)
