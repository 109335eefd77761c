"""The loop of a delivery thread: recovery first, and again after a failed store; a stop is never missed."""

from __future__ import annotations

import threading

import pytest
from alerting_fakes import FakeClock

from pyrometer_alerting.channel.delivery_loop import DeliveryLoop, Timing
from pyrometer_alerting.incidents.storage.store import StoreError


class Recorded(DeliveryLoop):
    """Record the calls of a loop and play prepared outcomes of its steps; stop after the last one."""

    def __init__(self, *outcomes: float | StoreError) -> None:
        super().__init__("outbox", FakeClock(), Timing(backoff=0.0))
        self.outcomes = list(outcomes)
        self.calls: list[str] = []

    def recover(self) -> None:
        self.calls.append("recover")

    def shorten_waits(self, now: float) -> None:
        self.calls.append("shorten")

    def deliver_due(self, now: float) -> float:
        self.calls.append("step")
        outcome = self.outcomes.pop(0)
        if not self.outcomes:
            self.stop()
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome


def test_a_delivery_loop_recovers_once_before_its_steps() -> None:
    loop = Recorded(0.0, 0.0, 0.0)
    loop.run()
    assert loop.calls == ["recover", "step", "step", "step"]


def test_after_a_failed_store_it_says_so_and_recovers_again(caplog: pytest.LogCaptureFixture) -> None:
    loop = Recorded(0.0, StoreError("disk full"), 0.0)
    loop.run()
    assert loop.calls == ["recover", "step", "step", "recover", "step"]
    assert caplog.messages == ["outbox: disk full"]


def test_waits_are_shortened_when_the_clock_was_set_back() -> None:
    loop = Recorded(0.0, 0.0, 0.0)
    loop.step()
    loop._clock.advance(-60.0)  # type: ignore[attr-defined]
    loop.step()
    loop.step()
    assert loop.calls == ["step", "shorten", "step", "step"]


def test_a_stop_during_a_step_ends_it_without_the_wait() -> None:
    Recorded(3600.0).run()


def test_a_stop_before_it_runs_is_heard() -> None:
    loop = Recorded(3600.0, 0.0)
    loop.stop()
    loop.run()
    assert loop.calls == []


@pytest.mark.parametrize("end", [DeliveryLoop.wake, DeliveryLoop.stop])
def test_a_waiting_loop_hears_at_once(end: object) -> None:
    assert callable(end)
    loop = Recorded(3600.0, 0.0)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    while loop.calls != ["recover", "step"]:
        threading.Event().wait(0.001)
    end(loop)
    thread.join(60)
    assert not thread.is_alive()
