"""The metrics of the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyrometer_exporters.cluster.ledger.book import CLOSED, REWORK, STATES, USEFUL, Book
from pyrometer_exporters.cluster.ledger.facts import RunJob
from pyrometer_exporters.framework.metrics import Families, Sample

# fmt: off
_ROWS = Families("run", "job_id")
SECONDS = _ROWS.counter("pyrometer_run_seconds_total",
    "Where a run's time went, over all its attempts, from its batches in Prometheus: useful (steps taken for the "
    "first time), rework (taken again after a restart), checkpoint, eval, init (from a process's start to its first "
    "step), down (no process), other (also: not known). The states sum to the time from the run's start to the "
    "settled time. Each job of a run has its own, pyrometer_run_job_info which follow each other.", "state")
JOB = _ROWS.gauge("pyrometer_run_job_info",
    "1; whose job it is, and the first of the jobs that it continues: those of one user and name that follow each "
    "other are one run. job_id is empty where node exporters until 0.2.0 report the run.", "user", "lineage")
STARTED = _ROWS.gauge("pyrometer_run_start_timestamp_seconds",
    "When the job's time begins: with its first process, or where that of the job ends that it continues; for a run "
    "older than the ledger, when the ledger first saw it.")
SETTLED = _ROWS.gauge("pyrometer_run_settled_timestamp_seconds",
    "Up to when the run's time is booked: a minute and a step behind, and constant after the run has ended.")
STEPS = _ROWS.counter("pyrometer_run_steps_total", "Steps of the run by state: useful or rework.", "state")
RESTARTS = _ROWS.counter("pyrometer_run_restarts_total", "How often the run was started again.")
LAST_CHECKPOINT = _ROWS.gauge("pyrometer_run_last_checkpoint_timestamp_seconds",
    "When the latest checkpoint was finished, by the batches' tags or else by rank 0's part; absent before the first.")
UNSAVED = _ROWS.gauge("pyrometer_run_unsaved_seconds",
    "Time in steps since the latest checkpoint: what a crash now would lose. Absent once the run has ended.")
INTERVAL = _ROWS.gauge("pyrometer_run_checkpoint_interval_seconds",
    "The usual time in steps between two checkpoints, the median of the latest eight; absent before there were three.")
TOKENS = _ROWS.counter("pyrometer_run_tokens_total",
    "Tokens trained on by useful steps; steps before the ledger knew the run count at the rate of that time.")
TARGET = _ROWS.gauge("pyrometer_run_target_tokens",
    "Tokens to train on, as given with --collector.ledger.target.")
END = _ROWS.gauge("pyrometer_run_estimated_end_timestamp_seconds",
    "When the target will be reached: basis elapsed continues at the rate of the last day with all its losses, basis "
    "training assumes no further losses.", "basis")
# fmt: on
FAMILIES = tuple(_ROWS)


def book_samples(key: RunJob, book: Book, targets: Mapping[str, float]) -> Iterator[Sample]:
    """Return all samples of a run's job."""
    yield JOB.sample(1, *key, book.user, book.lineage)
    for state in STATES:
        yield SECONDS.sample(book.lengths[state] / 1000, *key, state)
    for state in (USEFUL, REWORK):
        yield STEPS.sample(book.steps[state], *key, state)
    yield STARTED.sample(book.started / 1000, *key)
    yield SETTLED.sample(book.settled / 1000, *key)
    yield RESTARTS.sample(book.restarts, *key)
    yield from _checkpoints(key, book)
    if book.tokens_per_step:
        yield TOKENS.sample(book.tokens, *key)
    target = targets.get(key.run)
    if target is not None:
        yield TARGET.sample(target, *key)
        yield from _ends(key, book, target)


def _checkpoints(key: RunJob, book: Book) -> Iterator[Sample]:
    if book.saved_at:
        yield LAST_CHECKPOINT.sample(book.saved_at / 1000, *key)
    if book.condition != CLOSED:
        yield UNSAVED.sample(book.unsaved / 1000, *key)
    if book.checkpoint_interval is not None:
        yield INTERVAL.sample(book.checkpoint_interval / 1000, *key)


def _ends(key: RunJob, book: Book, target: float) -> Iterator[Sample]:
    """Estimate the end as BLOOM's training did: tokens left divided by tokens per day, from the run's own figures."""
    left = target - book.tokens
    if left <= 0 or book.condition == CLOSED or not book.tokens_per_step:
        return
    if book.typical:
        yield END.sample((book.settled + left / book.tokens_per_step * book.typical) / 1000, *key, "training")
    if book.hours:
        since, then = book.hours[0]
        # A few minutes are too short to extrapolate over months.
        if book.settled - since >= 3_600_000 and book.tokens > then:
            rate = (book.tokens - then) / (book.settled - since)
            yield END.sample((book.settled + left / rate) / 1000, *key, "elapsed")
