"""Threads for the event loop, never waited for at exit: one is kept for the next call, others are there for one each.

Not ``asyncio.to_thread``: its pool has few threads, so that calls that hang would hold up all others, and
``asyncio.run`` waits for it to the end, so that one hung call would outlive SIGTERM. And not a new thread for each
call: on a node at rest that costs as much as all else that a short answer takes.
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
    """Makes calls, each in a daemon thread that no other call is in. For one event loop."""

    def __init__(self, kept: int = 1) -> None:
        """``kept`` is how many threads may wait for the next call."""
        self._kept = kept
        self._idle: list[queue.SimpleQueue[_Call | None]] = []

    def call(self, function: Callable[P, T], *args: P.args, **settings: P.kwargs) -> asyncio.Future[T]:
        """Call ``function``; the future gets what it returns or raises. RuntimeError where no thread is to be had."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.tell(partial(settle, future), function, *args, **settings)
        return future

    def tell(
        self,
        then: Callable[[T | None, BaseException | None], None],
        function: Callable[P, T],
        *args: P.args,
        **settings: P.kwargs,
    ) -> None:
        """Call ``function``, then ``then`` in the loop, with what it returned or raised. Errors as :meth:`call`."""
        call = _Call(asyncio.get_running_loop(), then, partial(function, *args, **settings))
        (self._idle.pop() if self._idle else self._started()).put(call)

    def close(self) -> None:
        """Keep no thread from now on."""
        self._kept = 0
        while self._idle:
            self._idle.pop().put(None)

    def _started(self) -> queue.SimpleQueue[_Call | None]:
        calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(calls,), name="calls", daemon=True).start()
        return calls

    def _run(self, calls: queue.SimpleQueue[_Call | None]) -> None:
        kept = True
        while kept and (call := calls.get()) is not None:
            call.do()
            kept = len(self._idle) < self._kept
            if kept:  # before anybody knows that the call is over: whoever makes the next one finds the thread
                self._idle.append(calls)
            call.tell()
            del call  # with its result, which can be large


class _Call:
    """A call and what came of it."""

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

    def do(self) -> None:
        """Call. Never raises."""
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001  handed on to whoever waits
            # SystemExit and its like would end the loop; StopIteration can't be carried by a future.
            plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            self._error = error if plain else RuntimeError(repr(error))

    def tell(self) -> None:
        """Let the loop know."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._then, self._result, self._error)


def settle(future: asyncio.Future[T], result: T | None, error: BaseException | None) -> None:
    """Give a future what came of a call, unless nobody waits for it any more."""
    if future.done():
        return
    if error is None:
        future.set_result(cast("T", result))
    else:
        future.set_exception(error)
