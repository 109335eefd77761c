"""Finding Prometheus and Alertmanager: sources, versions, cache and errors; nothing here asks a network."""

import subprocess
import sys
from pathlib import Path

import pytest

from pyrometer_simulator.stack import Stack, StackError, apt, cache, find_stack, sources, versions


def _tool(folder: Path, name: str, output: str, code: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{output}'\nexit {code}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PATH is one empty folder, and the cache is empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("prometheus, version 3.5.3+ds1 (branch: debian/sid, revision: 3.5.3+ds1-6)", (3, 5)),
        ("amtool, version 0.33.1 (branch: debian/sid, revision: 0.33.1-5)", (0, 33)),
        ("promtool, version 2.42.0+ds (branch: debian/sid, revision: 2.42.0+ds-5+b5)", (2, 42)),
        ("alertmanager, version 0.33.0-rc.0 (branch: HEAD, revision: abc)", (0, 33)),
        ("some other prometheus", None),
        ("", None),
    ],
)
def test_the_version_is_read_from_the_first_line(line: str, version: versions.Version | None) -> None:
    assert versions.parse_version(line) == version


def test_a_tool_on_path_is_taken_only_when_it_is_new_enough(empty_path: Path) -> None:
    _tool(empty_path, "prometheus", "prometheus, version 2.42.0 (branch: x)")
    assert versions.on_path(["prometheus"], (3, 5)) is None
    new = _tool(empty_path, "prometheus", "prometheus, version 3.5.0 (branch: x)")
    assert versions.on_path(["prometheus"], (3, 5)) == new


def test_a_tool_on_path_that_does_not_start_is_passed_over(empty_path: Path) -> None:
    _tool(empty_path, "alertmanager", "alertmanager, version 0.40.0", code=1)
    other = _tool(empty_path, "prometheus-alertmanager", "alertmanager, version 0.33.1 (branch: x)")
    assert versions.on_path(["alertmanager", "prometheus-alertmanager"], (0, 33)) == other


def test_everything_on_path_needs_no_cache_and_no_word(empty_path: Path, tmp_path: Path) -> None:
    prometheus = _tool(empty_path, "prometheus", "prometheus, version 3.6.0 (x)")
    promtool = _tool(empty_path, "promtool", "promtool, version 3.6.0 (x)")
    alertmanager = _tool(empty_path, "alertmanager", "alertmanager, version 0.34.0 (x)")
    amtool = _tool(empty_path, "amtool", "amtool, version 0.34.0 (x)")
    said: list[str] = []
    assert find_stack(said.append) == Stack(prometheus, promtool, (str(alertmanager),), (str(amtool),))
    assert said == []
    assert not (tmp_path / "cache").exists()


DEB822 = """\
# the machine's mirror
Types: deb deb-src
URIs: http://mirror.example/debian/
# a comment inside
Suites: bookworm
 bookworm-updates
Components: main contrib

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
"""

ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] http://other.example/debian bookworm main contrib # trailing
deb-src http://source.example/debian bookworm main
deb cdrom:[Debian]/ bookworm main
deb https://download.example/linux/debian bookworm stable
deb http://archive.ubuntu.example/ubuntu noble main
deb http://apt.example/debian/ anything main
"""


def _etc_apt(folder: Path, one_line: str = "", deb822: str = "") -> Path:
    (folder / "sources.list.d").mkdir(parents=True)
    (folder / "sources.list").write_text(one_line, encoding="utf-8")
    (folder / "sources.list.d/debian.sources").write_text(deb822, encoding="utf-8")
    return folder


def test_the_machines_own_debian_mirrors_come_first(tmp_path: Path) -> None:
    etc = _etc_apt(tmp_path / "apt", ONE_LINE, DEB822)
    assert sources.debian_uris(etc) == [
        "http://other.example/debian",
        "http://mirror.example/debian",
        "http://deb.debian.org/debian",
    ]


def test_a_machine_without_a_debian_source_asks_debian_itself(tmp_path: Path) -> None:
    ubuntu = "deb http://archive.ubuntu.example/ubuntu noble main universe\n"
    assert sources.debian_uris(_etc_apt(tmp_path / "apt", ubuntu)) == [sources.DEFAULT_URI]
    assert sources.debian_uris(tmp_path / "nowhere") == [sources.DEFAULT_URI]


def test_the_cache_follows_xdg_only_where_it_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "pyrometer/stack"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.cache_folder() == tmp_path / "home/.cache/pyrometer/stack"


class _FakeApt:
    """In place of apt: packages hold one file; `broken` ends in the middle of unpacking."""

    def __init__(self, root: Path, uri: str) -> None:
        self.root = root
        self.uri = uri

    def update(self) -> str:
        if "broken" in self.uri:
            raise StackError("no answer")
        return "10 MB"

    def describe(self, package: str) -> apt.Download:
        return apt.Download(f"{package}_1%3a2.0-1_amd64.deb", 1_500_000)

    def unpack(self, package: str, into: Path) -> None:
        (into / "usr").mkdir()
        if package == "half":
            raise StackError("the connection broke")


@pytest.fixture
def fake_apt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "Apt", _FakeApt)
    monkeypatch.setattr(cache, "debian_uris", lambda: ["http://one.example/debian"])


def _usable(package: str, unpacked: Path) -> None:
    assert unpacked.is_dir(), package


@pytest.mark.usefixtures("fake_apt")
def test_each_stage_is_told_and_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    said: list[str] = []
    cache.fill(tmp_path, ["a"], _usable, said.append)
    assert said[2] == "stack: downloading a 1:2.0-1 (1.5 MB)"
    assert cache.missing(tmp_path, ["a", "b"]) == ["b"]
    said.clear()
    cache.fill(tmp_path, ["a"], _usable, said.append)
    assert said == []


@pytest.mark.usefixtures("fake_apt")
def test_a_download_that_breaks_leaves_no_half_package_and_keeps_whole_ones(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="the connection broke"):
        cache.fill(tmp_path, ["whole", "half"], _usable, lambda _: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "whole"]


@pytest.mark.usefixtures("fake_apt")
def test_a_package_that_does_not_start_is_not_kept(tmp_path: Path) -> None:
    def refuse(package: str, unpacked: Path) -> None:
        raise StackError("too old")

    with pytest.raises(StackError, match="too old"):
        cache.fill(tmp_path, ["a"], refuse, lambda _: None)
    assert cache.missing(tmp_path, ["a"]) == ["a"]


@pytest.mark.usefixtures("fake_apt")
def test_a_mirror_that_does_not_answer_gives_way_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "debian_uris", lambda: ["http://broken.example/debian", "http://one.example/debian"])
    said: list[str] = []
    cache.fill(tmp_path, ["a"], _usable, said.append)
    assert "stack: no answer; trying the next archive" in said
    assert cache.missing(tmp_path, ["a"]) == []


def _run_module(path: Path, cache_home: Path) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": str(path), "XDG_CACHE_HOME": str(cache_home), "HOME": str(cache_home)}
    command = [sys.executable, "-m", "pyrometer_simulator.stack"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_system_without_apt_is_told_what_to_install_in_one_line(empty_path: Path, tmp_path: Path) -> None:
    answer = _run_module(empty_path, tmp_path / "cache")
    assert answer.returncode == 2
    (line,) = answer.stderr.splitlines()
    assert "install Prometheus >= 3.5" in line


def test_a_cache_that_cannot_be_written_is_one_line(empty_path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    answer = _run_module(empty_path, tmp_path / "file")
    assert answer.returncode == 2
    (line,) = answer.stderr.splitlines()
    assert "set XDG_CACHE_HOME" in line
