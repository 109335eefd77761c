"""A board that takes two runs of one name for one is a finding."""

from __future__ import annotations

import json

import pytest
from tools.board_lint.finding import LintContext, panels, targets
from tools.board_lint.queries import check

from pyrometer_dashboards.main import rendered

RATE = "run:pyrometer_train_steps:rate1m"


def said(expr: str, *, mark: bool = False) -> list[str]:
    """Return what is said of the Overview with this query in a panel or a mark, beside what is said of all others."""
    board = json.loads(rendered()["training-run.json"])
    if mark:
        board["annotations"]["list"][-1]["target"]["expr"] = expr
    else:
        next(target for panel in panels(board) for target in targets(panel))["expr"] = expr
    return [finding.problem for finding in check("b.json", board, LintContext())]


@pytest.mark.parametrize(
    ("expr", "mark", "fault"),
    [
        (f'max by (run) ({RATE}{{cluster="$cluster", run="$run", job_id=~"$jobs|"}})', False, "max by (run)"),
        (f'count by (run) ({RATE}{{cluster="$cluster", run="$run", job_id=~"$jobs|"}})', True, "count by (run)"),
        (f'{RATE}{{cluster="$cluster", run="$run"}}', False, f"{RATE} of all runs of a name"),
        (f'max by (run, job_id) ({RATE}{{cluster="$cluster", run="$run", job_id=~"$jobs|"}})', False, ""),
    ],
)
def test_a_query_that_mixes_runs_of_one_name_is_a_finding(expr: str, mark: bool, fault: str) -> None:
    problems = said(expr, mark=mark)
    assert [problem for problem in problems if fault in problem] if fault else problems == []
