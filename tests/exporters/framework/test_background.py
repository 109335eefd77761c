"""Threads for the event loop: calls that hang hold up no others, and not the end."""

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


def test_calls_that_hang_hold_up_no_others_and_not_the_end(gate: threading.Event) -> None:
    async def calls() -> set[int]:
        for _ in range(10):
            in_thread(gate.wait)
        return {await in_thread(threading.get_ident) for _ in range(3)}

    assert threading.get_ident() not in asyncio.run(asyncio.wait_for(calls(), 10))
