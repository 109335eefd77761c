"""Quick parts share a thread; one that holds it up keeps it, and the others go on. Callers never hang."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

from pyrometer_exporters.framework import scheduling
from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.framework.scheduling import Member, SharedWorker, Task, Worker


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """The event that hung jobs wait for; set at the end so that no thread stays."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker("w")
    yield made
    made.close()


@pytest.fixture
def shared() -> Iterator[SharedWorker]:
    """A shared thread that waits for its parts even on a busy machine."""
    made = SharedWorker("shared", 20.0)
    yield made
    made.close()


@pytest.fixture
def impatient() -> Iterator[SharedWorker]:
    made = SharedWorker("shared", 0.01)
    yield made
    made.close()


def jobs(*todo: Callable[[], int], patience: float = 20.0) -> list[Task[int]]:
    return [Member(f"part-{number}", patience).task(job) for number, job in enumerate(todo)]


def value(job: Task[int]) -> int | None:
    return job.outcome(time.monotonic() + 20).value


def test_quick_parts_are_done_in_one_thread_and_slow_ones_in_their_own(shared: SharedWorker) -> None:
    quick = jobs(*[threading.get_ident] * 5)
    slow = Member("slow", 20.0).task(threading.get_ident, apart=True)
    shared.run([*quick[:2], slow, *quick[2:]])
    threads = {value(job) for job in quick}
    assert len(threads) == 1
    assert value(slow) not in threads


def test_parts_run_in_the_order_given(shared: SharedWorker) -> None:
    done: list[int] = []
    shared.run(jobs(*[lambda number=number: done.append(number) or number for number in range(5)]))  # type: ignore[misc,func-returns-value]
    assert done == [0, 1, 2, 3, 4]


def test_a_part_that_hangs_keeps_the_thread_and_the_others_go_on(
    impatient: SharedWorker, gate: threading.Event
) -> None:
    before, hangs, after = jobs(threading.get_ident, lambda: int(gate.wait(30)), threading.get_ident)
    impatient.run([before, hangs, after])
    assert value(before)
    assert value(after)
    assert not hangs.over
    gate.set()
    assert value(hangs) == 1


def test_a_part_that_still_hangs_is_late_at_once_and_holds_up_one_thread(
    impatient: SharedWorker, gate: threading.Event
) -> None:
    part = Member("part", 0.01)
    impatient.run([part.task(lambda: int(gate.wait(30)))])
    threads = threading.active_count()
    for _ in range(3):
        again = part.task(lambda: 1)
        impatient.run([again, *jobs(threading.get_ident)])
        assert again.outcome(time.monotonic() + 20).reason == "deadline"
    assert threading.active_count() <= threads + 1


def test_a_part_that_was_slow_in_the_shared_thread_has_its_own_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_part_that_shares_the_thread_again_gives_up_its_own() -> None:
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


def test_the_duration_of_a_job_excludes_its_wait(shared: SharedWorker) -> None:
    first, second = tasks = jobs(lambda: 1, lambda: 2)
    shared.run(tasks)
    assert [value(task) for task in tasks] == [1, 2]
    assert second.started <= first.began <= first.ended <= second.began
    assert second.seconds == second.ended - second.began


def test_parts_fail_where_no_thread_can_be_started(impatient: SharedWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_self: threading.Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    monkeypatch.setattr(threading.Thread, "start", none)
    found = jobs(threading.get_ident, threading.get_ident)
    impatient.run(found)
    outcomes = [job.outcome(time.monotonic() + 1) for job in found]
    assert [outcome.reason for outcome in outcomes] == ["runtimeerror"] * 2
    assert all(outcome.seconds < 1 for outcome in outcomes), "they never began"


def soon(seconds: float = 0.05) -> float:
    return time.monotonic() + seconds


def test_an_outcome_has_the_value_and_the_duration(worker: Worker) -> None:
    outcome = worker.start(lambda: 7).outcome(soon(5))
    assert (outcome.value, outcome.reason) == (7, None)
    assert 0 <= outcome.seconds < 5


def test_the_duration_does_not_grow_until_somebody_asks(worker: Worker) -> None:
    task = worker.start(lambda: 7)
    assert task.outcome(soon(20)).value == 7
    assert task.outcome(soon()).seconds == task.outcome(soon()).seconds == task.ended - task.began


def test_the_end_of_a_job_wakes_all_that_wait(worker: Worker, gate: threading.Event) -> None:
    pending = worker.start(gate.wait)
    found: list[bool | None] = []
    waiting = [threading.Thread(target=lambda: found.append(pending.outcome(soon(20)).value)) for _ in range(5)]
    for one in waiting:
        one.start()
    assert pending.outcome(soon()).reason == "deadline"
    gate.set()
    for one in waiting:
        one.join(20)
    assert found == [True] * 5


def test_a_hung_job_costs_one_deadline_and_one_thread(gate: threading.Event) -> None:
    worker: Worker = Worker("hung")
    began = time.monotonic()
    first = worker.start(gate.wait).outcome(soon())
    assert first.reason == "deadline"
    assert 0.04 < time.monotonic() - began < 10
    for _ in range(20):
        began = time.monotonic()
        outcome = worker.start(gate.wait).outcome(soon(30))
        assert (outcome.reason, outcome.value) == ("deadline", None)
        assert time.monotonic() - began < 10
    assert [thread.name for thread in threading.enumerate()].count("worker-hung") == 1
    worker.close()


def test_a_worker_runs_again_once_the_hung_call_returns(worker: Worker, gate: threading.Event) -> None:
    assert worker.start(gate.wait).outcome(soon()).reason == "deadline"
    gate.set()
    deadline = soon(5)
    while worker.start(lambda: True).outcome(soon(1)).reason and time.monotonic() < deadline:
        time.sleep(0.01)
    assert worker.start(lambda: True).outcome(soon(1)).value is True


def test_a_closed_worker_has_no_thread_until_its_next_job() -> None:
    worker: Worker = Worker("closed")
    for _ in range(3):
        assert worker.start(lambda: 7).outcome(soon(5)).value == 7
        worker.close()
        worker.close()
        end = soon(5)
        while "worker-closed" in [thread.name for thread in threading.enumerate()] and time.monotonic() < end:
            time.sleep(0.01)
        assert "worker-closed" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PartError("no_driver", "not loaded"), "no_driver"), (OSError(5, "x"), "eio"), (OSError(19, "x"), "enodev"),
        (OSError("no number"), "oserror"), (ValueError("x"), "valueerror"),
        (TimeoutError("the job's own"), "timeouterror"),
        (SystemExit(3), "systemexit"), (KeyboardInterrupt(), "keyboardinterrupt"), (GeneratorExit(), "generatorexit"),
        (StopIteration(1), "stopiteration"), (MemoryError(), "memoryerror"), (RecursionError(), "recursionerror"),
    ],
)  # fmt: skip
def test_an_exception_of_a_job_becomes_its_reason(worker: Worker, error: BaseException, reason: str) -> None:
    def job() -> int:
        raise error

    outcome = worker.start(job).outcome(soon(5))
    assert (outcome.value, outcome.reason) == (None, reason)
    assert worker.start(lambda: 1).outcome(soon(5)).value == 1


def test_a_worker_without_a_thread_recovers(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert worker.start(lambda: 1).outcome(soon()).reason == "runtimeerror"
    assert worker.start(lambda: 1).outcome(soon(5)).value == 1


def test_a_result_is_not_kept_after_it_was_taken(worker: Worker) -> None:
    class Large:
        pass

    outcome = worker.start(Large).outcome(soon(5))
    seen = weakref.ref(outcome.value)  # type: ignore[type-var]
    worker.start(lambda: None).outcome(soon(5))  # type: ignore[arg-type, return-value]
    del outcome
    gc.collect()
    assert seen() is None


def test_workers_run_side_by_side_and_one_that_hangs_hides_none(gate: threading.Event) -> None:
    both = threading.Barrier(2, timeout=20)

    def slow() -> int:
        both.wait()  # none of the two ends before the other has begun
        return 1

    def fails() -> int:
        raise PartError("gone")

    jobs: dict[str, Callable[[], int | bool]] = {"0": slow, "1": gate.wait, "2": slow, "3": fails}
    workers: dict[str, Worker] = {part: Worker(f"gpu-{part}") for part in jobs}
    pending = {part: worker.start(jobs[part]) for part, worker in workers.items()}
    found = {part: job.outcome(soon(0.3 if part == "1" else 20)) for part, job in pending.items()}
    assert {part: (o.value, o.reason) for part, o in found.items()} == {
        "0": (1, None), "1": (None, "deadline"), "2": (1, None), "3": (None, "gone")
    }  # fmt: skip
    for worker in workers.values():
        worker.close()


def test_closing_does_not_wait(worker: Worker, gate: threading.Event) -> None:
    worker.start(gate.wait)
    began = time.monotonic()
    worker.close()
    assert time.monotonic() - began < 10
