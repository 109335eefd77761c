"""The contents of a chroot: the project's own files, the machine's way to its archives, Debian's old keys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyrometer_simulator.stack.errors import StackError
from pyrometer_simulator.systems import chroots, releases
from pyrometer_simulator.systems.chroots import User
from pyrometer_simulator.systems.releases import OLD_DEBIAN_KEYS, RELEASES, SIMULATED

ME = User("me", os.getuid(), "/home/me")


def test_the_project_is_laid_out_anew_without_what_git_ignores(tmp_path: Path) -> None:
    leftover = tmp_path / "home/me/pyrometer/leftover"
    cached = tmp_path / "home/me/.cache/pyrometer"
    for folder in (leftover, cached):
        folder.mkdir(parents=True)
    chroots.lay_out_project(tmp_path, ME)
    assert (tmp_path / "home/me/pyrometer/Makefile").is_file()
    assert os.access(tmp_path / "home/me/pyrometer/.ci/run", os.X_OK)
    assert not (tmp_path / "home/me/pyrometer/.venv").exists()
    assert not leftover.exists()
    assert not cached.exists()


def test_an_old_keyring_takes_the_place_of_the_installed_one_in_binary_form(tmp_path: Path) -> None:
    keyrings = tmp_path / "usr/share/keyrings"
    keyrings.mkdir(parents=True)
    (keyrings / "debian-archive-keyring.pgp").write_bytes(b"new")
    (keyrings / "debian-archive-keyring.gpg").symlink_to("debian-archive-keyring.pgp")
    chroots._replace_debian_keys(tmp_path, OLD_DEBIAN_KEYS)
    (keyring,) = keyrings.iterdir()
    assert keyring.name == "debian-archive-keyring.gpg"
    assert keyring.read_bytes()[:1] == b"\x99"  # a public key packet, RFC 4880 section 4.2
    assert b"(11/bullseye)" in keyring.read_bytes()


def test_debootstrap_that_fails_is_one_line_and_leaves_no_chroot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin/debootstrap"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho I: Retrieving\necho E: Invalid Release signature >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
    monkeypatch.setattr(chroots, "keyring", lambda *_: Path("keys.gpg"))
    with pytest.raises(StackError, match="debootstrap bookworm: E: Invalid Release signature"):
        chroots.build(RELEASES[0], tmp_path / "systems", lambda _: None)
    assert list((tmp_path / "systems").iterdir()) == []


def test_without_debootstrap_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(StackError, match="apt-get install debootstrap"):
        releases.require_tools()


def test_an_archive_that_does_not_answer_is_not_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "UBUNTU", "http://127.0.0.1:9/ubuntu")
    (jammy,) = (release for release in RELEASES if release.suite == "jammy")
    assert not releases.is_reachable(jammy)
    assert "simulated" in SIMULATED[jammy.name].name
