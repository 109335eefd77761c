"""CI runs the tests and a trial on another system, side by side; neither's failure is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAKE = """#!/bin/sh
echo "make $1"
case $1 in test) exit $TESTS;; test-pythons) exit $OTHERS;; test-systems) echo "$2"; exit $TRIAL;; esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The script, with a make that does nothing, a debootstrap and an engine."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".venv").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci")
    for name, text in {
        "make": MAKE,
        "debootstrap": "#!/bin/sh\n",
        "dockerd": "#!/bin/sh\n",
        "apt-get": "#!/bin/sh\nexit 100\n",
    }.items():
        program(tmp_path, name, text)
    return tmp_path


def program(checkout: Path, name: str, text: str) -> None:
    path = checkout / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def run(checkout: Path, tests: int = 0, trial: int = 0, others: int = 0) -> subprocess.CompletedProcess[str]:
    # Without the system's own folders, where debootstrap may be installed.
    for name in ("bash", "cat", "dirname"):
        link = checkout / "bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to(str(shutil.which(name)))
    statuses = {"TESTS": str(tests), "TRIAL": str(trial), "OTHERS": str(others)}
    environment = os.environ | {"PATH": str(checkout / "bin"), **statuses}
    command = [str(checkout / "bin/bash"), str(checkout / ".ci/run")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("tests", "trial", "status"), [(0, 0, 0), (2, 0, 2), (0, 1, 1), (2, 1, 1)])
def test_the_failure_of_either_part_fails_the_whole_and_both_are_shown(
    tests: int, trial: int, status: int, checkout: Path
) -> None:
    answer = run(checkout, tests, trial)
    assert answer.returncode == status, answer.stderr
    *commands, trial_command, flags = answer.stdout.splitlines()
    assert commands == ["make setup", "make test", "make test-recipes", "make test-wheels", "make test-pythons"]
    assert trial_command == "make test-systems"
    assert "--user=ordinary --profile=forbidden" in flags
    assert ("ci: failed: the trial" in answer.stderr) is (trial != 0)


def test_a_failure_on_another_python_fails_the_whole(checkout: Path) -> None:
    answer = run(checkout, others=1)
    assert answer.returncode == 1
    assert "ci: failed: the tests on other Pythons" in answer.stderr


@pytest.mark.parametrize("missing", ["debootstrap", "dockerd"])
def test_without_what_the_trial_needs_it_is_installed_or_the_whole_fails(checkout: Path, missing: str) -> None:
    (checkout / "bin" / missing).unlink()
    answer = run(checkout)
    assert answer.returncode == 2
    assert f"ci: no {missing}, and apt-get can't install it" in answer.stderr
    assert "make test" not in answer.stdout
    program(checkout, "apt-get", "#!/bin/sh\nexit 0\n")
    assert run(checkout).returncode == 0
