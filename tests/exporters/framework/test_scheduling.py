"""Quick parts share a thread; one that holds it up keeps it, and the others go on."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from pyrometer_exporters.framework import scheduling
from pyrometer_exporters.framework.scheduling import Member, SharedWorker, Task


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def jobs(*todo: Callable[[], int], patience: float = 20.0) -> list[Task[int]]:
    return [Member(f"part-{number}", patience).task(job) for number, job in enumerate(todo)]


def value(job: Task[int]) -> int | None:
    return job.outcome(time.monotonic() + 20).value


def test_quick_parts_are_done_in_one_thread_and_slow_ones_in_their_own() -> None:
    shared = SharedWorker("shared", 20.0)
    quick = jobs(*[threading.get_ident] * 5)
    slow = Member("slow", 20.0).task(threading.get_ident, apart=True)
    shared.run([*quick[:2], slow, *quick[2:]])
    threads = {value(job) for job in quick}
    shared.close()
    assert len(threads) == 1
    assert value(slow) not in threads


def test_they_are_done_in_the_order_given() -> None:
    done: list[int] = []
    shared = SharedWorker("shared", 20.0)
    shared.run(jobs(*[lambda number=number: done.append(number) or number for number in range(5)]))  # type: ignore[misc,func-returns-value]
    shared.close()
    assert done == [0, 1, 2, 3, 4]


def test_a_part_that_hangs_keeps_the_thread_and_the_others_go_on(gate: threading.Event) -> None:
    shared = SharedWorker("shared", 0.01)
    before, hangs, after = jobs(threading.get_ident, lambda: int(gate.wait(30)), threading.get_ident)
    shared.run([before, hangs, after])
    assert value(before)
    assert value(after)
    assert not hangs.over
    gate.set()
    assert value(hangs) == 1
    shared.close()


def test_a_part_that_still_hangs_is_late_at_once_and_holds_up_one_thread(gate: threading.Event) -> None:
    shared = SharedWorker("shared", 0.01)
    part = Member("part", 0.01)
    shared.run([part.task(lambda: int(gate.wait(30)))])
    threads = threading.active_count()
    for _ in range(3):
        again = part.task(lambda: 1)
        shared.run([again, *jobs(threading.get_ident)])
        assert again.outcome(time.monotonic() + 20).reason == "deadline"
    assert threading.active_count() <= threads + 1
    shared.close()


def test_a_part_that_was_slow_among_others_is_apart_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(scheduling.time, "monotonic", lambda: now[0])
    part = Member("part", 0.02)

    def done(seconds: float) -> bool:
        """True if it was to run apart."""
        job = part.task(lambda: now.__setitem__(0, now[0] + seconds) or 1)  # type: ignore[func-returns-value]
        job.run()
        return job.apart

    assert not done(0.03), "the first opens what later ones only read"
    assert not done(0.01)
    assert not done(0.03)
    assert done(0.03)  # how long that takes says nothing
    now[0] += 50
    assert done(0.03)
    now[0] += 10
    assert not done(0.01)
    assert not done(0.01)


def test_a_part_that_is_among_the_others_again_has_no_thread_of_its_own() -> None:
    shared, part = SharedWorker("shared", 20.0), Member("own", 20.0)
    for apart in (True, False):
        job = part.task(threading.get_ident, apart=apart)
        shared.run([job])
        assert value(job)
    end = time.monotonic() + 5
    while _has_thread("worker-own") and time.monotonic() < end:
        time.sleep(0.01)
    assert not _has_thread("worker-own")
    shared.close()


def _has_thread(name: str) -> bool:
    return name in [thread.name for thread in threading.enumerate()]


def test_a_part_whose_job_has_ended_can_have_the_next_at_once() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        shared, part = SharedWorker("shared", 20.0), Member("slow", 20.0)
        for number in range(3000):
            job = part.task(lambda number=number: number, apart=True)  # type: ignore[misc]
            shared.run([job])
            assert job.outcome(time.monotonic() + 20).reason is None, number
    finally:
        sys.setswitchinterval(before)
        part.close()
        shared.close()


def test_how_long_a_job_took_is_without_its_wait_for_the_others() -> None:
    shared = SharedWorker("shared", 20.0)
    first, second = tasks = jobs(lambda: 1, lambda: 2)
    shared.run(tasks)
    assert [value(task) for task in tasks] == [1, 2]
    assert second.started <= first.began <= first.ended <= second.began
    assert second.seconds == second.ended - second.began
    shared.close()


def test_without_a_thread_to_be_had_each_part_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_self: threading.Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    monkeypatch.setattr(threading.Thread, "start", none)
    shared = SharedWorker("shared", 0.01)
    found = jobs(threading.get_ident, threading.get_ident)
    shared.run(found)
    outcomes = [job.outcome(time.monotonic() + 1) for job in found]
    assert [outcome.reason for outcome in outcomes] == ["runtimeerror"] * 2
    assert all(outcome.seconds < 1 for outcome in outcomes), "they never began"
