"""A folder that anybody may write to: no user's files, links or times cost another's, and no look is without end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyrometer_exporters.framework import shared_folder
from pyrometer_exporters.framework.shared_folder import SharedFolder, open_folder
from pyrometer_exporters.node.train.ring_folder import RingFolder

NOW = 1_790_000_000.0
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="files of several users need root")


def write(path: Path, at: float, uid: int = 0) -> None:
    path.touch()
    os.utime(path, (at, at))
    if uid:
        os.chown(path, uid, -1)


def names(folder: SharedFolder) -> list[str]:
    return [entry.name for entry in folder.files(lambda name: not name.startswith("not"), NOW)]


def test_the_newest_come_first_and_the_future_last(tmp_path: Path) -> None:
    for name, at in (("b", NOW - 9), ("a", NOW - 5), ("tomorrow", NOW + 86_400), ("ahead", NOW + 30), ("not", NOW)):
        write(tmp_path / name, at)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    assert names(SharedFolder(tmp_path, 10)) == ["ahead", "a", "b", "tomorrow"]
    assert names(SharedFolder(tmp_path, 3)) == ["ahead", "a", "b"]


@as_root
def test_users_share_the_room_by_what_each_wants(tmp_path: Path) -> None:
    for number in range(40):
        write(tmp_path / f"flood-{number}", NOW + 1, uid=65534)
    for number in range(3):
        write(tmp_path / f"honest-{number}", NOW - 3600 - number)
    folder = SharedFolder(tmp_path, 10)
    found = names(folder)
    assert found[-3:] == ["honest-0", "honest-1", "honest-2"]
    assert (len(found), folder.left_out) == (10, 33)


def test_a_long_list_is_made_rarely_and_its_files_are_looked_at_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_folder, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(shared_folder, "LISTING_SHARE", 1e-6)
    write(tmp_path / "a", NOW - 5)
    write(tmp_path / "b", NOW - 4)
    folder = SharedFolder(tmp_path, 10)
    assert names(folder) == ["b", "a"]
    write(tmp_path / "c", NOW)
    write(tmp_path / "a", NOW - 1)
    (tmp_path / "b").unlink()
    assert names(folder) == ["a"]


@as_root
def test_a_strangers_link_in_the_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "where").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "where")
    os.close(open_folder(str(link)))  # root's own, as an administrator makes one
    os.chown(link, 65534, -1, follow_symlinks=False)
    with pytest.raises(OSError, match="is a link of uid 65534, which is not followed"):
        open_folder(str(link))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        open_folder(str(tmp_path / "file"))


@as_root
def test_a_users_folder_of_rings_that_becomes_a_link_is_left(tmp_path: Path) -> None:
    own, other = tmp_path / "rings-65534", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
        write(folder / "a.ring", NOW, uid=65534)
    os.chown(own, 65534, -1)
    (tmp_path / "rings").mkdir()
    listing = RingFolder(tmp_path / "rings")
    assert list(listing.rings()) == ["rings-65534/a.ring"]
    with listing.opened("rings-65534/a.ring") as folder:
        assert os.stat("a.ring", dir_fd=folder).st_uid == 65534
    own.rename(tmp_path / "moved")
    own.symlink_to(other)
    os.chown(own, 65534, -1, follow_symlinks=False)
    with pytest.raises(OSError, match="is a link of uid 65534"), listing.opened("rings-65534/a.ring"):
        pass


@as_root
def test_a_strangers_link_in_the_place_of_the_rings_is_told(tmp_path: Path) -> None:
    (tmp_path / "rings").symlink_to(tmp_path)
    os.chown(tmp_path / "rings", 65534, -1, follow_symlinks=False)
    listing = RingFolder(tmp_path / "rings")
    assert listing.unsafe() == f"{tmp_path}/rings is a link of uid 65534, which is not followed"
    with pytest.raises(OSError, match="which is not followed"):
        listing.rings()
