"""The state folder and its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyrometer_kit.errors import UsageError
from pyrometer_kit.statefile import StateFile, state_folder


def test_the_state_folder_is_made(tmp_path: Path) -> None:
    assert state_folder(str(tmp_path / "a" / "b"), Path("/nowhere")) == tmp_path / "a" / "b"
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_folder_that_was_asked_for_must_be_usable_the_default_need_not(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--path\.state: can't write to .*file: .*; give a folder"):
        state_folder(str(tmp_path / "file"), Path("/nowhere"))
    assert state_folder(None, tmp_path / "file" / "x") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; the test with a file in its place covers it")
def test_a_state_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="Permission denied"):
        state_folder(str(tmp_path), Path("/nowhere"))


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
