"""Whatever moment `stop` comes at, nothing sleeps on and nothing is left half done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timezone
from typing import Any

import alerting_fakes
import pytest
from alerting_fakes import Bench, FakePrometheus

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.digest.scheduler import Digests, DigestScheduler
from pyrometer_alerting.diagnosis.diagnostician import Diagnostician
from pyrometer_alerting.incidents.reconcile import Pace, Reconciler


class Overtaken(threading.Event):
    """An event that `stop` sets at the worst moment: just before it is cleared."""

    def __init__(self, stop: Callable[[], None]) -> None:
        super().__init__()
        self._stop = stop

    def clear(self) -> None:
        self._stop()
        super().clear()


def reconciler(bench: Bench) -> Reconciler:
    return Reconciler(
        bench.store, bench.intake, [], None, clock=bench.clock, metrics=bench.metrics, changed=lambda _: None,
        pace=Pace(every=60.0, soon=60.0),
    )  # fmt: skip


def diagnostician(bench: Bench) -> Diagnostician:
    made = alerting_fakes.diagnostician(bench)
    made.load = lambda: lambda *_, **__: None  # type: ignore[assignment]  # there is nothing to diagnose
    return made


def digest_scheduler(bench: Bench) -> DigestScheduler:
    digests = Digests((), timezone.utc, FakePrometheus())
    return DigestScheduler(bench.store, digests, style=Style(), clock=bench.clock, changed=lambda: None)


@pytest.mark.parametrize("make", [lambda bench: bench.courier, reconciler, diagnostician, digest_scheduler])
def test_a_stop_that_comes_just_before_a_rest_is_heard(bench: Bench, make: Callable[[Bench], Any]) -> None:
    worker = make(bench)
    worker._wake = Overtaken(worker.stop)
    worker._wake.set()  # something just arrived
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    thread.join(10)  # they rest for 15 s and more
    assert not thread.is_alive()
