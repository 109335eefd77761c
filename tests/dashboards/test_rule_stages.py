"""Groups of which only some rules can be split: which stages they become, in which order, and what is refused."""

from __future__ import annotations

import pytest
import yaml

from pyrometer_dashboards.rule_shards import best_way, by_patterns, groups_of, split, split_group, staged_groups
from pyrometer_dashboards.rule_stages import NotSplitError, Rule, rules_of, staged

BY_NODE = by_patterns("node", ["a.*"])
FILE = """\
groups:
  - name: ports
    interval: 30s
    rules:
      # What the rail's sum is made of.
      - record: port:errors
        expr: max by (node, rail) (errors)
      - record: rail:errors
        expr: sum by (rail) (port:errors)

      - record: port:lost
        expr: max by (node, rail) (lost)
      - alert: RailLoses
        expr: |
          rail:errors > 3
          and on (rail) sum by (rail) (port:lost) > 0
        annotations: &words
          summary: "{{ $labels.rail }}"
      - alert: PortLoses
        expr: port:lost > on (rail) group_left () rail:errors
        annotations: &own
          summary: "{{ $labels.node }}"
"""


def rule(name: str, expr: str, why_whole: str = "") -> Rule:
    return Rule(name, f"      - record: {name}\n        expr: {expr}\n", expr, why_whole)


def named(stages: list[list[Rule]]) -> list[list[str]]:
    return [[each.name for each in stage] for stage in stages]


def groups() -> dict[str, str]:
    return dict(groups_of(split(FILE, {"ports": BY_NODE})))


def test_rules_that_need_all_nodes_stay_whole_between_the_shards_that_they_read_and_those_that_read_them() -> None:
    assert list(groups()) == [
        "ports_stage1_1_of_2", "ports_stage1_2_of_2", "ports_stage2", "ports_stage3_1_of_2", "ports_stage3_2_of_2",
    ]  # fmt: skip
    assert list(groups()) == list(split_group("ports", next(group for _, group in groups_of(FILE)), BY_NODE))


def test_each_rule_is_in_one_stage_with_its_comments_and_the_groups_interval() -> None:
    loaded = yaml.safe_load(split(FILE, {"ports": BY_NODE}))["groups"]
    assert {group["interval"] for group in loaded} == {"30s"}
    rules = {group["name"]: [each.get("record", each.get("alert")) for each in group["rules"]] for group in loaded}
    assert rules["ports_stage1_2_of_2"] == ["port:errors", "port:lost"]
    assert rules["ports_stage2"] == ["rail:errors"]
    assert rules["ports_stage3_1_of_2"] == ["RailLoses", "PortLoses"]
    assert "# What the rail's sum is made of." in groups()["ports_stage1_1_of_2"]


def test_only_what_is_split_reads_a_part_of_the_nodes() -> None:
    found = groups()
    assert 'max by (node, rail) (errors{node=~"a.*"})' in found["ports_stage1_1_of_2"]
    assert 'port:lost{node!~"a.*"} > on (rail) group_left () rail:errors\n' in found["ports_stage3_2_of_2"]
    assert "node" not in found["ports_stage2"]


def test_stages_are_as_few_as_can_be() -> None:
    rules = [rule("w1", "sum(x)", "whole"), rule("s1", "x"), rule("w2", "sum(s1)", "whole"), rule("s2", "y")]
    assert named(staged("g", rules)) == [["s1", "s2"], ["w1", "w2"]]


def test_a_rule_waits_for_what_it_reads_through_others() -> None:
    rules = [rule("s1", "x"), rule("w1", "sum(s1)", "whole"), rule("s2", "x / on () w1"), rule("s3", "s2 + x")]
    assert named(staged("g", rules)) == [["s1"], ["w1"], ["s2", "s3"]]


def test_a_rule_that_reads_what_one_below_it_recorded_before_stays_above_it() -> None:
    rules = [rule("w1", "sum(s1)", "whole"), rule("s1", "x")]
    assert named(staged("g", rules)) == [["w1"], ["s1"]]


def test_a_selector_without_a_name_waits_for_everything_above_it() -> None:
    rules = [rule("s1", "x"), rule("w1", "sum(x)", "whole"), rule("s2", '{job="node"}')]
    assert named(staged("g", rules)) == [["w1"], ["s1", "s2"]]


def test_rules_of_one_kind_are_one_stage_in_their_order() -> None:
    rules = [rule("s2", "s1"), rule("s1", "x")]
    assert named(staged("g", rules)) == [["s2", "s1"]]


def test_text_that_a_rule_takes_from_a_rule_of_another_stage_is_refused() -> None:
    shared = FILE.replace("(port:errors)\n", "(port:errors)\n        labels: &kind {kind: all}\n")
    shared = shared.replace("(lost)\n", "(lost)\n        labels: *kind\n")
    with pytest.raises(NotSplitError, match=r"ports: port:errors and others use \*kind of other rules"):
        split(shared, {"ports": BY_NODE})


def test_rules_that_are_written_otherwise_are_refused() -> None:
    with pytest.raises(NotSplitError, match="g: its rules are not written as ours are"):
        rules_of("g", "  - name: g\n    rules:\n    - record: r\n      expr: up\n")


def test_the_way_that_leaves_the_fewest_rules_whole_is_chosen() -> None:
    (group,) = (text for _, text in groups_of(FILE))
    by_rail, by_run = by_patterns("rail", ["1"]), by_patterns("run", ["a"])
    assert best_way("ports", group, [by_run, BY_NODE, by_rail]) is by_rail
    assert best_way("ports", group, [BY_NODE, by_run]) is BY_NODE


def test_a_shard_waits_for_what_it_reads_of_all_nodes() -> None:
    """Only the last shard records the cluster's limit: in the same stage, the others would read an old one."""
    text = FILE[: FILE.index("      # What the rail")] + (
        "      - record: cluster:limit\n        expr: limit * 2\n"
        "      - alert: TooMuch\n        expr: load > on (cluster) group_left () cluster:limit\n"
        "      - alert: Loaded\n        expr: load > 1\n"
    )
    stages = yaml.safe_load(split(text, {"ports": BY_NODE}))["groups"]
    assert [len(each["rules"]) for each in stages] == [2, 2, 1, 1]
    assert stages[1]["name"] == "ports_stage1_2_of_2"
    assert stages[2]["rules"][0]["alert"] == "TooMuch"


def test_the_command_says_which_groups_become_stages_and_what_stays_whole() -> None:
    texts = {"x.rules.yaml": FILE}
    (line,) = staged_groups(texts, {"ports": BY_NODE})
    assert line == (
        "ports: 3 stages, each up to an interval behind the one before it; 1 of its rules stay whole, as rail:errors: "
        "sum by (rail) loses node"
    )
    assert list(staged_groups(texts, {"ports": by_patterns("rail", ["1"])})) == []
