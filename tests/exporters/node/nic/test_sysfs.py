"""How a folder's files are read, and when it is looked for new ones."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.node.nic import sysfs
from pyrometer_exporters.node.nic.counters import Counter
from pyrometer_exporters.node.nic.readings import CounterFiles
from pyrometer_exporters.node.nic.sysfs import AbandonedError, Files, Folders, HungFiles

TABLE = tuple(Counter(name, Family(f"{name}_total", "counter", name), 64) for name in ("a", "b", "c"))


class Watched(Files):
    """Calls ``before`` ahead of every read."""

    def __init__(self) -> None:
        self.before: Callable[[], None] = lambda: None

    def pread(self, descriptor: int, size: int, offset: int, /) -> bytes:
        self.before()
        return super().pread(descriptor, size, offset)


@pytest.fixture
def files() -> Watched:
    return Watched()


@pytest.fixture
def hung() -> HungFiles:
    return HungFiles()


@pytest.fixture
def folders(files: Watched, hung: HungFiles) -> Folders:
    return Folders(files, hung)


@pytest.fixture
def path(tmp_path: Path) -> str:
    for number, counter in enumerate(TABLE):
        (tmp_path / counter.file).write_text(f"{number}\n")
    return str(tmp_path)


def look(folders: Folders, path: str, now: float) -> frozenset[str]:
    folders.begin(now)
    return folders.get(path).names


def add_unseen(path: str, name: str) -> None:
    """As the kernel does: the folder's times stay what they were."""
    times = Path(path).stat()
    Path(path, name).write_text("7\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def make_anew(path: str) -> None:
    Path(path).rename(f"{path}.gone")
    Path(path).mkdir()
    Path(path, "new").write_text("1\n")


def test_a_file_that_its_driver_makes_late_is_found_within_a_minute(folders: Folders, path: str) -> None:
    look(folders, path, 0.0)
    add_unseen(path, "late")
    assert "late" in look(folders, path, 60.0)


def test_a_file_that_is_added_to_an_old_folder_is_found_within_eight_minutes(folders: Folders, path: str) -> None:
    for now in range(0, 36_000, 15):
        look(folders, path, now)
    add_unseen(path, "late")
    assert "late" in look(folders, path, 36_000 + 480)


def test_a_folder_that_stays_the_same_is_listed_less_and_less_often(
    folders: Folders, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = []
    real = os.listdir
    monkeypatch.setattr(sysfs.os, "listdir", lambda path: listed.append(folders.now) or real(path))
    for now in range(0, 1801, 15):
        look(folders, path, now)
    assert listed == [0, 60, 180, 420, 900, 1380]


def test_an_old_folder_made_anew_is_noticed_within_eight_minutes_and_is_young_again(
    folders: Folders, path: str
) -> None:
    for now in range(0, 36_000, 15):
        look(folders, path, now)
    make_anew(path)
    assert look(folders, path, 36_480) == {"new"}
    add_unseen(path, "late")
    assert "late" in look(folders, path, 36_540)


def test_a_devices_own_folder_made_anew_is_noticed_at_once_with_all_in_it(folders: Folders, path: str) -> None:
    inner = Path(path, "ports")
    inner.mkdir()
    for now in range(0, 36_000, 15):
        folders.begin(now)
        folders.present(path)
        folders.get(str(inner))
    make_anew(path)
    inner.mkdir()
    add_unseen(str(inner), "1")
    folders.begin(36_000)
    assert folders.present(path).names == {"new", "ports"}
    assert folders.get(str(inner)).names == {"1"}


def test_a_folder_that_was_absent_for_long_is_found_within_eight_minutes(folders: Folders, path: str) -> None:
    for now in range(0, 36_000, 15):
        assert look(folders, f"{path}/hwmon", now) == frozenset()
    Path(path, "hwmon").mkdir()
    Path(path, "hwmon/temp1_input").write_text("1\n")
    assert look(folders, f"{path}/hwmon", 36_000 + 480) == {"temp1_input"}


def test_a_folder_that_could_not_be_listed_is_listed_at_the_next_look(
    folders: Folders, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_path: str) -> list[str]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(sysfs.os, "listdir", fails)
        with pytest.raises(OSError, match="error"):
            look(folders, path, 0.0)
    assert look(folders, path, 1.0) == {"a", "b", "c"}


def test_each_of_several_files_is_named_and_timed_while_it_is_read(
    folders: Folders, files: Watched, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(folders, path, 0.0)
    folders.get(path).several("abc")
    clock = iter(range(100))
    monkeypatch.setattr(sysfs.time, "monotonic", lambda: next(clock))
    seen = []
    files.before = lambda: seen.append((folders.current, folders.since))
    folders.get(path).several("abc")
    assert seen == [(f"{path}/{name}", second) for second, name in enumerate("abc")]


def test_nothing_more_is_read_once_nobody_waits_for_it(folders: Folders, files: Watched, path: str) -> None:
    look(folders, path, 0.0)
    folders.get(path).several("abc")
    reads = []

    def abandon() -> None:
        reads.append(folders.current)
        folders.abandoned = True

    files.before = abandon
    with pytest.raises(AbandonedError):
        folders.get(path).several("abc")
    assert reads == [f"{path}/a"]


def test_of_several_files_the_one_that_hung_is_left_out(folders: Folders, hung: HungFiles, path: str) -> None:
    look(folders, path, 0.0)
    folders.get(path).several("abc")
    hung.add(f"{path}/b")
    texts, failures = folders.get(path).several("abc")
    assert texts == [b"0\n", None, b"2\n"]
    assert [failure.errno for failure in failures] == [errno.ETIMEDOUT]


def test_a_number_behind_many_blanks_is_read_to_its_end(folders: Folders, path: str) -> None:
    look(folders, path, 0.0)
    Path(path, "b").write_text(" " * 100 + "5\n")
    counters = CounterFiles()
    for _ in range(2):
        assert [raw for _, raw in counters.read(folders.get(path), TABLE)[0]] == [0, 5, 2]


def test_counters_that_say_the_same_are_the_same_object(folders: Folders, path: str) -> None:
    look(folders, path, 0.0)
    counters = CounterFiles()
    first, _ = counters.read(folders.get(path), TABLE)
    assert counters.read(folders.get(path), TABLE)[0] is first
    Path(path, "b").write_text("9\n")
    second, _ = counters.read(folders.get(path), TABLE)
    assert [raw for _, raw in second] == [0, 9, 2]
    assert second[0] is first[0]


def test_a_counter_that_can_no_longer_be_read_is_left_out(folders: Folders, files: Watched, path: str) -> None:
    look(folders, path, 0.0)
    counters = CounterFiles()
    counters.read(folders.get(path), TABLE)

    def fail() -> None:
        if folders.current.endswith("/b"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    files.before = fail
    counts, reason = counters.read(folders.get(path), TABLE)
    assert [raw for _, raw in counts] == [0, 2]
    assert reason is None


def test_a_counter_whose_file_comes_late_is_read_with_the_others(folders: Folders, path: str) -> None:
    Path(path, "c").unlink()
    counters = CounterFiles()
    look(folders, path, 0.0)
    assert [raw for _, raw in counters.read(folders.get(path), TABLE)[0]] == [0, 1]
    add_unseen(path, "c")
    look(folders, path, 60.0)
    assert [raw for _, raw in counters.read(folders.get(path), TABLE)[0]] == [0, 1, 7]


def test_files_beyond_its_share_are_opened_for_each_read(path: str) -> None:
    opened: list[int] = []

    class Counted(Files):
        def open(self, path: str) -> int:
            opened.append(super().open(path))
            return opened[-1]

        def close(self, descriptor: int) -> None:
            opened.remove(descriptor)
            super().close(descriptor)

    share = 2
    folders = Folders(Counted(), most_open=lambda: share)
    folders.begin(0.0)
    folder = folders.get(path)
    for _ in range(3):
        assert [folder.raw(name) for name in "abc"] == [b"0\n", b"1\n", b"2\n"]
        assert folder.several("abc") == ([b"0\n", b"1\n", b"2\n"], [])
        assert len(opened) == share
    folder.close()
    assert opened == []
    share = 3
    folders.begin(100.0)
    folder = folders.get(path)
    assert folder.several("abc")[0] == [b"0\n", b"1\n", b"2\n"]
    assert len(opened) == 3, "closed files give their room back"
    folders.close()


def test_a_file_that_cannot_be_read_leaves_none_open(path: str, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    folders = Folders(Files(), most_open=lambda: 0)
    folders.begin(0.0)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(IsADirectoryError):
        folders.get(path).raw("d")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_many_devices_share_the_open_files_of_the_process() -> None:
    assert [sysfs.share_of_open_files(devices) for devices in (0, 1, 10, 200, 10_000)] == [2048, 2048, 204, 10, 8]
