"""Runs of one name are different jobs: no rule takes one for the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tools.board_lint.runs import confusing

from pyrometer_dashboards.promql import parse
from pyrometer_simulator.stack.promtool import rules_of

RULES = rules_of(sorted((Path(__file__).resolve().parents[2] / "alert_rules").glob("*.rules.yaml")))
EXEMPT = {
    # The best of all jobs of a lineage: each is joined by that label before the job is left out.
    "run:pyrometer_train_batch_mfu_ratio:best3h": "lineage",
    "run:pyrometer_train_batch_step:config_batches3h": "lineage",
    "comm:pyrometer_nccl_bus_bandwidth:best1d": "lineage",
    # Counts the people behind one name.
    "TrainRunNameShared": "by (cluster, run, user)",
    # Series of exporters until 0.2.0, which have no job.
    "run:pyrometer_train_run_info:configs": 'user=""',
    "node:pyrometer_train_run_info:job": 'user=""',
    "node:pyrometer_train_run_info:without_job": "node:pyrometer_train_run_info:job",
}


def _name(rule: dict[str, Any]) -> str:
    return str(rule.get("alert") or rule.get("record"))


def _exempt(rule: dict[str, Any]) -> bool:
    """Return whether a rule may keep the name alone: it is listed, or brings the job to series without one."""
    reason = EXEMPT.get(_name(rule))
    brings = _name(rule).startswith("pyrometer_train_") and "node:pyrometer_train_run_info:job" in rule["expr"]
    return brings or (reason is not None and reason in rule["expr"])


@pytest.mark.parametrize("rule", RULES, ids=_name)
def test_a_rule_keeps_the_job_beside_the_name_of_a_run(rule: dict[str, Any]) -> None:
    confused = list(confusing(parse(rule["expr"])))
    assert bool(confused) == _exempt(rule), confused


def test_the_texts_of_an_alert_ask_about_its_own_job() -> None:
    lines = [line for rule in RULES for text in rule.get("annotations", {}).values() for line in text.split("{{")]
    asked = [line for line in lines if "run=%q" in line]
    # Runs that a person named to the exporter, --collector.slurm.run, have a name alone; of a shared name all are told.
    by_name = ("pyrometer_slurm_run_job_info", "$labels.name")
    alone = [line for line in asked if "job_id=" not in line and not any(word in line for word in by_name)]
    assert (alone, len(asked) > 20) == ([], True)


@pytest.mark.parametrize(
    ("expr", "fault"),
    [
        ("max by (cluster, run) (up) == 0", "max by (cluster, run)"),
        ("count without (job_id) (up)", "count without (job_id)"),
        ("up and on (cluster, run) pyrometer_train_rank_up", "and on (cluster,run)"),
        ("up / ignoring (attempt, job_id) group_left () up", "/ ignoring (attempt,job_id)"),
    ],
)
def test_an_expression_that_takes_one_run_for_another_is_reported(expr: str, fault: str) -> None:
    assert list(confusing(parse(expr))) == [fault]


@pytest.mark.parametrize(
    "expr",
    [
        "max by (cluster, run, job_id) (up)",
        "max by (cluster, node) (up)",
        "max without (run, job_id) (up)",
        "max by (cluster, run, lineage) (up)",
        "up unless on (cluster, run, job_id, attempt) up",
    ],
)
def test_an_expression_that_keeps_runs_apart_is_not_reported(expr: str) -> None:
    assert list(confusing(parse(expr))) == []
