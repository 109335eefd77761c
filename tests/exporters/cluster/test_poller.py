"""A poller keeps its own pace, and drops an answer that is too old."""

from __future__ import annotations

import argparse
import itertools
import threading

import pytest

from pyrometer_exporters.cluster.poller import Poller, seconds
from pyrometer_exporters.framework.outcome import PartError


class ManualClock:
    now = 1000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def test_the_latest_answer_is_kept_for_three_turns_and_the_deadline() -> None:
    clock = ManualClock()
    poller = Poller("test", 10.0, 5.0, itertools.count().__next__, clock)
    assert poller.latest().reason == "deadline"
    poller.turn()
    clock.now += 35.0
    assert poller.latest().value == 0
    clock.now += 0.1
    assert (poller.latest().value, poller.latest().reason) == (None, "deadline")
    poller.turn()
    assert poller.latest().value == 1


def test_a_failure_takes_the_answers_place_with_its_reason() -> None:
    def fails() -> int:
        raise errors.pop(0)

    errors: list[Exception] = [PartError("refused", "no"), OSError(5, "Input/output error"), ZeroDivisionError("x")]
    poller = Poller("test", 10.0, 5.0, fails, ManualClock())
    reasons = []
    for _ in range(3):
        poller.turn()
        reasons.append(poller.latest().reason)
    assert reasons == ["refused", "eio", "zerodivisionerror"]


def test_it_asks_in_its_own_thread_until_it_is_closed() -> None:
    asked = threading.Semaphore(0)
    poller: Poller[None] = Poller("test", 0.001, 1.0, asked.release, ManualClock())
    poller.start()
    assert all(asked.acquire(timeout=5) for _ in range(3))
    poller.close()


def test_closing_waits_for_the_turn_that_is_under_way() -> None:
    under_way, saved = threading.Event(), []

    def count_and_save() -> None:
        under_way.set()
        while not poller._stop.is_set():  # it is asked to end in the middle of a turn
            pass
        saved.append("counts")

    poller: Poller[None] = Poller("test", 60.0, 1.0, count_and_save, ManualClock())
    poller.start()
    assert under_way.wait(5)
    poller.close()
    assert saved == ["counts"]


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "0.5", "3601", "nan", "inf"])
def test_seconds_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="1 to 3600"):
        seconds(text)
