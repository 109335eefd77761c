"""Every query of every board with its variables filled in."""

from __future__ import annotations

import re

from tools.board_lint.asked import asked

VARIABLES = {
    "cluster": "c", "node": "n", "rack": "r", "run": "x", "other": "y", "job": "1", "serial": "2",
    "job_id": "1", "other_job": "1",
}  # fmt: skip


def test_every_board_is_asked_and_no_variable_is_left() -> None:
    found = list(asked(VARIABLES))
    assert len(found) > 350
    assert len({where for where, _ in found}) > 0.9 * len(found)
    assert any(where.startswith("gpu-matrix.json / GPU map") for where, _ in found)
    left = {name for _, expression in found for name in re.findall(r"\$\{?[A-Za-z_]\w*", expression)}
    assert left == set()


def test_a_callers_values_come_first() -> None:
    assert any('what="clock"' in expression for _, expression in asked({**VARIABLES, "what": "clock"}))
