"""The .deb and the .rpm: built, installed into a root of their own by dpkg, started, removed and purged."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import chart, command_files, packages

from pyrometer_kit.http_client import get

pytestmark = [pytest.mark.wheels, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]
MACHINES = {"amd64": 62, "arm64": 183}  # e_machine of elf.h


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if chart.program("nfpm") is None:
        pytest.skip("no nfpm: `make chart-programs` builds it")
    if shutil.which("dpkg") is None:
        pytest.skip("no dpkg")
    folder = tmp_path_factory.mktemp("dist")
    packages.build(folder, packages.FORMATS, tuple(packages.ARCHITECTURES))
    return folder


def ours() -> str:
    answer = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
    return answer.stdout.strip()


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["dpkg-deb", "-x", built / packages.file_name("deb", ours()), folder], check=True)
    return folder


class OtherRoot:
    """A root with nothing but dpkg's own files, into which dpkg installs; scripts run outside with DPKG_ROOT."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "var/lib/dpkg").mkdir(parents=True)
        (folder / "var/lib/dpkg/status").touch()
        (folder / "etc").mkdir()

    def dpkg(self, *arguments: str | Path) -> str:
        forced = "--force-not-root,script-chrootless,depends,bad-path"
        command = ["dpkg", f"--root={self.folder}", forced, "--log=/dev/null", *map(str, arguments)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout


@pytest.fixture
def other(tmp_path: Path) -> OtherRoot:
    if os.geteuid() != 0:
        pytest.skip("dpkg gives files to root: run as root")
    return OtherRoot(tmp_path / "root")


@pytest.fixture
def exporter(unpacked: Path, tmp_path: Path) -> Iterator[str]:
    """The node exporter as the package has it; the URL that it serves at."""
    program = unpacked / "opt/pyrometer/bin/pyrometer-node-exporter"
    flags = ["--web.listen-address=127.0.0.1:0", f"--path.state={tmp_path}", f"--path.rings={tmp_path / 'rings'}"]
    log = tmp_path / "log"
    with log.open("w") as file, subprocess.Popen([program, *flags], stderr=file, cwd="/") as process:
        try:
            yield served_at(process, log)
        finally:
            process.terminate()
            process.wait(20)


def served_at(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        if found := re.search(r"127\.0\.0\.1:([1-9]\d*)", log.read_text()):
            return f"http://127.0.0.1:{found[1]}"
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def test_the_exporter_of_the_package_serves_metrics_of_its_version(exporter: str) -> None:
    text = get(f"{exporter}/metrics").decode()
    assert re.search(rf'pyrometer_exporter_build_info{{.*version="{re.escape(packages.VERSION)}".*}} 1', text)


@pytest.mark.parametrize("name", packages.COMMANDS)
def test_every_command_starts_and_has_the_version(unpacked: Path, name: str) -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": "/nonexistent", "HOME": "/nonexistent"}
    command = [unpacked / "usr/bin" / name, "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert answer.stdout.startswith(f"{name}, version {packages.VERSION} ")


def test_without_a_python_that_is_new_enough_it_is_one_line(unpacked: Path, tmp_path: Path) -> None:
    for tool in ("dirname", "readlink"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")  # too old
    (tmp_path / "python3").chmod(0o755)
    command = [unpacked / "opt/pyrometer/bin/pyrometer-check"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": str(tmp_path)})
    assert answer.returncode == 2
    assert answer.stderr == "pyrometer-check: no Python 3.10 or newer on PATH: install python3.12\n"


def test_it_holds_units_manual_pages_and_completions_of_this_tree(unpacked: Path) -> None:
    for name in packages.UNITS:
        assert (unpacked / "usr/lib/systemd/system" / name).read_text() == (ROOT / "compose/systemd" / name).read_text()
    assert (unpacked / "usr/lib/sysusers.d/pyrometer.conf").exists()
    assert (unpacked / "usr/lib/tmpfiles.d/pyrometer.conf").exists()
    for name, text in command_files.files(packages.COMMANDS).items():
        place = name.replace("zsh/site-functions", "zsh/vendor-completions")
        path = unpacked / "usr/share" / place
        found = (
            packages.gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes()).decode()
            if "man1" in name
            else path.read_text()
        )
        assert found == text, name


@pytest.mark.parametrize("architecture", packages.ARCHITECTURES)
def test_libraries_are_those_of_the_machine_and_for_any_python(built: Path, tmp_path: Path, architecture: str) -> None:
    subprocess.run(["dpkg-deb", "-x", built / packages.file_name("deb", architecture), tmp_path], check=True)
    libraries = list(tmp_path.rglob("*.so*"))
    assert [path.name for path in libraries] == ["_bcrypt.abi3.so"]
    assert struct.unpack_from("<H", libraries[0].read_bytes(), 18) == (MACHINES[architecture],)
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.py")}
    assert modes == {0o644}


@pytest.mark.parametrize("architecture", packages.ARCHITECTURES)
def test_names_and_versions_agree(built: Path, architecture: str) -> None:
    command = [
        "dpkg-deb",
        "--field",
        built / packages.file_name("deb", architecture),
        "Package",
        "Version",
        "Architecture",
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout == f"Package: pyrometer-exporters\nVersion: {packages.VERSION}\nArchitecture: {architecture}\n"
    lead = (built / packages.file_name("rpm", architecture)).read_bytes()[:96]
    assert lead[:4] == b"\xed\xab\xee\xdb"
    assert lead[10:76].rstrip(b"\0").decode().startswith(f"pyrometer-exporters-{packages.VERSION}-1")


def test_installed_upgraded_removed_and_purged(built: Path, other: OtherRoot) -> None:
    package = built / packages.file_name("deb", ours())
    other.dpkg("--install", package)
    assert "pyrometer:x:10935:10935:" in (other.folder / "etc/passwd").read_text()
    assert (other.folder / "dev/shm/pyrometer").stat().st_mode & 0o7777 == 0o1777
    flags = other.folder / "etc/default/pyrometer-node-exporter"
    flags.write_text("PYROMETER_FLAGS=--no-collector.kernel\n")
    state = other.folder / "var/lib/pyrometer/counts"
    state.parent.mkdir()
    state.touch()
    other.dpkg("--install", package)  # an upgrade: what the site wrote stays
    assert flags.read_text() == "PYROMETER_FLAGS=--no-collector.kernel\n"
    other.dpkg("--remove", "pyrometer-exporters")
    assert not (other.folder / "opt/pyrometer/bin").exists()
    assert flags.exists()
    assert state.exists()
    other.dpkg("--purge", "pyrometer-exporters")
    left = {path for path in other.folder.rglob("*") if "pyrometer" in str(path.relative_to(other.folder))}
    assert {path for path in left if "var/lib/dpkg" not in str(path)} == set()
