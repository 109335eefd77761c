"""Run the reads of parts that may hang, so that one that hangs costs itself and one thread, and nobody else.

A read of a sick GPU or a dead port can block for ever, and no thread can be cancelled. Fast parts share a thread:
waking one for each of 14 devices costs more than reading them, and threads that read at once pass the interpreter's
lock to and fro. A part that holds up the shared thread keeps it as its own, and the others go on in another one::

    scrape                     shared thread                 part b's own thread
    ------                     -------------                 -------------------
    run([a, b, c, d])  ----->  a  b......................    (none yet)
      no progress for              :                    :
      ``patience``                 : b keeps its thread +->  b, hanging
      take back c, d   ----->  c  d  in another thread       :
    a.outcome(until): value                                  :
    b.outcome(until): deadline                               :
    next scrape                                              :
      b: deadline at once, no second thread                  b returns: what it opened is kept, its value is
      a, c, d          ----->  a  c  d                          dropped, as it is old
    one minute later, if b is fast again
      a, b, c, d       ----->  a  b  c  d                    ends
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from pyrometer_exporters.framework.outcome import LATE, Outcome, PartError, reason_of

T = TypeVar("T")

# How long a part that was too slow for the shared thread is read in its own.
APART_SECONDS = 60.0
BUSY = "still busy with an earlier read"


class Task(Generic[T]):
    """One call of a job, and what became of it.

    Not a ``concurrent.futures.Future``: that makes a condition, a lock and two lists for what is nearly always over
    before anybody asks.
    """

    __slots__ = ("_error", "_job", "_value", "_waiting", "apart", "began", "ended", "member", "over", "started")

    def __init__(self, job: Callable[[], T], member: Member | None = None, *, apart: bool = True) -> None:
        self._job = job
        self._value: T | None = None
        self._error: BaseException | None = None
        self._waiting: list[threading.Lock] = []
        self.member = member
        self.apart = apart
        """True if it runs in its member's own thread from the start."""
        self.started = self.began = self.ended = time.monotonic()
        self.over = False
        """True once it has ended, with a value or an error."""

    @property
    def seconds(self) -> float:
        """How long the job ran, once it is over."""
        return self.ended - self.began

    def run(self) -> None:
        """Call the job in this thread. Never raises."""
        self.began = time.monotonic()
        try:
            self._value = self._job()
        except BaseException as error:  # noqa: BLE001  whatever a driver binding raises belongs to this part alone
            self._error = error
        self._end()

    def fail(self, error: BaseException) -> None:
        """End the task with an error."""
        self._error = error
        self._end()

    def outcome(self, until: float) -> Outcome[T]:
        """Wait, at most until the monotonic time ``until``, and return what became of the task. Never raises."""
        if not self.over and not self._ends(until):
            return Outcome(None, LATE, f"no answer in {time.monotonic() - self.started:.1f} s")
        error = self._error
        if error is None:
            return Outcome(self._value, None, "", self.seconds)
        if isinstance(error, PartError):
            return Outcome(None, error.reason, error.detail, self.seconds)
        return Outcome(None, reason_of(error), f"{type(error).__name__}: {error}", self.seconds)

    def _end(self) -> None:
        self.ended = time.monotonic()
        self.over = True
        for lock in self._waiting:
            lock.release()

    def _ends(self, until: float) -> bool:
        lock = threading.Lock()
        lock.acquire()
        self._waiting.append(lock)
        # A task that ended before the lock was in the list does not release it.
        return self.over or lock.acquire(timeout=max(0.0, until - time.monotonic())) or self.over


class Worker:
    """One daemon thread, started when there is a task for it; one task at a time.

    Not a ThreadPoolExecutor: that one joins its threads at exit, and a thread stuck in a driver call would keep the
    process from ending.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._tasks: queue.SimpleQueue[Task[Any] | None] | None = None  # None while there is no thread
        self._lock = threading.Lock()
        self._current: Task[Any] | None = None

    @property
    def busy(self) -> bool:
        """True while the latest task runs."""
        return self._current is not None and not self._current.over

    def start(self, job: Callable[[], T]) -> Task[T]:
        """Begin ``job``; while an earlier task still runs, return one that has failed as late."""
        task = Task(job)
        if self.busy:
            task.fail(PartError(LATE, BUSY))
        else:
            self.begin(task)
        return task

    def begin(self, task: Task[Any]) -> None:
        """Run a task in this worker's thread, after the present one; it fails if no thread can be started."""
        with self._lock:
            try:
                tasks = self._started()
            except RuntimeError as error:  # perhaps there is one at the next scrape
                task.fail(error)
                return
            self._current = task
            tasks.put(task)

    def close(self) -> None:
        """Let the thread end after its present task, without waiting; a later task starts another one."""
        with self._lock:
            tasks, self._tasks = self._tasks, None
        if tasks is not None:
            tasks.put(None)

    def _started(self) -> queue.SimpleQueue[Task[Any] | None]:
        if self._tasks is None:
            tasks: queue.SimpleQueue[Task[Any] | None] = queue.SimpleQueue()
            threading.Thread(target=self._run, args=(tasks,), name=f"worker-{self.name}", daemon=True).start()
            self._tasks = tasks
        return self._tasks

    def _run(self, tasks: queue.SimpleQueue[Task[Any] | None]) -> None:
        while (task := tasks.get()) is not None:
            task.run()
            # Dropped before the next one comes: a result can be large and the next task may be a minute away.
            del task


class Member:
    """A part that shares a thread with others: its latest task, and a worker of its own for as long as it needs one.

    If a task took longer than ``patience`` seconds in the shared thread, the tasks of the next minute run in the
    member's own. The first one doesn't count, as it opens what later ones only read; nor do those in the own thread,
    as threads that run at once wait for each other.
    """

    def __init__(self, name: str, patience: float) -> None:
        self.worker = Worker(name)
        self._patience = patience
        self._task: Task[Any] | None = None
        self._counts = False
        self._apart_until = -math.inf

    @property
    def busy(self) -> bool:
        """True until the latest task has ended."""
        return self._task is not None and not self._task.over

    def task(self, job: Callable[[], T], *, apart: bool = False, now: float | None = None) -> Task[T]:
        """Make a task for :meth:`SharedWorker.run`; while the one before still runs, one that has failed as late.

        Args:
            job: called once, in the shared thread or in the member's own.
            apart: run it in the member's own thread in any case.
            now: monotonic time in seconds, if it is not the machine's.
        """
        now, before = time.monotonic() if now is None else now, self._task
        if before is not None and not before.over:
            late: Task[T] = Task(job, self)
            late.fail(PartError(LATE, BUSY))
            return late
        if before is not None and self._counts and before.seconds > self._patience:
            self._apart_until = now + APART_SECONDS
        task = Task(job, self, apart=apart or now < self._apart_until)
        if not task.apart:
            self.worker.close()  # an idle thread takes memory: it was needed once, and may never be again
        self._counts = before is not None and not task.apart
        self._task = task
        return task

    def close(self) -> None:
        """Let the member's own thread end after its present task, without waiting."""
        self.worker.close()


class SharedWorker:
    """The thread that fast parts share; ``patience`` is how many seconds a task may hold up those behind it."""

    def __init__(self, name: str, patience: float) -> None:
        self._patience = patience
        self._worker = Worker(name)

    def run(self, tasks: Sequence[Task[Any]]) -> None:
        """Begin all tasks; when this returns, each is over or runs in its member's own thread."""
        for task in tasks:
            if task.apart:
                begin_apart(task)
        left = [task for task in tasks if not task.apart]
        while left:
            left = self._run_in_turn(left)

    def close(self) -> None:
        """Let the thread end."""
        self._worker.close()

    def _run_in_turn(self, tasks: list[Task[Any]]) -> list[Task[Any]]:
        """Run tasks until none is left or one holds up the others; return those that are yet to begin."""
        left = deque(tasks)  # a new one each time: a thread that was left behind may look into it again, much later
        turn = self._worker.start(partial(_run_all, left))
        before = math.inf
        while (reason := turn.outcome(time.monotonic() + self._patience).reason) == LATE and len(left) < before:
            before = len(left)
        if reason is None:
            return []
        waiting = _take_back(left)
        if reason != LATE:  # no thread could be started: each task fails with that reason
            for task in waiting:
                begin_apart(task)
            return []
        self._hand_over(next((task for task in tasks if not task.over and task not in waiting), None))
        return waiting

    def _hand_over(self, slow: Task[Any] | None) -> None:
        """Leave the thread to the task that holds it up, and go on in the one that its member has no use for now."""
        if slow is not None and slow.member is not None:
            self._worker, slow.member.worker = slow.member.worker, self._worker
        else:  # it ended just now
            self._worker.close()
            self._worker = Worker(self._worker.name)


def begin_apart(task: Task[Any]) -> None:
    """Run a task in its member's own thread, unless it is over."""
    if not task.over and task.member is not None:
        task.member.worker.begin(task)


def _run_all(left: deque[Task[Any]]) -> None:
    while left:
        try:
            task = left.popleft()
        except IndexError:  # taken back meanwhile
            return
        task.run()


def _take_back(left: deque[Task[Any]]) -> list[Task[Any]]:
    taken: list[Task[Any]] = []
    while left:
        try:
            taken.append(left.popleft())
        except IndexError:  # begun meanwhile
            break
    return taken
