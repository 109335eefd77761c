"""Book a run's time from the facts that Prometheus has about it.

A step is useful the first time it is taken, and rework when a restart takes it again: a counter can't decrease, so the
second time counts as lost. Time belongs to checkpoints and evaluations as far as rank 0 measured them (parts) or, if it
never does, as far as batches are tagged. Between the start of a process and its first step it is ``init``. It is
``down`` only if that is known: the process was seen dead, or the next one began moments after the last sign of life.
The rest is ``other``: a live process without a step, and time that nobody scraped.

The condition of a run, with the events that change it and the states that time in it is booked under::

               Birth, or a Step of an unknown process
        +--------------------------------------------------+
        |                                                  |
        v      RankStatus dead          Birth, Step        |
      ALIVE -----------------> DEAD -----------------------+
        |  ^   down, other      |     down                 |
        |  |                    |                          |
        |  +-- Step: useful, rework; pauses: init,         |
        |      checkpoint, eval, other                     |
        |                       |                          |
        |  RankStatus closed,   |  no sign of life         |
        |  or none for a day    v  for a day               |
        +------------------> CLOSED -----------------------+

Each event first books the time since the one before: parts that rank 0 reported (``_pay``), then ``init`` while the
process is starting, then tags, then steps whose points were lost, and what is left as ``other``. ``_tail`` books the
time after the last event only as far as later facts can't change it: a live process may still finish a step, and
batches of an unseen one may arrive for an hour.

The same facts always give the same book, and booked time never changes: facts that arrive later are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyrometer_exporters.cluster.ledger.book import (
    ALIVE,
    CHECKPOINT,
    CLOSED,
    DEAD,
    DOWN,
    EVAL,
    INIT,
    OTHER,
    REWORK,
    USEFUL,
    Book,
)
from pyrometer_exporters.cluster.ledger.facts import ENDLESS, SAME_MS, Birth, Facts, RankStatus, Step

SCRAPE_MS = 60_000
# Scrapes at most a minute apart detect the end of a process within this.
MAX_SILENCE_MS = 90_000
# Exporters keep batches for 50 minutes for a Prometheus that is away; none arrive after that.
UNSEEN_PATIENCE_MS = 3_600_000
# A step longer than this has stalled: ten minutes, or twenty typical steps.
STEP_PATIENCE_MS = 600_000
STEP_PATIENCE_STEPS = 20
# A run that stays away for longer is closed: its time isn't counted, unless it comes back.
GIVE_UP_MS = 86_400_000

_LONGER_ANYWAY = frozenset({"warmup", "ramp", "restart"})

Event = Step | Birth | RankStatus


def begin(facts: Facts, known_from: int, until: int) -> Book | None:
    """Return the book of a run that is new to the ledger, or None if it has neither a process nor a step yet.

    Args:
        facts: of the run.
        known_from: when the facts begin.
        until: when they end.
    """
    births = [birth for birth in facts.births if birth.at <= until]
    steps = [step for step in facts.steps if known_from <= step.start and step.end <= until]
    if births and births[0].at >= known_from and not (steps and steps[0].start < births[0].at):
        first = births[0]
        return Book(first.at, first.at, began=first.at, life=first.at, attempt=first.attempt, starting=True)
    if not steps:
        return None
    lives = [birth.at for birth in births if birth.at <= steps[0].start]
    life = lives[-1] if lives else None
    start = steps[0].start
    return Book(start, start, known_from + SCRAPE_MS, began=life or start, life=life, attempt=steps[0].attempt)


def settle(book: Book, facts: Facts, until: int) -> None:
    """Book the run's time up to ``until``, or as far as later facts can't change it."""
    for event in _events(book, facts, until):
        if isinstance(event, Step):
            _step(book, facts, event)
        elif isinstance(event, Birth):
            _birth(book, facts, event)
        elif book.is_present(event.life):
            _end(book, facts, event)
    _tail(book, facts, until)


def _events(book: Book, facts: Facts, until: int) -> Iterator[Event]:
    """Return events in order of time; at equal times births come before steps, and ends after them."""
    births = [birth for birth in facts.births if birth.at >= book.began + SAME_MS]
    ends = [seen for seen in facts.statuses if seen.status != "alive"]
    events: list[tuple[int, int, Event]] = [
        *((max(birth.at, book.settled), 0, birth) for birth in births),
        *((step.end, 1, step) for step in facts.steps if step.end > book.settled),
        *((end.at, 2, end) for end in ends if end.at > book.settled),
    ]
    events = [event for event in events if event[0] <= until]
    yield from (event for _, _, event in sorted(events, key=lambda item: item[:2]))


def _birth(book: Book, facts: Facts, birth: Birth) -> None:
    if birth.at < book.began + SAME_MS:
        return
    at = max(birth.at, book.settled)
    _until_next_process(book, facts, at)
    book.restarts += 1
    book.life, book.began, book.attempt, book.starting = birth.at, birth.at, birth.attempt, True
    book.condition, book.alive, book.number = ALIVE, at, None


def _step(book: Book, facts: Facts, step: Step) -> None:
    start = max(step.start, book.settled)
    if _is_of_another_process(book, step):
        _until_next_process(book, facts, start)
        book.restarts += 1
        book.life, book.after, book.began = None, book.alive, step.start
        book.attempt, book.number = step.attempt, None
    book.condition = ALIVE
    _no_step_until(book, facts, start, step)
    _in_step(book, facts, step)
    book.alive = max(book.alive, step.end)
    book.starting, book.number, book.attempt = False, step.number, step.attempt


def _is_of_another_process(book: Book, step: Step) -> bool:
    """Return whether the step shows a process whose start was not reported."""
    if book.condition != ALIVE:
        return True
    if book.number is None:
        return book.attempt != step.attempt
    return book.attempt != step.attempt or step.number <= book.number


def _end(book: Book, facts: Facts, seen: RankStatus) -> None:
    """Book the time up to the end of a process that was seen dead or closed its ring."""
    if book.condition == ALIVE:
        alive = _last_alive(book, facts, seen.at)
        # A checkpoint may have been finished after the last sign of life.
        _take_in_parts(book, facts, seen.at)
        _pay(book, seen.at)
        _no_step_until(book, facts, alive)
        if seen.status != "closed":
            book.add(DOWN if seen.at - alive <= MAX_SILENCE_MS else OTHER, seen.at)
            book.condition = DEAD
    if seen.status == "closed":
        book.condition = CLOSED


def _until_next_process(book: Book, facts: Facts, at: int) -> None:
    """Book the time up to the start of the next process."""
    if book.condition == ALIVE:
        alive = _last_alive(book, facts, at)
        _take_in_parts(book, facts, facts.scrape_from(at))
        _pay(book, at)
        _no_step_until(book, facts, alive)
        book.add(DOWN if at - alive <= MAX_SILENCE_MS else OTHER, at)
    book.add(DOWN, at)
    # Parts that exceed the time were another process's, or counted twice: drop them.
    book.pending_parts.owed.update(dict.fromkeys((CHECKPOINT, EVAL), 0))


def _last_alive(book: Book, facts: Facts, before: int) -> int:
    """Return the last sign of life of the current process, not before the booked time."""
    seen = facts.last_alive(book.is_present, before)
    return min(before, max(book.settled, book.alive, seen or 0))


def _no_step_until(book: Book, facts: Facts, until: int, then: Step | None = None) -> None:
    """Book the time up to ``until`` in which a live process finished no step; ``then`` is the step that follows."""
    if until <= book.settled:
        return
    scrape = facts.scrape_from(until)
    if book.starting and then is not None and facts.room_between_steps(then, scrape) < ENDLESS:
        # Parts that a scrape sees only after the first step began may belong to a pause after it.
        owed = book.pending_parts.to_pay(facts.parts, scrape)
        scrape = scrape if facts.room_between_steps(then, scrape) < owed else facts.scrape_until(until)
    _take_in_parts(book, facts, scrape)
    _pay(book, until)
    if book.starting:
        book.add(INIT, until)
        return
    if then is not None:
        tagged = _tagged(book, then)
        if tagged is not None:
            book.add(tagged, until)
        _unseen_steps(book, facts, until, then)
    book.add(OTHER, until)


def _pay(book: Book, until: int) -> int:
    """Book owed time of checkpoints and evaluations as far as there is time, and return its length."""
    return sum(
        book.add(part, book.settled + book.pending_parts.pay(part, until - book.settled)) for part in (CHECKPOINT, EVAL)
    )


def _unseen_steps(book: Book, facts: Facts, until: int, then: Step) -> None:
    """Book steps without a point: the next step's number shows that they were taken."""
    if book.number is None or book.typical is None:
        return
    unseen = then.number - book.number - 1
    length = min(until - book.settled, unseen * book.typical)
    if unseen <= 0 or length <= 0:
        return
    again, end = max(0, min(then.number - 1, book.high) - book.number), book.settled + length
    _trained(book, facts, REWORK, again, book.settled + length * again // unseen)
    _trained(book, facts, USEFUL, unseen - again, end)


def _in_step(book: Book, facts: Facts, step: Step) -> None:
    tagged = _tagged(book, step)
    if book.high < 0:  # steps before the ledger knew the run count at the current rate
        book.tokens = step.number * (facts.tokens_at(step.end) or 0.0)
    paid = _parts_in_step(book, facts, step)
    if tagged is not None and book.typical is not None:
        book.add(tagged, max(book.settled, step.end - book.typical))
    elif not step.tags and not paid:
        book.add_typical_length(step.length)
    _trained(book, facts, REWORK if step.number <= book.high else USEFUL, 1, step.end)
    book.high = max(book.high, step.number)
    _tagged_checkpoint(book, step)


def _parts_in_step(book: Book, facts: Facts, step: Step) -> int:
    """Book the parts that lie within a step, and return their length.

    Parts in the scrape before its end that fitted into no pause were in this step or an earlier one. Parts that only
    the next scrape has belong to this step if it was longer by as much, or if no pause follows that they could fit.
    """
    _take_in_parts(book, facts, facts.scrape_until(step.end))
    paid = _pay(book, step.end) if book.pending_parts.at <= step.end else 0
    scrape, typical = facts.scrape_from(step.end), book.typical or 0
    longer = min(step.end - book.settled, step.length - paid - typical)
    if longer <= typical // 2 or step.tags & _LONGER_ANYWAY:  # nearly all steps
        return paid
    owed = book.pending_parts.to_pay(facts.parts, scrape)
    if not owed or owed <= facts.room_between_steps(step, scrape) < ENDLESS:
        return paid
    _take_in_parts(book, facts, scrape)
    # More than this step's excess: there were several such steps since the last scrape.
    return paid + _pay(book, step.end if owed <= longer + typical // 2 else book.settled + longer)


def _trained(book: Book, facts: Facts, state: str, steps: int, until: int) -> None:
    book.add(state, until)
    book.steps[state] += steps
    if state == USEFUL:
        book.trained_on(steps, facts.tokens_at(until))


def _tagged(book: Book, step: Step) -> str | None:
    """Return the tag for the time before and in the step, unless the run reports that part itself."""
    for part in (CHECKPOINT, EVAL):
        if part in step.tags and part not in book.pending_parts.known:
            return part
    return None


def _tagged_checkpoint(book: Book, step: Step) -> None:
    """Record a checkpoint at the end of the first of consecutive steps that are tagged with it."""
    tagged = CHECKPOINT in step.tags
    if tagged and not book.saving:
        book.save_point(step.end)
        book.tags_checkpoints = True
    book.saving = tagged


def _take_in_parts(book: Book, facts: Facts, scrape: int) -> None:
    for at, part in book.pending_parts.take_in(facts.parts, scrape, book.unknown_before):
        if part == CHECKPOINT and not book.tags_checkpoints:
            book.save_point(at)


def _tail(book: Book, facts: Facts, until: int) -> None:
    """Book the time after the last event."""
    if book.condition == CLOSED or until <= book.settled:
        return
    if book.condition == DEAD:
        book.add(DOWN, until)
        if until - book.alive > GIVE_UP_MS:
            book.condition = CLOSED
        return
    alive = _last_alive(book, facts, until)
    book.alive = max(book.alive, alive)
    if until - alive > MAX_SILENCE_MS:
        _unseen(book, facts, alive, until)
    else:
        _stalled(book, facts, min(alive, until - _patience(book)))


def _unseen(book: Book, facts: Facts, alive: int, until: int) -> None:
    """Book time of a process that no scrape sees: as ``other``, once no batch can arrive any more."""
    if until - alive > UNSEEN_PATIENCE_MS:
        _no_step_until(book, facts, alive)
        book.add(OTHER, until - UNSEEN_PATIENCE_MS)
    if until - alive > GIVE_UP_MS:
        book.condition = CLOSED


def _stalled(book: Book, facts: Facts, until: int) -> None:
    """Book time of a live process without a step for longer than a step can take."""
    if until <= book.settled:
        return
    part = facts.doing_at(until)
    if part in (CHECKPOINT, EVAL):
        book.pending_parts.owed[part] -= book.add(part, until)
    else:
        _no_step_until(book, facts, until)


def _patience(book: Book) -> int:
    return max(STEP_PATIENCE_MS, STEP_PATIENCE_STEPS * (book.typical or 0))
