"""apt in a folder of its own: what it writes, whom it trusts, how it complains; its mirror is a folder."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from pyrometer_simulator.stack import StackError, apt
from pyrometer_simulator.systems.releases import OLD_DEBIAN_KEYS

DATA = Path(__file__).with_name("data")
OLD_KEYS = OLD_DEBIAN_KEYS

needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt-get: neither Debian nor Ubuntu")


@pytest.fixture
def mirror(tmp_path: Path) -> str:
    """A folder with a Release file that Debian signed on 2026-10-30, and nothing else."""
    suite = tmp_path / "a mirror/dists/testing"
    suite.mkdir(parents=True)
    (suite / "InRelease").write_bytes(gzip.decompress((DATA / "InRelease.gz").read_bytes()))
    return f"file:{suite.parents[1]}".replace(" ", "%20")


def complaint(root: Path, mirror: str, *keyrings: Path) -> str:
    """Apt's message about that mirror. It has no packages, so there always is something."""
    root.mkdir()
    with pytest.raises(StackError) as raised:
        apt.Apt(root, mirror, keyrings).update()
    return str(raised.value)


def test_apt_writes_only_below_its_own_folder_and_runs_no_hook(tmp_path: Path) -> None:
    apt.Apt(tmp_path, "http://mirror.example/debian")
    text = (tmp_path / "apt.conf").read_text(encoding="utf-8")
    etc = ("sourcelist", "sourceparts", "trusted", "trustedparts", "preferences", "preferencesparts")
    for folder in ("Dir::State", "Dir::State::lists", "Dir::Cache", *(f"Dir::Etc::{name}" for name in etc)):
        assert f'{folder} "{tmp_path}/' in text
    assert "#clear APT::Update::Post-Invoke;" in text


def test_an_error_of_apt_is_one_line_without_the_password_of_a_mirror(tmp_path: Path) -> None:
    script = tmp_path / "apt-get"
    script.write_text("echo Err:1 http://a\necho E: Failed to fetch http://me:secret@mirror.example/debian\nexit 100\n")
    with pytest.raises(StackError) as raised:
        apt.run_quietly(["sh", str(script)])
    assert "E: Failed to fetch http://mirror.example/debian" in str(raised.value)
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


@needs_apt
def test_the_shipped_keys_verify_what_debian_signs_today(tmp_path: Path, mirror: str) -> None:
    said = complaint(tmp_path / "apt", mirror, apt.SHIPPED_KEYS)
    # Only what is signed is read on: the recorded file is out of date, or, where the system's apt.conf allows that,
    # another suite's, testing-updates, whose file is small.
    assert "expired" in said or "not valid" in said or "forky-updates" in said
    assert "public key" not in said
    assert "signature" not in said
    assert "not signed" not in said


@needs_apt
def test_an_old_keyring_alone_is_refused_and_the_missing_key_named(tmp_path: Path, mirror: str) -> None:
    said = complaint(tmp_path / "apt", mirror, OLD_KEYS)
    assert "6ED0E7B82643E131" in said or "4CB50190207B4758A3F73A796ED0E7B82643E131" in said
    assert "install Prometheus" in said


@needs_apt
def test_an_old_keyring_does_not_stand_in_the_way_of_the_shipped_keys(tmp_path: Path, mirror: str) -> None:
    both = complaint(tmp_path / "both", mirror, OLD_KEYS, apt.SHIPPED_KEYS)
    assert both == complaint(tmp_path / "apt", mirror, apt.SHIPPED_KEYS)


@needs_apt
def test_without_any_key_nothing_is_accepted(tmp_path: Path, mirror: str) -> None:
    said = complaint(tmp_path / "apt", mirror, tmp_path / "no such keyring.gpg")
    assert "6ED0E7B82643E131" in said or "public key" in said or "verification failed" in said


@needs_apt
def test_a_release_file_that_was_changed_is_refused(tmp_path: Path, mirror: str) -> None:
    release = tmp_path / "a mirror/dists/testing/InRelease"
    release.write_bytes(release.read_bytes().replace(b"Codename: forky", b"Codename: fork0"))
    assert "signature" in complaint(tmp_path / "apt", mirror, apt.SHIPPED_KEYS).lower()
