"""Which thread a device is read in: apart for a minute after a slow read, then tried among the others again."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pyrometer_exporters.framework.scheduling import APART_SECONDS
from pyrometer_exporters.node.nic import device
from pyrometer_exporters.node.nic.device import QUICK_SECONDS, Device, DeviceRead, DeviceSource

SOURCE = DeviceSource("/nowhere", cast("Any", None))


class Reads:
    """Stands for what reads a device; nothing of it is asked here."""

    gone = False

    def read(self, _source: DeviceSource, _now: float) -> Any:
        return None


def after(one: Device, now: float, seconds: float) -> DeviceRead:
    """Read the device at ``now``, taking that many seconds."""
    read = one.prepare(SOURCE, now)
    read.task.run()
    read.task.began, read.task.ended = 0.0, seconds
    return read


@pytest.fixture
def one() -> Device:
    """A device that was examined once."""
    found = device.Device("mlx5_0", cast("Any", lambda _hung: Reads()))
    after(found, -5.0, 0.0)
    return found


def test_a_quick_device_stays_among_the_others(one: Device) -> None:
    assert not any(after(one, now, QUICK_SECONDS / 2).task.apart for now in range(200))


def test_the_first_read_of_a_device_is_not_judged_slow() -> None:
    one = device.Device("mlx5_0", cast("Any", lambda _hung: Reads()))
    after(one, 0.0, 2 * QUICK_SECONDS)
    assert not after(one, 5.0, 0.0).task.apart


def test_a_device_that_was_slow_among_the_others_is_apart_for_a_minute(one: Device) -> None:
    after(one, 0.0, 2 * QUICK_SECONDS)
    assert [after(one, now, 0.0).task.apart for now in (5.0, 30.0, 4.9 + APART_SECONDS)] == [True] * 3


def test_a_read_in_its_own_thread_is_not_judged_slow(one: Device) -> None:
    after(one, 0.0, 2 * QUICK_SECONDS)
    for now in range(5, 5 + int(APART_SECONDS), 5):
        assert after(one, now, 2 * QUICK_SECONDS).task.apart
    assert not after(one, 5.0 + APART_SECONDS, 0.0).task.apart, "tried again"
    assert not after(one, 10.0 + APART_SECONDS, 0.0).task.apart


def test_a_slow_device_is_tried_once_a_minute(one: Device) -> None:
    tried = [now for now in range(0, 600, 5) if not after(one, now, 2 * QUICK_SECONDS).task.apart]
    assert tried == list(range(0, 600, 5 + int(APART_SECONDS)))
