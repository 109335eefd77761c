"""`make test-compose` on a machine without containers says so, and does not succeed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import pytest
from compose_not_run import NotRun
def pytest_configure(config):
    config.addinivalue_line("markers", "compose: starts containers")
    config.pluginmanager.register(NotRun())
@pytest.fixture
def running():
    pytest.skip("no containers on this machine: no dockerd: apt-get install docker.io")
"""
TESTS = """
import pytest
@pytest.mark.compose
def test_one(running): pass
@pytest.mark.compose
def test_two(running): pass
def test_other(): assert {passes}
"""


def run(folder: Path, *flags: str, passes: bool = True) -> tuple[int, str]:
    """Status and last line of a session with two tests that need containers, and one that doesn't."""
    here = Path(__file__).parent
    (folder / "compose_not_run.py").write_text((here / "not_run.py").read_text())
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TESTS.format(passes=passes))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={folder}", *flags, folder]
    # Other plugins, which only take their time to load, are left out.
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.splitlines()[-1]


def test_where_nothing_was_run_the_last_line_says_why_and_it_is_no_success(tmp_path: Path) -> None:
    assert run(tmp_path, "-m", "compose") == (
        pytest.ExitCode.NO_TESTS_COLLECTED,
        "nothing was run: no containers on this machine: no dockerd: apt-get install docker.io",
    )


@pytest.mark.parametrize("passes", [True, False])
def test_where_others_were_run_they_decide_and_the_last_line_says_what_was_not(tmp_path: Path, passes: bool) -> None:
    assert run(tmp_path, passes=passes) == (
        pytest.ExitCode.OK if passes else pytest.ExitCode.TESTS_FAILED,
        "2 tests of containers were not run: no containers on this machine: no dockerd: apt-get install docker.io",
    )


def test_where_none_was_asked_for_nothing_is_said(tmp_path: Path) -> None:
    status, last = run(tmp_path, "-m", "not compose")
    assert (status, "run:" in last) == (pytest.ExitCode.OK, False)
