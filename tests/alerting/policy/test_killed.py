"""Killed anywhere, the policy neither forgets nor repeats an action."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CHILD = Path(__file__).parents[1] / "policy_child.py"


def played(play: str) -> list[dict[str, Any]]:
    """Return what was true after a kill at each step of a look."""
    ended = subprocess.run([sys.executable, str(CHILD), play], capture_output=True, text=True, check=False, timeout=250)
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(found) > 8
    assert [each["over"] for each in found] == [False] * (len(found) - 1) + [True]
    return found


def test_killed_at_any_step_a_node_is_drained_exactly_once() -> None:
    for truth in played("drain"):
        assert truth["drains"] == ["n3"], truth
        assert truth["held"], truth
        assert truth["records"] == [["drain", "done"]], truth
        assert truth["posts"] == 1, truth


def test_what_a_person_put_back_in_between_is_not_drained_again() -> None:
    for truth in played("resumed"):
        assert len(truth["drains"]) == 1, truth
        kind, state = truth["records"][0]
        assert kind == "drain"
        # Killed before the call it is drained afterwards; killed after it, it stays as the person wanted.
        assert (state == "done") is truth["held"], truth
        assert state in ("done", "overtaken", "ended"), truth


def test_killed_at_any_step_a_node_is_put_back_exactly_once() -> None:
    for truth in played("return"):
        assert truth["drains"] == ["n3"], truth
        assert truth["resumes"] == ["n3"], truth
        assert not truth["held"], truth
        assert truth["records"] == [["drain", "ended"], ["return", "done"]], truth


def test_killed_at_any_step_the_webhook_hears_one_id() -> None:
    for truth in played("webhook"):
        assert len(set(truth["told"])) == 1, truth
        assert len(truth["told"]) <= 2, truth
        assert truth["records"] == [["webhook", "done"]], truth
        assert truth["drains"] == [], truth
