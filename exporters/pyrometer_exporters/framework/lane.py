"""Who does the jobs of parts that may hang: quick ones one after the other in one thread, each slow one in its own.

To wake a thread for each of 14 quick devices costs more than to read them, and threads that read at the same time take
twice the CPU time, for they pass the interpreter's lock to and fro. A part for which the others would have to wait
keeps the thread that it holds up, as its own, and they go on in another: it costs them a few milliseconds once.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from pyrometer_exporters.framework.worker import LATE, Busy, Outcome, PartError, Pending, Task, Worker

T = TypeVar("T")

APART_SECONDS = 60.0


class Errand(Protocol):
    """A part's job for this time."""

    @property
    def task(self) -> Task[Any] | None:
        """None where the one before is still under way."""

    @property
    def slow(self) -> bool:
        """Whether it is to be done in the part's own thread from the start."""

    @property
    def over(self) -> bool:
        """Whether there is nothing to wait for."""

    def begin(self) -> None:
        """Do it in the part's own thread."""

    def swap(self, worker: Worker[None]) -> Worker[None]:
        """Have this for the part's own thread, as it is held up by the job; the one that it had."""


class Part(Generic[T]):
    """A part's own thread, which is one only once it is needed, and its last job.

    One whose job took longer than ``patience`` seconds in the shared thread has its own for the next minute. How long
    its jobs take there says nothing of it, as those threads wait for each other.
    """

    def __init__(self, name: str, patience: float) -> None:
        self._patience = patience
        self._worker: Worker[None] = Worker(name)
        self._task: Task[T] | None = None
        self._shared = False
        self._apart_until = -math.inf

    def job(self, job: Callable[[], T], *, apart: bool = False) -> Job[T]:
        """An errand for :meth:`Lane.run`; ``apart``: in the part's own thread in any case."""
        now, before = time.monotonic(), self._task
        if before is not None and not before.over:
            return Job(self, None, slow=True)
        if before is not None and self._shared and before.seconds > self._patience:
            self._apart_until = now + APART_SECONDS
        slow = apart or now < self._apart_until
        if not slow:
            self._worker.close()  # an idle thread takes memory: it was needed once, and may never be again
        self._task, self._shared = Task(job), not slow
        return Job(self, self._task, slow=slow)

    def begin(self, task: Task[Any]) -> None:
        """See :class:`Owner`."""
        begin(task, self._worker)

    def swap(self, worker: Worker[None]) -> Worker[None]:
        """See :class:`Errand`."""
        before, self._worker = self._worker, worker
        return before

    def close(self) -> None:
        """Let the thread end once its present job is done; doesn't wait."""
        self._worker.close()


class Owner(Protocol):
    """Whose job it is: what has, or may come to have, a thread of its own."""

    def begin(self, task: Task[Any]) -> None:
        """Do it in that thread."""

    def swap(self, worker: Worker[None]) -> Worker[None]:
        """See :class:`Errand`."""


class Job(Generic[T]):
    """See :class:`Errand`."""

    def __init__(self, part: Owner, task: Task[T] | None, *, slow: bool) -> None:
        self._part = part
        self.task = task
        self.slow = slow
        self.pending: Pending[T] = Busy() if task is None else task

    @property
    def over(self) -> bool:
        """See :class:`Errand`."""
        return self.task is None or self.task.over

    def outcome(self, until: float) -> Outcome[T]:
        """Wait, at most until the monotonic time ``until``, and say what became of it: how long it took itself."""
        return self.pending.outcome(until)

    def begin(self) -> None:
        """See :class:`Errand`."""
        if self.task is not None:
            self._part.begin(self.task)

    def swap(self, worker: Worker[None]) -> Worker[None]:
        """See :class:`Errand`."""
        return self._part.swap(worker)


def begin(task: Task[Any], worker: Worker[None]) -> None:
    """Do it in that thread; where there is none to be had, the task has failed."""
    if not worker.take(task):
        task.fail(PartError(LATE, "its thread is busy"))


class Lane:
    """The thread that quick parts share.

    ``patience`` is how many seconds without one done until the one under way is left behind; it can be twice that where
    one was done just before.
    """

    def __init__(self, name: str, patience: float) -> None:
        self._patience = patience
        self._name = name
        self._worker: Worker[None] = Worker(name)

    def run(self, errands: Sequence[Errand]) -> None:
        """Begin all of them; when this returns, each is over or under way in its part's own thread."""
        for errand in errands:
            if errand.slow:
                errand.begin()
        shared = [errand for errand in errands if not errand.slow]
        while shared:
            shared = self._in_turn(shared)

    def close(self) -> None:
        """Let the thread end."""
        self._worker.close()

    def _in_turn(self, errands: Sequence[Errand]) -> list[Errand]:
        """Those that are yet to begin, as one before them takes too long."""
        left = deque(errands)
        job = self._worker.start(lambda: _run(left))
        reason: str | None = LATE
        before = len(left) + 1
        while reason == LATE and len(left) < before:
            before = len(left)
            reason = job.outcome(time.monotonic() + self._patience).reason
        if reason is None:
            return []
        rest = _taken_back(left)
        if reason != LATE:  # there was no thread to be had: each part will say so
            for errand in rest:
                errand.begin()
            return []
        self._leave(next((errand for errand in errands if errand not in rest and not errand.over), None))
        return rest

    def _leave(self, errand: Errand | None) -> None:
        """Go on in another thread: that of the part which holds this one up, as it has no need of it now."""
        if errand is not None:
            self._worker = errand.swap(self._worker)
        else:  # it was over just now
            self._worker.close()
            self._worker = Worker(self._name)


def _run(left: deque[Errand]) -> None:
    while left:
        try:
            errand = left.popleft()
        except IndexError:  # taken back meanwhile
            return
        if errand.task is not None:
            errand.task.run()


def _taken_back(left: deque[Errand]) -> list[Errand]:
    taken = []
    while left:
        try:
            taken.append(left.popleft())
        except IndexError:  # begun meanwhile
            break
    return taken
