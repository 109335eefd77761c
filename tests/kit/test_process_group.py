"""Ending programs with what they have started."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from pyrometer_kit import process_group


def started(script: str) -> subprocess.Popen[bytes]:
    """Start a shell, and return once it has printed a line."""
    process = subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


def test_a_program_has_time_to_tidy_up(tmp_path: Path) -> None:
    tidy = tmp_path / "tidy"
    process = started(f"trap 'sleep 0.1; touch {tidy}; exit 0' TERM; echo; while :; do sleep 0.02; done")
    process_group.end([process])
    assert tidy.exists()
    assert process.returncode == 0


def test_a_child_has_that_time_too_where_its_shell_is_gone_at_once(tmp_path: Path) -> None:
    tidy = tmp_path / "tidy"
    child = f"trap 'sleep 0.1; touch {tidy}; exit 0' TERM; echo; while :; do sleep 0.02; done"
    process_group.end([started(f'sh -c "{child}"; true')])
    assert tidy.exists()


def test_those_that_do_not_end_are_killed_all_after_the_same_time() -> None:
    stubborn = [started("trap '' TERM; echo; while :; do sleep 0.02; done") for _ in range(3)]
    before = time.monotonic()
    process_group.end(stubborn, grace=0.2)
    assert [process.returncode for process in stubborn] == [-9, -9, -9]
    assert time.monotonic() - before < 20


def test_a_program_that_has_ended_is_left_alone() -> None:
    process = started("echo")
    process.wait()
    process_group.end([process])
    assert process.returncode == 0
