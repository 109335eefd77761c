"""Trials of other systems, without an engine: what counts as a success, and what is never hidden."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyrometer_simulator.engine.daemon import Docker
from pyrometer_simulator.stack.errors import StackError
from pyrometer_simulator.systems import __main__, images, releases, trials
from pyrometer_simulator.systems.profiles import ORDINARY, PROFILES, ROOT, Profile, User
from pyrometer_simulator.systems.releases import OLD_DEBIAN_KEYS, RELEASES
from pyrometer_simulator.systems.trials import Place, Plan, Result

NAMED = {profile.name: profile for profile in PROFILES}
PLAN = Plan(["ordinary"], [NAMED["forbidden"]], ["demo", "smoke"])
FLAGS = ["--user=ordinary", "--profile=absent", "--command=demo"]


class Containers(Place):
    """In place of an image: what the probe prints, and a script for each command."""

    def command(self, _name: str, _profile: Profile, _user: User, script: str) -> list[str]:
        commands: dict[str, str] = json.loads((self.folder / "scripts").read_text())
        return ["sh", "-c", commands.get(script, commands["probe"])]


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(images, "lay_out_project", lambda *_: None)
    probed = json.dumps({"log": "forbidden", "namespaces": False})
    return {"probe": f"echo '{probed}'", trials.COMMANDS["demo"]: "echo all right", trials.COMMANDS["smoke"]: "true"}


def run(folder: Path, scripts: dict[str, str], plan: Plan = PLAN) -> list[Result]:
    (folder / "scripts").write_text(json.dumps(scripts))
    place = Containers(Docker(os.environ), "bookworm", folder)
    return list(trials.run_all(RELEASES[0], place, plan, lambda _: None))


def test_a_command_that_ends_well_is_ok_and_its_output_is_kept(scripts: dict[str, str], tmp_path: Path) -> None:
    assert [(each.command, each.outcome) for each in run(tmp_path, scripts)] == [("demo", "ok"), ("smoke", "ok")]
    assert (tmp_path / "logs/bookworm-ordinary-forbidden-demo.log").read_text() == "all right\n"


@pytest.mark.parametrize(
    ("output", "note"),
    [
        ("06:22 WRONG: 3 messages for 2 faults\nmake: *** [demo] Error 1", "06:22 WRONG: 3 messages for 2 faults"),
        ("stack: reading\nstack: not signed\nmake: *** [stack] Error 2", "stack: not signed"),
        ("FAILED tests/a.py::test_b - x\n1 failed", "FAILED tests/a.py::test_b - x"),
        ("", "no output"),
    ],
)
def test_a_failure_is_told_by_its_most_telling_line(
    scripts: dict[str, str], tmp_path: Path, output: str, note: str
) -> None:
    (tmp_path / "output").write_text(output)
    scripts[trials.COMMANDS["demo"]] = f"cat {tmp_path}/output; exit 2"
    demo, smoke = run(tmp_path, scripts)
    assert (demo.outcome, demo.note, smoke.outcome) == ("failed", f"status 2: {note}", "ok")


@pytest.mark.parametrize(
    ("probe", "note"),
    [
        ('echo \'{"log": "readable", "namespaces": false}\'', "the kernel log is readable and not forbidden"),
        ("echo docker: not permitted >&2; exit 1", "no container: docker: not permitted"),
    ],
)
def test_a_profile_that_could_not_be_brought_about_is_no_success(
    scripts: dict[str, str], tmp_path: Path, probe: str, note: str
) -> None:
    results = run(tmp_path, {**scripts, "probe": probe})
    assert {(each.outcome, each.note) for each in results} == {("not run", note)}


@pytest.mark.parametrize(("reuse", "times"), [(False, 4), (True, 1)])
def test_each_profile_is_tried_from_nothing_unless_a_checkout_is_reused(
    reuse: bool, times: int, scripts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out: list[object] = []
    monkeypatch.setattr(images, "lay_out_project", lambda *who: laid_out.append(who))
    monkeypatch.setattr(trials, "probe", lambda *_: "")
    results = run(tmp_path, scripts, Plan(["ordinary"], PROFILES, ["demo"], reuse))
    assert len(laid_out) == times
    assert [each.note for each in results] == (["", *["set up before"] * 3] if reuse else [""] * 4)


def test_profiles_grant_the_kernels_log_and_capabilities_by_the_engines_own_flags() -> None:
    assert NAMED["container"].flags(ORDINARY) == ["--user=4711:4711"]
    assert NAMED["container"].flags(ROOT) == ["--user=0:0"]
    assert NAMED["forbidden"].flags(ORDINARY) == ["--volume=/dev/kmsg:/dev/kmsg", "--user=4711:4711"]
    assert not {"--cap-add=SYSLOG", "--cap-add=SYS_ADMIN"} & set(NAMED["forbidden"].flags(ROOT))
    assert {"--cap-add=SYSLOG", "--cap-add=SYS_ADMIN"} <= set(NAMED["absent"].flags(ROOT))
    assert "--device=/dev/kmsg" in NAMED["readable"].flags(ROOT)
    assert NAMED["readable"].command(ORDINARY, "x")[0] == "setpriv"
    assert NAMED["absent"].command(ORDINARY, "x") == ["sh", "-c", "x"]


def test_the_project_is_laid_out_anew_without_what_git_ignores(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".cache/pyrometer").mkdir(parents=True)
    images.lay_out_project(home, User("me", os.getuid(), "/home/me"))
    assert os.access(home / "pyrometer/.ci/run", os.X_OK)
    assert not (home / "pyrometer/.venv").exists()
    assert not (home / ".cache").exists()


def test_an_old_keyring_takes_the_place_of_the_installed_one_in_binary_form(tmp_path: Path) -> None:
    keyrings = tmp_path / "usr/share/keyrings"
    keyrings.mkdir(parents=True)
    (keyrings / "debian-archive-keyring.pgp").write_bytes(b"new")
    (keyrings / "debian-archive-keyring.gpg").symlink_to("debian-archive-keyring.pgp")
    images._replace_debian_keys(tmp_path, OLD_DEBIAN_KEYS)
    (keyring,) = keyrings.iterdir()
    assert keyring.name == "debian-archive-keyring.gpg"
    assert keyring.read_bytes()[:1] == b"\x99"  # a public key packet, RFC 4880 section 4.2


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @contextmanager
    def engine(*_: object, **__: object) -> Iterator[Docker]:
        yield Docker({}, ours=True)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(releases, "require_tools", lambda: None)
    monkeypatch.setattr(releases, "is_reachable", lambda _: True)
    monkeypatch.setattr(__main__, "check", lambda: None)
    monkeypatch.setattr(__main__, "engine", engine)
    monkeypatch.setattr(images, "build", lambda _docker, release, *_: release.suite)


def outcomes(monkeypatch: pytest.MonkeyPatch, outcome: str) -> None:
    def run_all(release: Any, *_: object) -> Iterator[Result]:
        yield Result(release.name, "ordinary", "absent", "demo", outcome, date="2026-11-23")

    monkeypatch.setattr(trials, "run_all", run_all)


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize(("outcome", "status"), [("ok", 0), ("failed", 1), ("not run", 1)])
def test_the_status_is_that_of_the_worst_trial(
    outcome: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes(monkeypatch, outcome)
    assert __main__.main([*FLAGS, "--system=bookworm"]) == status
    assert "| Debian 12 | newcomer |" in capsys.readouterr().out


@pytest.mark.usefixtures("as_root")
def test_an_ubuntu_out_of_reach_is_a_row_of_its_own_and_what_differs_is_simulated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes(monkeypatch, "ok")
    monkeypatch.setattr(releases, "is_reachable", lambda release: not release.is_ubuntu)
    assert __main__.main([*FLAGS, "--system=jammy", "--system=noble", "--jobs=2"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("not run: archive not reachable") == 2
    assert "| Debian 12 with Ubuntu 22.04's Debian keys (simulated) | newcomer |" in shown
    monkeypatch.setattr(releases, "is_reachable", lambda _: False)
    assert __main__.main([*FLAGS, "--system=trixie"]) == 1


@pytest.mark.usefixtures("as_root")
def test_a_system_that_cannot_be_installed_fails_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(*_: object) -> str:
        raise StackError("debootstrap trixie: no space left on device")

    monkeypatch.setattr(images, "build", build)
    assert __main__.main([*FLAGS, "--system=trixie"]) == 1
    assert "not run: debootstrap trixie: no space left" in capsys.readouterr().out


@pytest.mark.usefixtures("as_root")
def test_who_is_not_root_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert __main__.main(FLAGS) == 2
    assert capsys.readouterr().err == "systems: only root can install other systems: sudo make test-systems\n"
