"""A kernel log that is written faster than it can be read: bounded, told, and nothing old taken for new."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrometer_exporters.node.kernel import follow
from pyrometer_exporters.node.kernel.follow import Follower
from pyrometer_exporters.node.kernel.kmsg import Record

OLD = 50


class FloodedDevice:
    """A /dev/kmsg that always has one more record; from number OLD on they came after the follower's start.

    The first descriptor is the follower's, the second the one that it sets to the end.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, quiet: int) -> None:
        self._sequences: Iterator[int] = itertools.count()
        self._quiet = quiet
        self._main: int | None = None
        monkeypatch.setattr(follow.os, "read", self._read)
        monkeypatch.setattr(follow.stat, "S_ISCHR", lambda _mode: True)
        monkeypatch.setattr(follow, "_skipped", lambda _descriptor: True)
        monkeypatch.setattr(follow, "READS_PER_TURN", 20)
        monkeypatch.setattr(follow, "TURN_SECONDS", 0.005)

    def _read(self, descriptor: int, _size: int) -> bytes:
        if self._main is None:
            self._main = descriptor
        if descriptor == self._main:
            return b"6,%d,1,-;x\n" % next(self._sequences)
        self._quiet -= 1
        if self._quiet >= 0:
            raise BlockingIOError
        return b"6,%d,1,-;x\n" % OLD


@pytest.mark.parametrize("quiet", [0, 1, 2])
def test_a_flood_at_the_start_ends_with_the_last_record_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: int
) -> None:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    FloodedDevice(monkeypatch, quiet)
    old: list[int] = []
    descriptors = len([*Path("/proc/self/fd").iterdir()])

    def take(record: Record) -> None:
        if not follower.live:
            old.append(record.sequence)

    follower = Follower(path, take)
    follower.start()
    assert follower.wait_settled(30)
    assert len([*Path("/proc/self/fd").iterdir()]) <= descriptors + 3  # pipe and log; the second of the log is closed
    follower.close()
    assert old[: OLD + 1] == list(range(OLD + 1))
    assert len(old) <= OLD + 20 * (1 + quiet)  # a turn too many, as a flood isn't looked at record by record


def test_a_file_and_a_pipe_that_grow_without_end_are_waited_for_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "READS_PER_TURN", 5)
    monkeypatch.setattr(follow, "READ_BYTES", 1 << 10)  # slower than it is written
    monkeypatch.setattr(follow, "PIPE_BYTES", 1 << 12)
    for name in ("file", "pipe"):
        path = tmp_path / name
        path.touch() if name == "file" else os.mkfifo(path)
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_APPEND)
        stop = threading.Event()
        writer = threading.Thread(target=_write, args=(descriptor, stop))
        writer.start()
        follower = Follower(path, lambda _record: time.sleep(0.002))
        follower.start()
        try:
            assert follower.wait_settled(60), name
        finally:
            follower.close()
            stop.set()
            writer.join()


def _write(descriptor: int, stop: threading.Event) -> None:
    for sequence in itertools.count():
        if stop.is_set():
            break
        try:
            os.write(descriptor, b"6,%d,1,-;%s\n" % (sequence, b"x" * 200))
        except BlockingIOError:
            time.sleep(0.0001)
    os.close(descriptor)


def test_records_that_a_flood_overwrote_are_told_once_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    path = tmp_path / "kmsg"
    path.write_bytes(b"".join(b"6,%d,1,-;x\n" % (10 * number) for number in range(1, 6)))
    follower = Follower(path, lambda _record: None)
    follower.start()
    assert follower.wait_settled(30)
    follower.close()
    assert follower.lost == 36
    assert caplog.text.count("the kernel log is flooded: 9 records lost so far; events may be missing") == 1
    assert caplog.text.count("flooded") == 1


def test_a_log_that_can_be_read_only_later_is_served_once_all_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "REOPEN_SECONDS", 0.02)
    path = tmp_path / "kmsg"
    taken: list[int] = []
    gate = threading.Event()

    def take(record: Record) -> None:
        gate.wait(30)
        taken.append(record.sequence)

    follower = Follower(path, take)
    follower.start()
    assert follower.wait_settled(30)
    assert follower.error is not None
    path.write_bytes(b"6,1,1,-;x\n6,2,1,-;x\n")
    end = time.monotonic() + 30
    while follower.error is not None:
        assert time.monotonic() < end
    assert not follower.wait_settled(0.05)
    gate.set()
    assert follower.wait_settled(30)
    assert taken == [1, 2]
    follower.close()


def test_a_storm_of_records_that_take_work_leaves_the_core_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "READ_BYTES", 64)  # about a record for each read, as /dev/kmsg gives them
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.005)
    path = tmp_path / "kmsg"
    path.touch()
    taken: list[float] = []

    def take(_record: Record) -> None:
        until = time.thread_time() + 0.001
        while time.thread_time() < until:
            pass
        taken.append(time.monotonic())

    follower = Follower(path, take)
    follower.start()
    assert follower.wait_settled(30)
    with path.open("ab") as file:
        file.writelines(b"6,%d,1,-;%s\n" % (number, b"x" * 50) for number in range(1, 2000))
    end = time.monotonic() + 60
    while len(taken) < 100:
        assert time.monotonic() < end
        time.sleep(0.01)
    follower.close()
    passed = taken[-1] - taken[0]
    assert len(taken) * 0.001 < 0.35 * passed + follow.WORK_SECONDS
