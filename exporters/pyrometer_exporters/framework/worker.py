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
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

LATE = "deadline"
"""The reason of a part that has not answered in time."""


class _Timed(Future[T]):
    """A future that knows when its job ended, which may be long before anyone asks."""

    ended = 0.0


class PartError(Exception):
    """A part that can't be read, with the short fixed word that becomes the ``reason`` label."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What a part gave: a value, or the reason why not. Exactly one of the two is set."""

    value: T | None
    reason: str | None = None
    detail: str = ""
    seconds: float = 0.0


class Task(Generic[T]):
    """A job, and what becomes of it."""

    def __init__(self, job: Callable[[], T]) -> None:
        self._job = job
        self.future: _Timed[T] = _Timed()
        self.pending = Pending(self.future, time.monotonic())
        self.began = 0.0

    @property
    def over(self) -> bool:
        """Whether it ended, one way or the other."""
        return self.future.done()

    @property
    def seconds(self) -> float:
        """How long it took, once it is over."""
        return self.future.ended - self.began

    def run(self) -> None:
        """Do the job, in this thread. Never raises."""
        self.began = time.monotonic()
        try:
            result = self._job()
        except BaseException as error:  # noqa: BLE001  whatever a driver binding raises belongs to this part alone
            self.fail(error)
        else:
            self.future.ended = time.monotonic()
            self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """It ended with an error."""
        self.future.ended = time.monotonic()
        self.future.set_exception(error)


class Worker(Generic[T]):
    """One daemon thread, one job at a time.

    Not a ThreadPoolExecutor: that one joins its threads at exit, and a thread stuck in a driver call would keep the
    process from ending.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._jobs: queue.SimpleQueue[Task[T] | None] | None = None  # None while there is no thread
        self._lock = threading.Lock()
        self._current: _Timed[T] | None = None

    def start(self, job: Callable[[], T]) -> Pending[T]:
        """Begin ``job``; if the one before still runs, the returned :class:`Pending` is late from the start."""
        with self._lock:
            if self._current is not None and not self._current.done():
                return Pending(None, time.monotonic())
            task = Task(job)
            try:
                jobs = self._ensured_thread()
            except RuntimeError as error:  # no thread to be had now; perhaps at the next scrape
                task.fail(error)
                return task.pending
            self._current = task.future
            jobs.put(task)
        return task.pending

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


@dataclass(frozen=True)
class Pending(Generic[T]):
    """A job under way; ``future`` is None where the worker was still busy with the job before."""

    future: _Timed[T] | None
    started: float

    def outcome(self, until: float) -> Outcome[T]:
        """Wait, at most until the monotonic time ``until``, and say what became of it. Never raises."""
        if self.future is None:
            return Outcome(None, LATE, "still busy with an earlier read")
        try:
            error = self.future.exception(max(0.0, until - time.monotonic()))
        except FutureTimeoutError:
            return Outcome(None, LATE, f"no answer in {time.monotonic() - self.started:.1f} s")
        seconds = self.future.ended - self.started
        if error is None:
            return Outcome(self.future.result(), seconds=seconds)
        if isinstance(error, PartError):
            return Outcome(None, error.reason, error.detail, seconds)
        return Outcome(None, reason_of(error), f"{type(error).__name__}: {error}", seconds)


def reason_of(error: BaseException) -> str:
    """A fixed word for an exception, fit for a label: errno names in lower case, else the class name.

    >>> reason_of(OSError(5, "Input/output error"))
    'eio'
    """
    if isinstance(error, OSError) and error.errno is not None:
        return errno.errorcode.get(error.errno, "oserror").lower()
    return type(error).__name__.lower()
