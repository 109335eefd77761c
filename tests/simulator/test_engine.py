"""The basis of the container tests, as far as it can be tried without an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrometer_simulator.engine import daemon, wheelhouse
from pyrometer_simulator.engine.daemon import EngineError


def program(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("programs", "reason"),
    [([], "docker not found"), (["docker"], "dockerd is not there")],
)
def test_where_no_engine_can_be_had_one_line_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: list[str], reason: str
) -> None:
    for name in programs:
        program(tmp_path, name, "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match=reason) as error:
        daemon.check()
    assert "\n" not in str(error.value)


def test_an_engine_that_does_not_start_tells_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "docker", "exit 1")
    program(tmp_path, "dockerd", "echo 'cgroups: not supported' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with (
        pytest.raises(EngineError, match="does not start on this machine: cgroups: not supported"),
        daemon.engine(tmp_path, [], lambda _: None),
    ):
        pass


def test_the_wheelhouse_follows_the_constraints_of_the_images_python(tmp_path: Path) -> None:
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(
        "# a comment\na==1 ; python_full_version < '3.11'\na==2 ; python_full_version >= '3.11'\nb==3\n"
    )
    assert wheelhouse.pinned(constraints, "3.10") == ["a==1", "b==3"]
    assert wheelhouse.pinned(constraints, "3.14") == ["a==2", "b==3"]
