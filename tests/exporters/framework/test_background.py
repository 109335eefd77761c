"""Threads for the event loop: calls that hang hold up no others, and a thread is used again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from pyrometer_exporters.framework.background import in_thread


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def raises() -> None:
    raise StopIteration


def test_it_gives_what_the_call_returns_or_raises() -> None:
    async def calls() -> int:
        with pytest.raises(ZeroDivisionError):
            await in_thread(divmod, 1, 0)
        with pytest.raises(RuntimeError):
            await in_thread(raises)
        return await in_thread(int, "ff", base=16)

    assert asyncio.run(calls()) == 255


def test_one_call_after_the_other_makes_no_new_threads() -> None:
    async def calls() -> int:
        threads = set()
        for _ in range(20):
            threads.add(await in_thread(threading.get_ident))
            await asyncio.sleep(0.02)  # it has said so a moment before it can be used again
        return len(threads)

    assert asyncio.run(calls()) <= 3


def test_calls_that_hang_hold_up_no_others_and_not_the_end(gate: threading.Event) -> None:
    async def calls() -> set[int]:
        for _ in range(10):
            in_thread(gate.wait)
        return {await in_thread(threading.get_ident) for _ in range(3)}

    assert threading.get_ident() not in asyncio.run(asyncio.wait_for(calls(), 10))


def test_few_threads_stay_after_many_calls_at_once(gate: threading.Event) -> None:
    async def calls() -> None:
        many = [in_thread(gate.wait) for _ in range(30)]
        gate.set()
        await asyncio.gather(*many)
        for _ in range(100):
            if [thread.name for thread in threading.enumerate()].count("background") <= 5:
                return
            await asyncio.sleep(0.05)
        pytest.fail("threads stayed")

    asyncio.run(calls())
