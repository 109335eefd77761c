"""A thread that may hang, and callers that never do.

A read of a sick GPU or a dead port can block for ever. Each part that can hang gets one worker: a caller waits until
its deadline and goes on without it; the worker is busy until its call returns, so at most one thread is ever stuck.
"""

from __future__ import annotations

import errno
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

LATE = "deadline"
"""The reason of a part that has not answered in time."""


class PartError(Exception):
    """A part that can't be read, with the short fixed word that becomes the ``reason`` label."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason
        self.detail = detail


@dataclass(slots=True)  # not frozen: each scrape makes one for each part
class Outcome(Generic[T]):
    """What a part gave: a value, or the reason why not. Exactly one of the two is set.

    ``seconds`` is how long the part took itself, without its wait for others.
    """

    value: T | None
    reason: str | None = None
    detail: str = ""
    seconds: float = 0.0


class Task(Generic[T]):
    """A job, and what becomes of it.

    Not a ``concurrent.futures.Future``: that makes a condition, a lock and two lists for what is nearly always over
    before anybody asks.
    """

    __slots__ = ("_job", "_value", "_waiting", "began", "ended", "error", "over", "started")

    def __init__(self, job: Callable[[], T]) -> None:
        self._job = job
        self._value: T | None = None
        self.error: BaseException | None = None
        """What it ended with in place of a value."""
        self._waiting: list[threading.Lock] = []
        self.started = self.began = self.ended = time.monotonic()
        self.over = False
        """Whether it ended, one way or the other."""

    @property
    def seconds(self) -> float:
        """How long it took, once it is over."""
        return self.ended - self.began

    def run(self) -> None:
        """Do the job, in this thread. Never raises."""
        self.began = time.monotonic()
        try:
            self._value = self._job()
        except BaseException as error:  # noqa: BLE001  whatever a driver binding raises belongs to this part alone
            self.error = error
        self._end()

    def fail(self, error: BaseException) -> None:
        """It ended with an error."""
        self.error = error
        self._end()

    def outcome(self, until: float) -> Outcome[T]:
        """Wait, at most until the monotonic time ``until``, and say what became of it. Never raises."""
        if not self.over and not self._ends(until):
            return Outcome(None, LATE, f"no answer in {time.monotonic() - self.started:.1f} s")
        error = self.error
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
        # What ended before the lock was there to be seen does not release it.
        return self.over or lock.acquire(timeout=max(0.0, until - time.monotonic())) or self.over


class Busy:
    """In place of a job that can't be begun, as the one before still runs."""

    __slots__ = ("started",)

    def __init__(self) -> None:
        self.started = time.monotonic()

    def outcome(self, _until: float) -> Outcome[Any]:
        """Late from the start."""
        return Outcome(None, LATE, "still busy with an earlier read")


Pending = Task[T] | Busy
"""A job under way, if it could be begun."""


class Worker(Generic[T]):
    """One daemon thread, one job at a time.

    Not a ThreadPoolExecutor: that one joins its threads at exit, and a thread stuck in a driver call would keep the
    process from ending.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._jobs: queue.SimpleQueue[Task[T] | None] | None = None  # None while there is no thread
        self._lock = threading.Lock()
        self._current: Task[T] | None = None

    def start(self, job: Callable[[], T]) -> Pending[T]:
        """Begin ``job``; if the one before still runs, what is returned is late from the start."""
        task = Task(job)
        return task if self.take(task) else Busy()

    def take(self, task: Task[T]) -> bool:
        """Begin ``task`` itself, so that whoever sees it end can begin the next; whether the one before was over."""
        with self._lock:
            if self._current is not None and not self._current.over:
                return False
            try:
                jobs = self._ensured_thread()
            except RuntimeError as error:  # no thread to be had now; perhaps at the next scrape
                task.fail(error)
                return True
            self._current = task
            jobs.put(task)
        return True

    def close(self) -> None:
        """Let the thread end once its present job is done; doesn't wait. A job that comes later has a new one."""
        with self._lock:
            jobs, self._jobs = self._jobs, None
        if jobs is not None:
            jobs.put(None)

    def _ensured_thread(self) -> queue.SimpleQueue[Task[T] | None]:
        if self._jobs is None:
            jobs: queue.SimpleQueue[Task[T] | None] = queue.SimpleQueue()
            threading.Thread(target=self._run, args=(jobs,), name=f"worker-{self.name}", daemon=True).start()
            self._jobs = jobs
        return self._jobs

    def _run(self, jobs: queue.SimpleQueue[Task[T] | None]) -> None:
        while (task := jobs.get()) is not None:
            task.run()
            # Not kept until the next job: a result can be large and the next job may be a minute away.
            del task


def reason_of(error: BaseException) -> str:
    """A fixed word for an exception, fit for a label: errno names in lower case, else the class name.

    >>> reason_of(OSError(5, "Input/output error"))
    'eio'
    """
    if isinstance(error, OSError) and error.errno is not None:
        return errno.errorcode.get(error.errno, "oserror").lower()
    return type(error).__name__.lower()
