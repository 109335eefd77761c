"""Threads for an event loop's blocking calls, which are not awaited at exit.

Not ``asyncio.to_thread``: its pool has few threads, so that calls that hang would block all others, and
``asyncio.run`` waits for it, so that one hung call would outlive SIGTERM. And not a new thread for each call: on an
idle node that costs as much as the rest of a short answer. So an idle thread waits for the next call, and further
ones start as needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast

T = TypeVar("T")
P = ParamSpec("P")


class Threads:
    """Runs calls, each in a daemon thread that runs no other call meanwhile. For one event loop."""

    def __init__(self, kept: int = 1) -> None:
        """Let up to ``kept`` idle threads wait for the next call."""
        self._kept = kept
        self._idle: list[queue.SimpleQueue[_Call | None]] = []

    def call(self, function: Callable[P, T], *args: P.args, **settings: P.kwargs) -> asyncio.Future[T]:
        """Run ``function``; return a future for its result or exception.

        Raises:
            RuntimeError: No thread can be started.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.submit(partial(complete, future), function, *args, **settings)
        return future

    def submit(
        self,
        then: Callable[[T | None, BaseException | None], None],
        function: Callable[P, T],
        *args: P.args,
        **settings: P.kwargs,
    ) -> None:
        """Run ``function``, then ``then`` in the loop, with its result and its exception.

        Raises:
            RuntimeError: No thread can be started.
        """
        call = _Call(asyncio.get_running_loop(), then, partial(function, *args, **settings))
        (self._idle.pop() if self._idle else self._start()).put(call)

    def close(self) -> None:
        """End the idle threads, and each busy one after its call."""
        self._kept = 0
        while self._idle:
            self._idle.pop().put(None)

    def _start(self) -> queue.SimpleQueue[_Call | None]:
        calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(calls,), name="calls", daemon=True).start()
        return calls

    def _run(self, calls: queue.SimpleQueue[_Call | None]) -> None:
        kept = True
        while kept and (call := calls.get()) is not None:
            call.run()
            kept = len(self._idle) < self._kept
            if kept:  # before the result is visible: the next caller finds the thread
                self._idle.append(calls)
            call.report()
            del call  # with its result, which can be large


class _Call:
    """A call with its result or exception."""

    __slots__ = ("_error", "_function", "_loop", "_result", "_then")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        then: Callable[[Any, BaseException | None], None],
        function: Callable[[], object],
    ) -> None:
        self._loop, self._then, self._function = loop, then, function
        self._result: object = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call. Never raises."""
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001  passed on to the waiting coroutine
            # SystemExit and its like would end the loop; a future cannot carry StopIteration.
            plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            self._error = error if plain else RuntimeError(repr(error))

    def report(self) -> None:
        """Hand the outcome to the loop."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: no one is waiting any more
            self._loop.call_soon_threadsafe(self._then, self._result, self._error)


def complete(future: asyncio.Future[T], result: T | None, error: BaseException | None) -> None:
    """Complete a future with the outcome of a call, unless its waiter is gone."""
    if future.done():
        return
    if error is None:
        future.set_result(cast("T", result))
    else:
        future.set_exception(error)
