"""The command: who may run it, what decides its status, and what is tried in the place of an Ubuntu out of reach."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyrometer_simulator.stack.errors import StackError
from pyrometer_simulator.systems import __main__, chroots, releases, trials
from pyrometer_simulator.systems.releases import Release
from pyrometer_simulator.systems.trials import Plan, Result

FLAGS = ["--user=ordinary", "--profile=absent", "--command=demo"]


@pytest.fixture(autouse=True)
def as_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(releases, "require_tools", lambda: None)
    monkeypatch.setattr(releases, "is_reachable", lambda _: True)
    monkeypatch.setattr(chroots, "build", lambda release, *_: tmp_path / release.suite)


def outcomes(monkeypatch: pytest.MonkeyPatch, outcome: str) -> None:
    def run_all(release: Release, _root: Path, plan: Plan, *_: Any) -> Iterator[Result]:
        yield Result(release.name, "ordinary", "absent", "demo", outcome, date="2026-11-23")

    monkeypatch.setattr(trials, "run_all", run_all)


@pytest.mark.parametrize(("outcome", "status"), [("ok", 0), ("failed", 1), ("not run", 1)])
def test_the_status_is_that_of_the_worst_trial(
    outcome: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes(monkeypatch, outcome)
    assert __main__.main([*FLAGS, "--system=bookworm"]) == status
    assert "| Debian 12 | newcomer |" in capsys.readouterr().out


def test_an_ubuntu_out_of_reach_is_a_row_of_its_own_and_what_differs_is_simulated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes(monkeypatch, "ok")
    monkeypatch.setattr(releases, "is_reachable", lambda release: not release.is_ubuntu)
    assert __main__.main([*FLAGS, "--system=jammy", "--system=noble", "--jobs=2"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("not run: archive not reachable") == 2
    assert "| Debian 12 with Ubuntu 22.04's Debian keys (simulated) | newcomer |" in shown


def test_a_debian_out_of_reach_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "is_reachable", lambda _: False)
    assert __main__.main([*FLAGS, "--system=trixie"]) == 1


def test_a_chroot_that_cannot_be_built_fails_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(*_: object) -> Path:
        raise StackError("debootstrap trixie: no space left on device")

    monkeypatch.setattr(chroots, "build", build)
    assert __main__.main([*FLAGS, "--system=trixie"]) == 1
    assert "not run: debootstrap trixie: no space left" in capsys.readouterr().out


def test_who_is_not_root_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert __main__.main(FLAGS) == 2
    assert capsys.readouterr().err == "systems: only root can build and enter chroots: sudo make test-systems\n"
