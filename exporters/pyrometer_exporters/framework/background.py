"""Threads for the event loop, one for each call under way and never waited for at exit.

Not ``asyncio.to_thread``: its pool has few threads, so that calls that hang would hold up all others, and
``asyncio.run`` waits for it to the end, so that one hung call would outlive SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


def in_thread(function: Callable[P, T], *args: P.args, **settings: P.kwargs) -> asyncio.Future[T]:
    """Call ``function`` in a daemon thread that has nothing else to do; the future gets what it returns or raises."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(setter: Callable[[], None]) -> None:
        if not future.done():  # not cancelled meanwhile
            setter()

    def body() -> None:
        try:
            result = function(*args, **settings)
        except BaseException as error:  # noqa: BLE001  handed on to whoever awaits the future
            # SystemExit and its like would end the loop; StopIteration can't be carried by a future.
            plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            setter = partial(future.set_exception, error if plain else RuntimeError(repr(error)))
        else:
            setter = partial(future.set_result, result)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, setter)

    try:
        calls = _idle.pop()
    except IndexError:
        calls = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(calls,), name="background", daemon=True).start()
    calls.put(body)
    return future


# To begin a thread takes a tenth of a millisecond, and a scrape of batches has two calls.
_MOST_IDLE = 2
_Calls = queue.SimpleQueue[Callable[[], None]]
_idle: list[_Calls] = []


def _serve(calls: _Calls) -> None:
    """A thread: a call, and then perhaps others."""
    while True:
        calls.get()()
        if len(_idle) >= _MOST_IDLE:
            return
        _idle.append(calls)
