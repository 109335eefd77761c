"""Threads for the event loop, one per call and never waited for at exit.

Not ``asyncio.to_thread``: its pool has few threads, so that calls that hang would hold up all others, and
``asyncio.run`` waits for it to the end, so that one hung call would outlive SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


def in_thread(function: Callable[P, T], *args: P.args, **settings: P.kwargs) -> asyncio.Future[T]:
    """Call ``function`` in a daemon thread of its own; the future gets what it returns or raises."""
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

    threading.Thread(target=body, name=getattr(function, "__name__", "call"), daemon=True).start()
    return future
