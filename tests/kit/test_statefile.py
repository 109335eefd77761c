"""The state folder and its files."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from pyrometer_kit.errors import UsageError
from pyrometer_kit.statefile import StateFile, state_folder


def test_the_state_folder_is_made(tmp_path: Path) -> None:
    assert state_folder(str(tmp_path / "a" / "b"), Path("/nowhere")) == tmp_path / "a" / "b"
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_path_that_is_a_file_is_a_mistake_and_the_default_need_not_be_usable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "x"):
        with pytest.raises(UsageError, match=r"--path\.state: can't write to .*file.*: .*; give a folder"):
            state_folder(str(path), Path("/nowhere"))
    assert state_folder(None, tmp_path / "file" / "x") is None


def test_a_folder_that_was_asked_for_and_cannot_be_written_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert state_folder("/proc/nowhere", Path("/nowhere")) == Path("/proc/nowhere")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "--path.state: can't write to /proc/nowhere: No such file or directory" in caplog.text
    with pytest.raises(OSError, match="No such file"):
        StateFile(Path("/proc/nowhere"), "counts.json").save({"n": 5})


def test_a_disk_that_is_mended_is_used_again(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.touch()
    file = StateFile(disk / "state", "counts.json")
    with pytest.raises(NotADirectoryError):
        file.save({"n": 5})
    disk.unlink()
    file.save({"n": 5})
    assert file.load(lambda data: data["n"]) == 5


@pytest.mark.parametrize("text", ['{"version": 2, "n": 5}', '{"n": 5}', "[]"])
def test_a_file_of_another_version_is_set_aside(tmp_path: Path, text: str) -> None:
    file = StateFile(tmp_path, "counts.json", version=1)
    file.save({"n": 5})
    assert file.load(lambda data: data["n"]) == 5
    (tmp_path / "counts.json").write_text(text)
    assert file.load(lambda data: data["n"]) is None
    assert [path.name for path in tmp_path.iterdir()] == ["counts.json.corrupt"]


def test_a_file_is_read_back_and_a_foreign_one_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = StateFile(tmp_path, "counts.json")
    assert file.load(lambda data: data["n"]) is None
    file.save({"n": 5})
    assert file.load(lambda data: data["n"]) == 5
    assert (file.unusable, caplog.records) == (False, [])
    (tmp_path / "counts.json").write_text("{")
    assert file.load(lambda data: data["n"]) is None
    assert file.unusable
    assert [path.name for path in tmp_path.iterdir()] == ["counts.json.corrupt"]
    assert len(caplog.records) == 1


def test_without_a_folder_nothing_is_stored() -> None:
    file = StateFile(None, "counts.json")
    file.save({"n": 5})
    assert (file.kept, file.load(dict)) == (False, None)


def test_a_link_that_waits_for_the_new_file_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    state = tmp_path / "state"
    state.mkdir()
    (state / "counts.json.new").symlink_to(target)
    StateFile(state, "counts.json").save({"n": 5})
    assert target.read_text() == "untouched"
    assert [(path.name, path.is_symlink()) for path in state.iterdir()] == [("counts.json", False)]


def test_a_mode_holds_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        StateFile(tmp_path, "all.json", mode=0o644).save({})
        StateFile(tmp_path, "own.json").save({})
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("all.json", "own.json")] == [0o644, 0o600]


def test_a_file_of_another_user_is_not_set_aside_before_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = StateFile(tmp_path, "counts.json")
    file.save({"n": 5})
    with monkeypatch.context() as patch:
        patch.setattr("pyrometer_kit.statefile.read_regular", refused)
        assert file.load(lambda data: data["n"]) is None
    assert (file.unusable, file.denied, len(caplog.records)) == (True, True, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["counts.json"]
    file.save({"n": 6})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "counts.json": '{"n": 6}', "counts.json.corrupt": '{"n": 5}',
    }  # fmt: skip


def refused(*_: object, **__: object) -> str:
    raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize("made", ["fifo", "link", "loop", "huge", "folder"])
def test_what_is_no_state_file_is_neither_waited_for_nor_followed(tmp_path: Path, made: str) -> None:
    """Root's prolog reads the state of a service with another user, and must come back."""
    path, other = tmp_path / "kept.json", tmp_path / "other"
    other.write_text('{"n": 5}')
    if made == "fifo":
        os.mkfifo(path)
    elif made == "folder":
        path.mkdir()
    elif made == "huge":
        path.touch()
        os.truncate(path, 1 << 40)
    else:
        path.symlink_to(other if made == "link" else path)
    state = StateFile(tmp_path, "kept.json")
    assert state.load(lambda data: data["n"]) is None
    assert state.unusable
    state.save({"n": 6})
    assert state.load(lambda data: data["n"]) == 6
    assert other.read_text() == '{"n": 5}'


def test_a_link_in_the_place_of_the_probe_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".writable").symlink_to(tmp_path / "nologin")
    assert state_folder(str(tmp_path), Path("/nowhere")) == tmp_path
    assert not (tmp_path / "nologin").exists()
