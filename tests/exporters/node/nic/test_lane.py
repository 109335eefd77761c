"""Quick devices share a thread; one that holds it up keeps it, and the others go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from pyrometer_exporters.framework.worker import Task, Worker
from pyrometer_exporters.node.nic import lane
from pyrometer_exporters.node.nic.device import Look


class Held:
    """Stands for a device: its own thread, and whether it had to use it."""

    def __init__(self) -> None:
        self.worker: Worker[None] = Worker("own")
        self.swapped = 0

    def begin(self, look: Look) -> None:
        assert look.task is not None
        self.worker.start(look.task.run)

    def swap(self, worker: Worker[None]) -> Worker[None]:
        before, self.worker = self.worker, worker
        self.swapped += 1
        return before


def look(job: Callable[[], int], *, slow: bool = False) -> Look:
    return Look(cast("Any", Held()), cast("Any", None), 0.0, cast("Any", Task(job)), slow=slow)


def thread_of(one: Look) -> object:
    return one.pending.outcome(time.monotonic() + 20).value


def test_quick_devices_are_read_in_one_thread_and_slow_ones_in_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "PATIENCE_SECONDS", 20.0)
    looks = [look(threading.get_ident, slow=number == 2) for number in range(6)]
    shared = lane.Lane()
    shared.run(looks)
    threads = [thread_of(one) for one in looks]
    shared.close()
    assert len({thread for number, thread in enumerate(threads) if number != 2}) == 1
    assert threads[2] not in threads[:2]


def test_a_device_that_hangs_keeps_the_thread_and_the_others_go_on() -> None:
    release = threading.Event()
    looks = [look(threading.get_ident), look(lambda: int(release.wait(30))), look(threading.get_ident)]
    shared = lane.Lane()
    shared.run(looks)
    assert thread_of(looks[0])
    assert thread_of(looks[2])
    assert not looks[1].over
    assert cast("Any", looks[1].device).swapped == 1
    release.set()
    assert thread_of(looks[1]) == 1
    shared.close()
