"""Stages of a rule group that is split in part: its rules of single nodes, and those that need all nodes.

Each stage is a group of its own, and reads what the stages before it have recorded. Prometheus evaluates groups at
moments of their own, so a stage may see what an earlier one recorded up to an interval ago.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from pyrometer_dashboards.promql import parse

EXPR = re.compile(r"(?m)^( +)expr: (?:\|\n((?:(?:\1 +\S.*)?\n)+)|(\S.*)\n)")
_RULE = re.compile(r"(?m)(?:^ *(?:#.*)?\n)*^      - (?:alert|record): ")
_NAME = re.compile(r"- (?:alert|record): (\S+)")
ANCHOR, _ALIAS = re.compile(r"(?m)^ +\w+: &(\w+)"), re.compile(r"(?m)^ +\w+: \*(\w+)")


class NotSplitError(Exception):
    """Name, in the message, the rule for which a group can't be split, and the reason."""


@dataclass(frozen=True)
class Rule:
    """Hold a rule of a group.

    Attributes:
        name: what it records, or its alert.
        text: its lines, with the comments above it.
        expr: its expression.
        why_whole: why it can't be split; empty where it can.
        reads_whole: what each of its shards reads of all nodes.
    """

    name: str
    text: str
    expr: str
    why_whole: str = ""
    reads_whole: frozenset[str] = frozenset()

    @cached_property
    def selected(self) -> frozenset[str]:
        """Return the names of its selectors; one is empty where a selector has no name."""
        return frozenset(node.name for node, _ in parse(self.expr).walk() if node.kind == "selector")

    def reads(self, record: str) -> bool:
        """Return whether it reads a record; a selector without a name may read any."""
        return record in self.selected or "" in self.selected


def rules_of(group_name: str, group: str) -> tuple[str, list[Rule]]:
    """Return a group's lines above its rules, and its rules.

    Raises:
        NotSplitError: they are not written as this project writes rules.
    """
    starts = [match.start() for match in _RULE.finditer(group)]
    pieces = [group[start:end] for start, end in pairwise([*starts, len(group)])]
    rules = [rule for rule in map(_rule, pieces) if rule]
    if not rules or len(rules) != len(_NAME.findall(group)):
        raise NotSplitError(f"{group_name}: its rules are not written as ours are")
    return group[: starts[0]], rules


def _rule(text: str) -> Rule | None:
    exprs = [block or inline for _, block, inline in EXPR.findall(text)]
    if len(exprs) != 1 or exprs[0][0] in "&*'\"":  # an anchor, an alias, a string
        return None
    return Rule(_NAME.findall(text)[0], text, exprs[0])


def staged(group_name: str, rules: Sequence[Rule]) -> list[list[Rule]]:
    """Return the rules in stages, the rules of each either all split or all whole; as few as can be.

    Rules of which one reads what the other records stay in their order.

    Raises:
        NotSplitError: a stage uses text that another one defines.
    """
    stages = min((_stages(rules, split) for split in (True, False)), key=len)
    for stage in stages if len(stages) > 1 else []:
        text = "".join(rule.text for rule in stage)
        if foreign := set(_ALIAS.findall(text)) - set(ANCHOR.findall(text)):
            raise NotSplitError(f"{group_name}: {stage[0].name} and others use *{min(foreign)} of other rules")
    return stages


def _stages(rules: Sequence[Rule], split: bool) -> list[list[Rule]]:
    left, stages = list(rules), []
    while left:
        stage: list[Rule] = []
        later: list[Rule] = []
        for rule in left:
            ready = (rule.why_whole == "") is split and not any(_ordered(earlier, rule) for earlier in later)
            # A shard has what it recorded itself, and not what the others did.
            ready = ready and not (split and any(earlier.name in rule.reads_whole for earlier in stage))
            (stage if ready else later).append(rule)
        stages += [stage] if stage else []
        left, split = later, not split
    return stages


def _ordered(first: Rule, second: Rule) -> bool:
    """Return whether one rule reads what the other records, so that both keep their order.

    A rule above the one that records gets the value of the evaluation before.
    """
    return first.reads(second.name) or second.reads(first.name)
