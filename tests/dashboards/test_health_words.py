"""No panel says that all is well without data: on an empty Prometheus, with one node, with dead exporters, without NaN.

All queries of all boards are answered by Prometheus' own engine over our rules, in one run of promtool.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.dashboards.planted import gives, healthy
from tools.board_lint import claims, finding
from tools.board_lint.finding import LintContext
from tools.board_lint.interpolation import builtin_variables, interpolate

from pyrometer_dashboards import grafana_json, panels, proof
from pyrometer_dashboards.main import rendered
from pyrometer_dashboards.model import Board, Reading, Row
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.promtool import objections

RULES = Path(__file__).parents[2] / "alert_rules"
VARIABLES = {
    "node": "gpu-042", "gpu": ".+", "index": "2", "run": "r",
    "job": "7", "rack": "r1", "switch": ".+", "other": "r", "jobs": ".*", "other_jobs": ".*",
    "arrange": "number", "slowed": ".+",
    "points": "600", "mfu": "pyrometer_train_batch_mfu_ratio", "steps": "pyrometer_train_batch_step",
    **builtin_variables(600),
}  # fmt: skip
WHAT = ("temperature", "clock", "power", "throttled", "ecc", "pcie", "links")
OWN = 'cluster="c1", node="gpu-042", instance="gpu-042:9935"'
# One node with GPUs, and nothing else: no ports, no training, no collectives, no health checks.
ONE_NODE = {
    **{
        name: values
        for name, values in healthy().items()
        if 'node="gpu-042"' in name and not re.search("_nic_|_train_|job_info", name)
    },
    f'pyrometer_exporter_build_info{{{OWN}, version="1"}}': "1x120",
    f'pyrometer_collector_success{{{OWN}, collector="gpu"}}': "1x120",
}
# It answered for eight minutes, and then no longer: before the time range, and so did its rates.
DIES = {
    name: "1x32 0x88" if name.startswith("up{") else values.replace("x120", "x32 stale")
    for name, values in ONE_NODE.items()
}
UNSEEN = {name: "0x120" for name in ONE_NODE if name.startswith("up{")}
# The fabric manager knows the cables, which says nothing of the links.
TOPOLOGY = {'pyrometer_fabric_port_info{cluster="c1", node="gpu-042", device="mlx5_2", port="1", rail="2"}': "1x120"}
# A node with GPUs whose clock events and clocks nobody counts.
UNCOUNTED = {name: values for name, values in ONE_NODE.items() if not re.search("clock_event|SM_CLOCK", name)}
# A node with GPUs whose kernel's log nobody reads.
UNLOGGED = {name: values for name, values in ONE_NODE.items() if "kernel_log" not in name}
# Each world is a cluster of its own, so that one run of the rules serves them all.
WORLDS = {
    "empty": {},
    "one_node": ONE_NODE,
    "dies": DIES,
    "unseen": UNSEEN,
    "unseen_fabric": {**UNSEEN, **TOPOLOGY},
    "uncounted": UNCOUNTED,
    "unlogged": UNLOGGED,
}
# Queries that a node without ports, training and collectives can't answer.
ELSEWHERE = re.compile(r"_nic_|_nic:|_train_|_nccl_|pyrometer_run_|_batch_|_slurm_|_fabric_")

Answers = dict[str, list[claims.Sample]]


def asked(board: Any, world: str) -> Iterator[tuple[Any, list[str]]]:
    """Every panel of a board with its queries, filled in: once for each quantity, if it asks for one."""
    for panel in finding.panels(board):
        plain = [target["expr"] for target in finding.targets(panel)]
        for what in WHAT if any("$what" in expr for expr in plain) else WHAT[:1]:
            exprs = [
                interpolate(expr, {**VARIABLES, "cluster": world, "clusters": world, "what": what}) for expr in plain
            ]
            if exprs:
                yield panel, exprs


def answers(folder: Path, boards: Mapping[str, Any]) -> Answers:
    """The answers of Prometheus' engine in every world after 20 minutes, without the empty ones."""
    inputs = [
        {"series": name.replace('cluster="c1"', f'cluster="{world}"'), "values": values}
        for world, series in WORLDS.items()
        for name, values in series.items()
    ]
    exprs = [expr for world in WORLDS for board in boards.values() for _, own in asked(board, world) for expr in own]
    tests = [gives(expr) for expr in dict.fromkeys(exprs)]
    whole = {
        "rule_files": [str(path) for path in sorted(RULES.glob("*.rules.yaml"))],
        "evaluation_interval": "1m",
        "tests": [{"interval": "15s", "input_series": inputs, "promql_expr_test": tests}],
    }
    path = folder / "worlds.yaml"
    path.write_text(yaml.safe_dump(whole, width=1_000_000))
    return dict(_answer(each) for each in _FAILED.finditer(objections(find_stack().promtool, "test", "rules", path)))


_FAILED = re.compile(
    r'expr: ("(?:[^"\\]|\\.)*"), time: 20m,?\s+exp:\s*\S+\s+got:\s*(.*?)\s*(?=\n\s*expr: |\n\n|\Z)', re.DOTALL
)
_SAMPLE = re.compile(r"(?:[\w:]*\{((?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\}|[\w:]+) (\S+?)(?:,\s|$)")
_LABEL = re.compile(r'([\w:]+)="((?:[^"\\]|\\.)*)"')


def _answer(found: re.Match[str]) -> tuple[str, list[claims.Sample]]:
    read = [(dict(_LABEL.findall(each[1] or "")), float(each[2])) for each in _SAMPLE.finditer(found[2])]
    return json.loads(found[1]), read


def said(board: Any, world: str, answered: Answers) -> set[str]:
    """The panels of a board that say that all is well, with their words, on Prometheus and on VictoriaMetrics."""
    found = set()
    for panel, exprs in asked(board, world):
        samples = [answered.get(expr, []) for expr in exprs]
        # VictoriaMetrics leaves out what is not a number.
        numbers = [[(labels, value) for labels, value in each if not math.isnan(value)] for each in samples]
        for words in (*claims.claims(panel, samples), *claims.claims(panel, numbers)):
            found.add(f"{panel['title']}: {words}")
    return found


@pytest.fixture(scope="module")
def boards() -> dict[str, Any]:
    return {name: json.loads(text) for name, text in rendered().items()}


@pytest.fixture(scope="module")
def answered(boards: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return answers(tmp_path_factory.mktemp("worlds"), {**boards, **PLANTED})


def everything(boards: Mapping[str, Any], world: str, answered: Answers) -> set[str]:
    return {each for board in boards.values() for each in said(board, world, answered)}


@pytest.mark.parametrize("world", ["empty", "dies", "unseen", "unseen_fabric"])
def test_no_panel_says_that_all_is_well_where_nothing_answers(
    world: str, boards: dict[str, Any], answered: Answers
) -> None:
    assert everything(boards, world, answered) == set()


def test_one_node_says_it_only_of_what_it_has(boards: dict[str, Any], answered: Answers) -> None:
    unseen = [
        f"{panel['title']}: {words}"
        for board in boards.values()
        for panel, exprs in asked(board, "one_node")
        for words in claims.claims(panel, [answered.get(expr, []) for expr in exprs])
        if all(ELSEWHERE.search(expr) for expr in exprs)
    ]
    assert unseen == []


def test_the_quantities_that_are_asked_for_are_all_of_the_map(boards: dict[str, Any]) -> None:
    (variable,) = [each for each in boards["gpu-matrix.json"]["templating"]["list"] if each["name"] == "what"]
    assert tuple(each["value"] for each in variable["options"]) == WHAT


def test_a_quantity_that_nobody_measures_is_not_well(boards: dict[str, Any], answered: Answers) -> None:
    measured = {
        what
        for panel, exprs in asked(boards["gpu-matrix.json"], "one_node")
        for what in WHAT
        if panel["title"] == "Worst 12" and f'what="{what}"' in exprs[0]
        if claims.claims(panel, [answered.get(expr, []) for expr in exprs])
    }
    assert measured == {"temperature", "clock", "throttled"}


def test_gpus_that_answer_prove_nothing_of_clocks_that_nobody_counts(boards: dict[str, Any], answered: Answers) -> None:
    assert said(boards["throttling.json"], "uncounted", answered) == set()


def test_gpus_that_answer_prove_nothing_of_a_log_that_nobody_reads(boards: dict[str, Any], answered: Answers) -> None:
    of_the_log = {"GPUs that fail again: none", "Xids by code: none", "Xids in the range: none reported"}
    assert everything(boards, "unlogged", answered) & of_the_log == set()
    assert of_the_log <= everything(boards, "one_node", answered)


def test_where_somebody_looked_it_is_said(boards: dict[str, Any], answered: Answers) -> None:
    assert {
        "GPUs without data: none missing",
        "GPUs furthest from their rail: none",
        "Xids in the range: none reported",
        "Firing now, with the part that is meant: nothing fires",
        "Targets that don't answer: all answer",
    } <= everything(boards, "one_node", answered)


def _planted(words: str, expr: str, looked: str = "") -> dict[str, Any]:
    reading = Reading("GPUs that are lost.", "none.", "Look at them.")
    healthy_words = proof.Healthy(words, looked) if looked else None
    panel = panels.table(
        "Lost", reading, expr, {"node": "node", "Value": "lost"},
        no_value=words if not looked else "no data", healthy=healthy_words,
    )  # fmt: skip
    board: dict[str, Any] = json.loads(grafana_json.to_json(Board("u", "T", "?", [Row([panel])])))
    return board


LOST = 'pyrometer_nic_up{cluster="$cluster"} == 0'


# One that takes an empty answer for health, and one whose proof proves nothing.
PLANTED = {"empty": _planted("none lost", LOST), "dies": _planted("none lost", LOST, "vector(1)")}


@pytest.mark.parametrize("world", PLANTED)
def test_a_planted_claim_is_found(world: str, answered: Answers) -> None:
    assert said(PLANTED[world], world, answered) == {"Lost: none lost"}


def test_a_text_for_no_data_that_claims_health_is_a_finding() -> None:
    found = claims.check("b.json", _planted("none lost", LOST), LintContext(frozenset(), frozenset(), {}))
    assert [each.problem for each in found] == ["without data it says 'none lost'"]
    assert not list(claims.check("b.json", _planted("none", LOST, "up"), LintContext(frozenset(), frozenset(), {})))
