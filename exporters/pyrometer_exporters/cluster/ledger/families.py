"""The metrics of the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyrometer_exporters.cluster.ledger.book import CLOSED, REWORK, STATES, USEFUL, Book
from pyrometer_exporters.framework.metrics import Families, Sample

# fmt: off
_ROWS = Families("run")
SECONDS = _ROWS.counter("pyrometer_run_seconds_total",
    "Where a run's time went, over all its attempts, from its batches in Prometheus: useful (steps taken for the "
    "first time), rework (taken again after a restart), checkpoint, eval, init (from a process's start to its first "
    "step), down (no process), other (also: not known). The states sum to the time from the run's start to the "
    "settled time.", "state")
STARTED = _ROWS.gauge("pyrometer_run_start_timestamp_seconds",
    "When the run began; for a run older than the ledger, when the ledger first saw it.")
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


def book_samples(run: str, book: Book, targets: Mapping[str, float]) -> Iterator[Sample]:
    """Return all samples of a run."""
    for state in STATES:
        yield SECONDS.sample(book.lengths[state] / 1000, run, state)
    for state in (USEFUL, REWORK):
        yield STEPS.sample(book.steps[state], run, state)
    yield STARTED.sample(book.started / 1000, run)
    yield SETTLED.sample(book.settled / 1000, run)
    yield RESTARTS.sample(book.restarts, run)
    yield from _checkpoints(run, book)
    if book.tokens_per_step:
        yield TOKENS.sample(book.tokens, run)
    target = targets.get(run)
    if target is not None:
        yield TARGET.sample(target, run)
        yield from _ends(run, book, target)


def _checkpoints(run: str, book: Book) -> Iterator[Sample]:
    if book.saved_at:
        yield LAST_CHECKPOINT.sample(book.saved_at / 1000, run)
    if book.condition != CLOSED:
        yield UNSAVED.sample(book.unsaved / 1000, run)
    if book.checkpoint_interval is not None:
        yield INTERVAL.sample(book.checkpoint_interval / 1000, run)


def _ends(run: str, book: Book, target: float) -> Iterator[Sample]:
    """Estimate the end as BLOOM's training did: tokens left divided by tokens per day, from the run's own figures."""
    left = target - book.tokens
    if left <= 0 or book.condition == CLOSED or not book.tokens_per_step:
        return
    if book.typical:
        yield END.sample((book.settled + left / book.tokens_per_step * book.typical) / 1000, run, "training")
    if book.hours:
        since, then = book.hours[0]
        # A few minutes are too short to extrapolate over months.
        if book.settled - since >= 3_600_000 and book.tokens > then:
            rate = (book.tokens - then) / (book.settled - since)
            yield END.sample((book.settled + left / rate) / 1000, run, "elapsed")
