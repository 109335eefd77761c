"""Threads for the event loop: calls that hang hold up no others, and not the end."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterator

import pytest

from pyrometer_kit.threads import Threads


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def raises() -> None:
    raise StopIteration


def test_it_gives_what_the_call_returns_or_raises() -> None:
    threads = Threads()

    async def calls() -> int:
        with pytest.raises(ZeroDivisionError):
            await threads.call(divmod, 1, 0)
        with pytest.raises(RuntimeError):
            await threads.call(raises)
        return await threads.call(int, "ff", base=16)

    assert asyncio.run(calls()) == 255


def test_calls_that_hang_hold_up_no_others_and_not_the_end(gate: threading.Event) -> None:
    threads = Threads()

    async def calls() -> set[int]:
        for _ in range(10):
            threads.call(gate.wait)
        return {await threads.call(threading.get_ident) for _ in range(3)}

    assert threading.get_ident() not in asyncio.run(asyncio.wait_for(calls(), 10))


def test_calls_one_after_the_other_are_made_in_one_thread() -> None:
    threads = Threads()

    async def calls() -> set[int]:
        return {await threads.call(threading.get_ident) for _ in range(20)}

    assert len(asyncio.run(calls())) == 1


def test_of_the_threads_that_many_calls_took_one_stays_and_none_once_closed(gate: threading.Event) -> None:
    threads, before = Threads(), set(threading.enumerate())

    async def until(count: int) -> None:
        while len(set(threading.enumerate()) - before) != count:
            await asyncio.sleep(0.01)

    async def calls() -> None:
        many = [threads.call(gate.wait) for _ in range(5)]
        gate.set()
        await asyncio.gather(*many)
        await until(1)
        threads.close()
        await until(0)
        assert await threads.call(int) == 0
        await until(0)

    asyncio.run(asyncio.wait_for(calls(), 20))


def test_nothing_of_a_result_is_kept_by_the_thread() -> None:
    class Large:
        pass

    threads = Threads()

    async def calls() -> None:
        seen = weakref.ref(await threads.call(Large))
        while seen() is not None:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(calls(), 10))
