"""Two runs of one name, on boards: each has its row and its own board, and the jobs of one user go on as one run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.dashboards.planted import Series, answer, expression, gives, where
from tools.board_lint.interpolation import builtin_variables, interpolate

from pyrometer_dashboards.main import rendered

FIRING = "Firing now, with the part that is meant"
RUNS = "Runs: who waits for whom, and why"
RUN = "pyrometer-training-run?var-run=train"


def rank(whose: str, node: str, begun: int, lives: str, steps: str) -> Series:
    """Return the series of a run of one rank; ``lives`` and ``steps`` are series in promtool's notation."""
    user, job = whose.split()
    of_job = f'{where(node)}, run="train", job_id="{job}", attempt="0"'
    own = f'{of_job}, rank="0"'
    return {
        f'pyrometer_train_run_info{{{of_job}, user="{user}", model="m", world_size="1"}}': lives,
        f"pyrometer_train_rank_up{{{own}}}": lives,
        f"pyrometer_train_rank_start_timestamp_seconds{{{own}}}": lives.replace("1x", f"{begun}x"),
        f'pyrometer_train_rank_info{{{own}, gpu="0", stage="0"}}': lives,
        f"pyrometer_train_last_step_timestamp_seconds{{{own}}}": steps,
        f"pyrometer_train_steps_total{{{own}}}": steps,
    }


# Bob's run goes on beside Ada's two jobs, of which the second continues the first.
TRAIN: Series = {
    **rank("ada 4711", "gpu-041", 0, "1x40 stale", "0+15x40 stale"),
    **rank("ada 4712", "gpu-041", 660, "_x44 1x76", "_x44 660+15x76"),
    **rank("bob 99", "gpu-043", 30, "1x120", "0+15x60 900x60"),
}


def choice(board: str, name: str, **variables: str) -> str:
    """Return the query of a variable as Prometheus has it."""
    listed = json.loads(rendered()[f"{board}.json"])["templating"]["list"]
    (query,) = [each["definition"] for each in listed if each["name"] == name]
    found = re.fullmatch(r"query_result\((.*)\)", query)
    assert found
    return interpolate(found[1], {"cluster": "c1", **builtin_variables(1200), **variables})


def test_each_run_of_a_name_has_its_row_and_its_last_step(tmp_path: Path) -> None:
    state = expression("overview", RUNS, run="train")
    last = expression("overview", RUNS, 5, run="train")
    jobs = [f'{{run="train", job_id="{job}"}}' for job in ("4712", "99")]
    tests = [
        gives(f"0 * ({state})", *((labels, 0) for labels in jobs)),
        gives(last, (jobs[0], 0), (jobs[1], 300)),
        gives(expression("training-run", "Last step", run="train", jobs="99"), ("{}", 300)),
        gives(expression("training-run", "Last step", run="train", jobs="(4711|4712)"), ("{}", 0)),
    ]
    assert answer(tmp_path, TRAIN, tests) == ""


def test_the_newest_job_is_chosen_with_those_that_it_continues(tmp_path: Path) -> None:
    jobs = choice("training-run", "job_id", run="train")
    offered = [
        (f'{{job_id="{job}", user="{user}", text="{user}, {job}"}}', begun)
        for user, job, begun in (("ada", "4712", 660), ("bob", "99", 30), ("ada", "4711", 0))
    ]
    tests = [gives(jobs, *offered), gives(f"topk(1, {jobs})", offered[0])]
    for chosen, shown in (("4712", ("4711", "4712")), ("99", ("99",)), ("5", ("5",))):
        asked = choice("training-run", "jobs", run="train", job_id=chosen)
        tests.append(gives(asked, *((f'{{job_id="{job}"}}', 1) for job in shown)))
    tests.append(gives(choice("training-run", "jobs", run="train", job_id=""), ("{}", 1)))
    assert answer(tmp_path, TRAIN, tests) == ""


@pytest.mark.parametrize(
    ("labels", "to"),
    [
        ('run="train", job_id="4711"', f"{RUN}&var-job_id=4711"),
        ('run="train"', RUN),
        ('job_id="4711"', "pyrometer-overview?"),
    ],
)
def test_an_alert_leads_to_its_job(labels: str, to: str, tmp_path: Path) -> None:
    own = f'alertname="TrainStalled", severity="warning", cluster="c1", {labels}'
    series = {f"ALERTS_FOR_STATE{{{own}}}": "0x120", f'ALERTS{{{own}, alertstate="firing"}}': "1x120"}
    asked = f"max by (to, to_run) ({expression('alerts', FIRING)} and on (alertname) ALERTS{{{own}}})"
    assert answer(tmp_path, series, [gives(asked, (f'{{to="{to}", to_run="{to}"}}', 1200))]) == ""
