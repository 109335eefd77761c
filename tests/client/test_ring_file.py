"""Making rings, and clearing away those of ranks that ended long ago."""

from __future__ import annotations

import os
import stat
import struct
import time
import types
from pathlib import Path

import pytest

import pyrometer
from pyrometer import _ring_file, ring
from pyrometer._ring_file import default_folder


def age(path: str | Path, seconds: float = 2 * _ring_file.STALE_SECONDS, *, header: bool = True) -> None:
    """Make a ring look as if its rank had last done something that long ago."""
    if header:
        began = time.monotonic_ns() - int(seconds * 1e9)
        with open(path, "r+b") as file:
            for slot in (ring.CREATED_SLOT, ring.STEP_STARTED_SLOT, ring.PART_STARTED_SLOT):
                file.seek(8 * slot)
                file.write(struct.pack("<q", began))
    os.utime(path, (time.time() - seconds,) * 2)


def test_the_folder_is_open_to_ranks_of_other_users(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    run = pyrometer.start("r", rings=str(folder))
    assert run.disabled is None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    run.close()


def test_the_ring_has_all_its_memory_from_the_start(run: pyrometer.Run) -> None:
    found = Path(run.path).stat()
    assert found.st_size == ring.FILE_BYTES
    assert found.st_blocks * 512 >= ring.FILE_BYTES


def test_old_rings_of_ended_ranks_are_swept_and_no_others(rings: str) -> None:
    living, ended, recent, crashed_now = (pyrometer.start(n, rings=rings) for n in ("living", "ended", "recent", "now"))
    foreign = Path(rings) / "notes.txt"
    unfinished = Path(rings) / ".r.0.1.2.ring.new"
    link = Path(rings) / "link.ring"
    for file in (foreign, unfinished):
        file.touch()
        age(file, header=False)
    link.symlink_to(foreign)
    (Path(rings) / "folder.ring").mkdir()
    for run in (ended, recent, crashed_now):
        run.close()
    age(living.path)
    age(ended.path)
    # A rank that trained for hours and crashed a moment ago: the file is as old as its start.
    age(crashed_now.path, header=False)

    pyrometer.start("next", rings=rings).close()

    left = {path.name.partition(".")[0] for path in Path(rings).iterdir()}
    assert left == {"living", "recent", "now", "next", "notes", "link", "folder"}


def test_a_ring_that_cannot_be_swept_does_not_keep_the_others(rings: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, ended = pyrometer.start("a", rings=rings), pyrometer.start("b", rings=rings)
    for run in (stuck, ended):
        run.close()
        age(run.path)
    real = os.unlink

    def unlink(path: str, **more: int) -> None:
        if path == stuck.path:
            raise PermissionError
        real(path, **more)

    monkeypatch.setattr(_ring_file.os, "unlink", unlink)
    pyrometer.start("next", rings=rings).close()
    assert not Path(ended.path).exists()


def test_a_ring_is_whole_before_it_is_visible(rings: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen_hidden = []
    real = os.rename

    def rename(source: str, target: str) -> None:
        seen_hidden.append((Path(source).name.startswith("."), Path(source).stat().st_size, Path(target).exists()))
        real(source, target)

    monkeypatch.setattr(_ring_file.os, "rename", rename)
    pyrometer.start("r", rings=rings).close()
    assert seen_hidden == [(True, ring.FILE_BYTES, False)]


def test_the_shared_folder_is_used_where_root_made_it_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "pyrometer"
    shared.mkdir()
    shared.chmod(0o1777)
    assert default_folder(str(shared)) == str(shared), "one's own"
    other = 4711 if os.getuid() != 4711 else 4712
    monkeypatch.setattr(_ring_file.os, "geteuid", lambda: other)
    assert (default_folder(str(shared)) == str(shared)) is (os.getuid() == 0)
    shared.chmod(0o755)
    monkeypatch.setattr(_ring_file, "_is_own", lambda path, _me: Path(path).is_dir() and not Path(path).is_symlink())
    own = default_folder(str(shared))
    assert own == f"{shared}-{other}"
    assert stat.S_IMODE(Path(own).stat().st_mode) == 0o755
    assert default_folder(str(shared)) == own


def test_a_link_in_place_of_the_shared_folder_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may make one in /dev/shm; a sticky folder of root's, on a slow disk, is where it would lead."""
    me = os.geteuid()
    (tmp_path / "disk").mkdir(mode=0o777)
    (tmp_path / "disk").chmod(0o1777)
    for name, target in (("whole", tmp_path / "disk"), ("dangling", tmp_path / "nowhere")):
        (tmp_path / name).symlink_to(target)
        assert default_folder(str(tmp_path / name)) == str(tmp_path / f"{name}-{me}")
    # Made by a stranger between the look and the making: what it leads to is not opened to all.
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (tmp_path / "late").symlink_to(closed)
    monkeypatch.setattr(_ring_file.os.path, "isdir", lambda path: not path.endswith("late"))
    _ring_file._make_folder(str(tmp_path / "late"))
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_a_name_that_another_user_took_is_no_loss(tmp_path: Path) -> None:
    shared = tmp_path / "pyrometer"
    me = os.geteuid()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"pyrometer-{me}").symlink_to(tmp_path / "elsewhere")
    own = _ring_file._own_folder(str(shared), me)
    assert own.startswith(f"{shared}-{me}.")
    assert _ring_file._own_folder(str(shared), me) == own


def test_an_exporter_of_another_user_reads_rings_of_a_job_with_a_closed_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        run = pyrometer.start("r", rings=str(tmp_path / "rings"))
        own = _ring_file._own_folder(str(tmp_path / "pyrometer"), os.geteuid())
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path(run.path).stat().st_mode) == 0o644
    assert stat.S_IMODE(Path(own).stat().st_mode) == 0o755
    run.close()


def test_thousands_of_stale_rings_hold_up_no_start(rings: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        path = Path(rings) / f"old{number}.ring"
        path.write_bytes(b"x")
        age(path, header=False)
    monkeypatch.setattr(_ring_file, "_CLEARING_SECONDS", 0.0)
    pyrometer.start("r", rings=rings).close()
    assert len(list(Path(rings).glob("old*"))) == 50
    monkeypatch.setattr(_ring_file, "_CLEARING_SECONDS", 60.0)
    pyrometer.start("r", rings=rings).close()
    assert list(Path(rings).glob("old*")) == []


def test_stale_rings_behind_many_others_go_as_well(rings: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        Path(rings, f"old{number}.ring").write_bytes(b"x")
    with os.scandir(rings) as entries:
        last = [entry.path for entry in entries][-5:]
    for path in last:
        age(path, header=False)
    ticks = iter(range(1_000_000))
    clock = types.SimpleNamespace(monotonic=lambda: next(ticks), time=time.time)
    monkeypatch.setattr(_ring_file, "time", clock)
    monkeypatch.setattr(_ring_file, "_CLEARING_SECONDS", 10)
    for start in range(40):
        monkeypatch.setattr(os, "urandom", lambda length, start=start: start.to_bytes(length, "little"))
        _ring_file.remove_stale_rings(rings)
    assert len(list(Path(rings).iterdir())) == 35


def test_a_link_put_in_the_place_of_the_folder_just_made_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, rings, made = tmp_path / "secret", tmp_path / "rings", os.mkdir
    secret.mkdir(mode=0o700)

    def exchanged(path: str, *_: object) -> None:
        made(path)
        rings.rename(tmp_path / "moved")
        rings.symlink_to(secret)

    monkeypatch.setattr(os, "mkdir", exchanged)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        _ring_file.create_ring(str(rings), "r0", b"{}")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o700
    assert list(secret.iterdir()) == []
