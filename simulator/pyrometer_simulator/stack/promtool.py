"""Tests of rules by a real promtool."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pyrometer_simulator.yaml_loader import LOADER, TEXTS

# promtool allocates far more than it keeps and waits for nothing: with fewer garbage collections, on one thread, its
# tests of rules need 8 % less CPU, and leave the other cores to their neighbours.
_FRUGAL = {"GOGC": "400", "GOMAXPROCS": "1"}
_NAME = re.compile(r"[A-Za-z_:][\w:]*")

Group = dict[str, Any]


def objections(promtool: Path, *arguments: str | Path) -> str:
    """Run promtool with these arguments and return its complaints; empty where there are none."""
    command = [str(promtool), *map(str, arguments)]
    answer = subprocess.run(command, env=_FRUGAL | os.environ, capture_output=True, text=True, check=False)
    return "" if answer.returncode == 0 else answer.stderr or answer.stdout or f"status {answer.returncode}"


@cache
def groups_of(path: Path) -> Sequence[Group]:
    """Return the groups of a rule file, read once."""
    return tuple(yaml.load(path.read_text(encoding="utf-8"), LOADER)["groups"])  # noqa: S506  a safe one


def rules_of(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the rules of all groups of rule files, in their order."""
    return [rule for path in paths for group in groups_of(path) for rule in group["rules"]]


def that_answer(groups: Iterable[Group], questions: Iterable[str]) -> list[Group]:
    """Return the groups without the rules that can't change the answers; promtool evaluates all that it is given.

    Args:
        groups: of rules, in the order of their evaluation.
        questions: expressions, and the names of alerts.

    Returns:
        The rules that a question names, and those that such a rule names, over any number of rules.
    """
    groups = list(groups)
    rules = [rule for group in groups for rule in group["rules"]]
    words = {id(rule): _words(rule["expr"], *rule.get("annotations", {}).values()) for rule in rules}
    named, kept = _words(*questions), set[int]()
    # A selector without a name reads whatever matches.
    while more := [rule for rule in rules if id(rule) not in kept and (_is_named(rule, named) or "__name__" in named)]:
        kept |= {id(rule) for rule in more}
        named |= {word for rule in more for word in words[id(rule)]}
    pruned = [group | {"rules": [rule for rule in group["rules"] if id(rule) in kept]} for group in groups]
    return [group for group in pruned if group["rules"]]


def evaluation_order(stated: Sequence[str], groups: Iterable[Group]) -> list[str]:
    """Return all groups' names for `group_eval_order`: those that a test states, then the others as they are listed.

    promtool evaluates groups that are not named there in an order drawn by chance (Go's map), so that a record of one
    may reach another in the same round or in the next.
    """
    names = [group["name"] for group in groups]
    first = [name for name in stated if name in names]
    return first + [name for name in names if name not in first]


def one_by_one(path: Path, folder: Path) -> Iterator[Path]:
    """Write each test of a file into its own, with the rules that it asks about: promtool evaluates all it is given.

    Args:
        path: the tests, for ``promtool test rules``.
        folder: an empty one.
    """
    text = path.read_text(encoding="utf-8")
    whole = yaml.load(text, LOADER)  # noqa: S506  a safe one
    groups = [group for file in whole["rule_files"] for group in groups_of((path.parent / file).resolve())]
    for number, test in enumerate(yaml.load(text, TEXTS)["tests"]):  # noqa: S506  texts alone
        alerts = [check["alertname"] for check in test.get("alert_rule_test", [])]
        asked = test.get("promql_expr_test", [])
        needed = that_answer(groups, [*alerts, *(check["expr"] for check in asked)])
        for sample in (sample for check in asked for sample in check["exp_samples"]):
            sample["value"] = float(sample["value"])
        order = evaluation_order(whole.get("group_eval_order", []), needed)
        own = {**whole, "rule_files": [f"{number}.rules.yaml"], "group_eval_order": order, "tests": [test]}
        (folder / f"{number}.rules.yaml").write_text(json.dumps({"groups": needed}), encoding="utf-8")
        file = folder / f"{number}.test.yaml"
        file.write_text(json.dumps(own), encoding="utf-8")
        yield file


def _is_named(rule: dict[str, Any], named: set[str]) -> bool:
    if "record" in rule:
        return rule["record"] in named
    return rule["alert"] in named or not named.isdisjoint({"ALERTS", "ALERTS_FOR_STATE"})


def _words(*texts: str) -> set[str]:
    return {word for text in texts for word in _NAME.findall(text)}
