"""A thread that may hang, and callers that never do."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.framework.scheduling import Worker


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """The event that hung jobs wait for; set at the end so that no thread stays."""
    event = threading.Event()
    yield event
    event.set()


def soon(seconds: float = 0.05) -> float:
    return time.monotonic() + seconds


def test_a_value_comes_back_with_how_long_it_took() -> None:
    worker: Worker = Worker("w")
    outcome = worker.start(lambda: 7).outcome(soon(5))
    worker.close()
    assert (outcome.value, outcome.reason) == (7, None)
    assert 0 <= outcome.seconds < 5


def test_the_time_is_the_jobs_not_that_of_whoever_asks_late() -> None:
    worker: Worker = Worker("w")
    task = worker.start(lambda: 7)
    assert task.outcome(soon(20)).value == 7
    assert task.outcome(soon()).seconds == task.outcome(soon()).seconds == task.ended - task.began
    worker.close()


def test_all_who_wait_hear_of_the_end(gate: threading.Event) -> None:
    worker: Worker = Worker("w")
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
    worker.close()


def test_a_hung_job_costs_its_deadline_once_and_one_thread_however_often_it_is_asked(gate: threading.Event) -> None:
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


def test_it_recovers_by_itself_when_the_hung_call_returns(gate: threading.Event) -> None:
    worker: Worker = Worker("w")
    assert worker.start(gate.wait).outcome(soon()).reason == "deadline"
    gate.set()
    deadline = soon(5)
    while worker.start(lambda: True).outcome(soon(1)).reason and time.monotonic() < deadline:
        time.sleep(0.01)
    assert worker.start(lambda: True).outcome(soon(1)).value is True
    worker.close()


def test_a_closed_one_has_no_thread_until_there_is_a_job_again() -> None:
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
def test_whatever_a_job_raises_is_its_own_affair(error: BaseException, reason: str) -> None:
    def job() -> int:
        raise error

    worker: Worker = Worker("w")
    outcome = worker.start(job).outcome(soon(5))
    assert (outcome.value, outcome.reason) == (None, reason)
    assert worker.start(lambda: 1).outcome(soon(5)).value == 1
    worker.close()


def test_no_thread_to_be_had_is_a_reason_and_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    worker: Worker = Worker("w")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert worker.start(lambda: 1).outcome(soon()).reason == "runtimeerror"
    assert worker.start(lambda: 1).outcome(soon(5)).value == 1
    worker.close()


def test_nothing_of_a_result_is_kept_once_it_was_handed_over() -> None:
    class Large:
        pass

    worker: Worker = Worker("w")
    outcome = worker.start(Large).outcome(soon(5))
    seen = weakref.ref(outcome.value)  # type: ignore[type-var]
    worker.start(lambda: None).outcome(soon(5))  # type: ignore[arg-type, return-value]
    del outcome
    gc.collect()
    assert seen() is None
    worker.close()


def test_parts_run_side_by_side_and_one_that_hangs_hides_none(gate: threading.Event) -> None:
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


def test_closing_does_not_wait(gate: threading.Event) -> None:
    worker: Worker = Worker("w")
    worker.start(gate.wait)
    began = time.monotonic()
    worker.close()
    assert time.monotonic() - began < 10
