"""The profiles of the node exporter: each feeds the alerts and boards that it is for, and has nothing besides."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tools import metric_profiles
from tools.board_lint import finding
from tools.metrics_page import OWN_FAMILIES, metrics_page

from pyrometer_dashboards.main import rendered
from pyrometer_dashboards.promql import parse
from pyrometer_exporters import node
from pyrometer_exporters.framework.collector import discover
from pyrometer_exporters.framework.deprecation import DEPRECATED, NOTICE
from pyrometer_exporters.node import profiles
from pyrometer_exporters.node.main import PROFILES, left_out
from pyrometer_simulator.stack.promtool import rules_of

ROOT = Path(__file__).parents[3]
OURS = frozenset(family.name for spec in discover(node) for family in spec.families)


@cache
def _rules() -> tuple[dict[str, Any], ...]:
    return tuple(rules_of(sorted((ROOT / "alert_rules").glob("*.rules.yaml"))))


@cache
def _names(expr: str) -> frozenset[str]:
    return frozenset(part.name for part, _ in parse(expr).walk() if part.kind == "selector")


def needs(exprs: Iterable[str]) -> set[str]:
    """Return our metrics that expressions read, themselves or by the records that they read."""
    recorded: dict[str, set[str]] = {}
    for rule in _rules():
        if "record" in rule:
            recorded.setdefault(rule["record"], set()).update(_names(rule["expr"]))
    left, seen = {name for expr in exprs for name in _names(expr)}, set[str]()
    while left:
        seen |= left
        left = {name for one in left for name in recorded.get(one, ())} - seen
    return seen & OURS


def panels(board: str) -> Iterator[str]:
    for panel in finding.panels(json.loads(rendered()[board])):
        yield from (target["expr"] for target in finding.targets(panel))


ALERTS = {rule["alert"]: rule for rule in _rules() if "alert" in rule}


def test_the_committed_profiles_are_the_generated_ones() -> None:
    committed = Path(profiles.__file__).read_text(encoding="utf-8")
    assert committed == metric_profiles.module(), "run: make reference"


def test_a_profile_has_only_metrics_that_a_collector_registers_and_the_next_has_all_of_it() -> None:
    assert profiles.MINIMAL < profiles.STANDARD < OURS


@pytest.mark.parametrize("alert", ALERTS)
def test_minimal_feeds_every_alert_and_its_words(alert: str) -> None:
    rule = ALERTS[alert]
    texts = " ".join(rule["annotations"].values())
    asked = set(re.findall(r"\w+", texts)) & OURS
    assert needs([rule["expr"]]) | asked <= profiles.MINIMAL


def test_minimal_feeds_the_overview() -> None:
    assert needs(panels("overview.json")) <= profiles.MINIMAL


@pytest.mark.parametrize("board", rendered())
def test_standard_feeds_every_board_and_rule(board: str) -> None:
    assert needs([*panels(board), *(rule["expr"] for rule in _rules())]) <= profiles.STANDARD


def test_a_metric_that_is_missing_is_noticed() -> None:
    reduced = profiles.MINIMAL - {"pyrometer_gpu_up"}
    assert not needs([ALERTS["GpuLost"]["expr"]]) <= reduced


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("opted_in", [False, True])
def test_a_profile_leaves_out_the_rest_of_our_own_and_no_other(profile: str, opted_in: bool) -> None:
    absent = left_out(argparse.Namespace(**{"metrics.profile": profile, "metrics.deprecated": opted_in}))
    served = (PROFILES[profile] or OURS - DEPRECATED) | (DEPRECATED if opted_in else frozenset())
    assert absent == OURS - served
    assert absent.isdisjoint(family.name for family in OWN_FAMILIES)


def test_no_profile_has_a_deprecated_metric() -> None:
    assert OURS >= DEPRECATED
    assert profiles.STANDARD.isdisjoint(DEPRECATED)


def test_a_deprecated_metric_says_so_where_it_is_described() -> None:
    family = next(family for spec in discover(node) for family in spec.families if family.is_deprecated)
    assert family.full_help == f"{family.help} {NOTICE}"
    assert NOTICE in metrics_page()
