"""Split rule groups that take too long: each shard is the same group for some of the nodes, or some of the runs.

A shard's selectors have one matcher more. Whatever a rule asks for, the shards together say what the group said: an
expression is split only where each of its values comes from series of one node (or one run), and what it compares them
with is either of the same node, or read whole. A series without the label belongs to the last shard, as does every node
that none of the others names. Where only some rules of a group can be split, the others stay whole, in groups of their
own (rule_stages.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyrometer_dashboards.promql import Expression, parse
from pyrometer_dashboards.rule_stages import ANCHOR, EXPR, NotSplitError, Rule, rules_of, staged

_SETS = ("and", "unless")
_WHOLE = ("absent", "absent_over_time", "scalar")
_RENAMES = ("label_replace", "label_join")
_GROUP = re.compile(r"(?m)^  - name: (\S+)\n")


@dataclass(frozen=True)
class Shards:
    """The label by whose values groups are split, and the matchers of each shard."""

    label: str
    matchers: tuple[str, ...]


def by_patterns(label: str, patterns: Sequence[str], *, apart: bool = False) -> Shards:
    """Return shards for values that match the patterns, and one for all others.

    Args:
        label: whose values are meant.
        patterns: regular expressions of whole values, one for each shard but the last.
        apart: whether no value matches two of them; else it belongs to the first.
    """
    matchers = []
    for number, pattern in enumerate(patterns):
        before = "" if apart or not number else f", {label}!~{_quoted('|'.join(patterns[:number]))}"
        matchers.append(f"{label}=~{_quoted(pattern)}{before}")
    return Shards(label, (*matchers, f"{label}!~{_quoted('|'.join(patterns))}"))


def by_racks(racks: Mapping[str, Collection[str]], count: int) -> Shards:
    """Return shards of whole racks, about equally many nodes each; the last one has every other node as well."""
    ordered = [sorted(racks[rack]) for rack in sorted(racks)]
    whole, done = sum(map(len, ordered)), 0
    shards: list[list[str]] = [[] for _ in range(count)]
    for nodes in ordered:
        shards[min(count - 1, done * count // max(1, whole))] += nodes
        done += len(nodes)
    return by_patterns("node", [pattern_of(nodes) for nodes in shards[:-1] if nodes], apart=True)


def pattern_of(values: Collection[str]) -> str:
    """Return a regular expression that matches these values only: ``gpu-00[0-3]`` for four of them."""
    if set(values) == {""}:
        return ""
    rest: dict[str, set[str]] = {}
    for value in values:
        if value:
            rest.setdefault(value[0], set()).add(value[1:])
    alike: dict[str, str] = {}
    for first in sorted(rest):
        tail = pattern_of(rest[first])
        alike[tail] = alike.get(tail, "") + first
    pieces = [_one_of(firsts) + tail for tail, firsts in alike.items()]
    joined = pieces[0] if len(pieces) == 1 and "" not in values else f"({'|'.join(pieces)})"
    return f"{joined}?" if "" in values else joined


def _one_of(characters: str) -> str:
    if len(characters) == 1:
        return f"\\{characters}" if characters in ".+*?()|[]{}^$\\" else characters
    if len(characters) > 2 and characters.isalnum() and ord(characters[-1]) - ord(characters[0]) == len(characters) - 1:
        return f"[{characters[0]}-{characters[-1]}]"
    escaped = ["\\" + character if character in "-]^\\" else character for character in characters]
    return f"[{''.join(escaped)}]"


def _quoted(pattern: str) -> str:
    """Return the text as a string of PromQL."""
    escaped = pattern.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def choose(texts: Mapping[str, str], names: Collection[str], ways: Sequence[Shards]) -> dict[str, Shards]:
    """Return the best of the ways for each named group.

    Raises:
        NotSplitError: there is no such group, or none of the ways is possible.
    """
    groups_by_name = _groups(texts)
    for name in names:
        if name not in groups_by_name:
            raise NotSplitError(f"there is no group {name}")
    return {name: best_way(name, groups_by_name[name], ways) for name in names}


def staged_groups(texts: Mapping[str, str], chosen: Mapping[str, Shards]) -> Iterator[str]:
    """Yield a line for each chosen group that becomes several stages, with the first rule that stays whole.

    Raises:
        NotSplitError: one of them can't be split so.
    """
    groups_by_name = _groups(texts)
    for name, shards in chosen.items():
        _, rules = _rules(name, groups_by_name[name], shards.label)
        stages, whole = staged(name, rules), [rule for rule in rules if rule.why_whole]
        why = f"; {len(whole)} of its rules stay whole, as {whole[0].name}: {whole[0].why_whole}" if whole else ""
        if len(stages) > 1:
            yield f"{name}: {len(stages)} stages, each up to an interval behind the one before it{why}"


def _groups(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the text of each group of all rule files, by name."""
    return {name: group for text in texts.values() for name, group in groups_of(text)}


def best_way(name: str, group: str, ways: Sequence[Shards]) -> Shards:
    """Return the way that leaves the fewest rules of a group whole, the first of several.

    Raises:
        NotSplitError: every rule stays whole in each of them.
    """
    refused, possible = [], []
    for shards in ways:
        try:
            possible.append((len(whole_rules(name, group, shards.label)), shards))
        except NotSplitError as error:
            refused.append(str(error))
    if not possible:
        raise NotSplitError("; ".join(refused))
    return min(possible, key=lambda way: way[0])[1]


def whole_rules(name: str, group: str, label: str) -> list[Rule]:
    """Return the rules of a group that stay whole where it is split by a label.

    Raises:
        NotSplitError: all do, or the group can't be taken apart.
    """
    _, rules = _rules(name, group, label)
    staged(name, rules)
    return [rule for rule in rules if rule.why_whole]


def split(text: str, groups: Mapping[str, Shards]) -> str:
    """Return a rule file whose named groups are split.

    Raises:
        NotSplitError: one of them can't be.
    """
    pieces = [_GROUP.split(text, maxsplit=1)[0]]
    for name, group in groups_of(text):
        parts = split_group(name, group, groups[name]) if name in groups else {name: group}
        pieces += parts.values()
    return "".join(pieces)


def groups_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each group of a rule file."""
    heads = list(_GROUP.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    for head, end in zip(heads, ends, strict=True):
        yield head[1], text[head.start() : end]


def split_group(name: str, group: str, shards: Shards) -> dict[str, str]:
    """Return the texts of the groups that a group becomes, by name: shards, and stages where some rules stay whole.

    They are in the order in which they read from each other.

    Raises:
        NotSplitError: it can't be split.
    """
    head, rules = _rules(name, group, shards.label)
    stages = staged(name, rules)
    texts: dict[str, str] = {}
    for number, stage in enumerate(stages, 1):
        stage_name = f"{name}_stage{number}" if len(stages) > 1 else name
        body = "".join([head, *(rule.text for rule in stage)]).rstrip() + "\n\n"
        for named, matcher in {stage_name: ""}.items() if stage[0].why_whole else _shards(stage_name, shards):
            renamed = body.replace(f"  - name: {name}\n", f"  - name: {named}\n", 1)
            restrict = partial(_restricted, label=shards.label, matcher=matcher)
            texts[named] = own_anchors(EXPR.sub(restrict, renamed) if matcher else renamed, len(texts) + 1)
    return texts


def _shards(name: str, shards: Shards) -> Iterator[tuple[str, str]]:
    """Yield name and matcher of each shard."""
    for number, matcher in enumerate(shards.matchers, 1):
        yield f"{name}_{number}_of_{len(shards.matchers)}", matcher


def own_anchors(group: str, number: int) -> str:
    """Return a group whose anchors are its own: a name is an anchor once in a file."""
    anchors = set(ANCHOR.findall(group))

    def renamed(match: re.Match[str]) -> str:
        return f"{match[0]}_{number}" if match[1] in anchors else match[0]

    return re.sub(r"(?m)^ +\w+: [&*](\w+)", renamed, group)


def _restricted(match: re.Match[str], label: str, matcher: str) -> str:
    """Return an `expr:` whose selectors have the matcher too."""
    indent, block, inline = match.groups()
    if block is None:
        return f"{indent}expr: |\n{indent}  {restricted(inline, label, matcher)}\n"
    return f"{indent}expr: |\n{restricted(block, label, matcher)}"


def restricted(expr: str, label: str, matcher: str) -> str:
    """Return an expression with a matcher at each selector that can be read in part.

    Raises:
        NotSplitError: its values are of several nodes.
    """
    for end in sorted(set(_of_one(parse(expr), label) or ()), reverse=True):
        named = expr[end - 1] == "}"
        before = expr[: end - 1].rstrip() if named else expr[:end]
        comma = "" if before.endswith(("{", ",")) else ", "
        expr = f"{before}{comma}{matcher}}}{expr[end:]}" if named else f"{before}{{{matcher}}}{expr[end:]}"
    return expr


def _rules(group_name: str, group: str, label: str) -> tuple[str, list[Rule]]:
    """Return a group's lines above its rules, and the rules, each with why it can't be split by a label.

    Raises:
        NotSplitError: none can.
    """
    head, unjudged = rules_of(group_name, group)
    rules = [_judged(rule, label) for rule in unjudged]
    if all(rule.why_whole for rule in rules):
        raise NotSplitError(f"{group_name}: {rules[0].name}: {rules[0].why_whole}")
    return head, rules


def _judged(rule: Rule, label: str) -> Rule:
    if why := why_whole(rule.expr, label):
        return replace(rule, why_whole=why)
    tree = parse(rule.expr)
    in_part = set(_of_one(tree, label) or ())
    whole = {node.name for node, _ in tree.walk() if node.kind == "selector" and node.end not in in_part}
    return replace(rule, reads_whole=frozenset(whole))


def why_whole(expr: str, label: str) -> str:
    """Return why an expression can't be split by the values of a label; empty where it can."""
    try:
        kept = _of_one(parse(expr), label)
    except NotSplitError as error:
        return str(error)
    return "" if kept else f"it has one value for all {label}s"


def _of_one(node: Expression, label: str) -> list[int] | None:
    """Return the ends of the selectors that a shard reads in part; None where there is nothing to split.

    Raises:
        NotSplitError: a value would come from several shards.
    """
    if node.kind == "selector":
        return [node.end]
    if node.kind == "binary":
        return _of_both(node, label)
    if node.kind == "call" and node.name in _WHOLE:
        return None
    if node.kind == "call" and node.name in _RENAMES and node.parts[1].name == label:
        raise NotSplitError(f"{node.name}() makes {label}")
    together = _together(node.parts, label)
    if node.kind == "aggregation" and together and not _keeps_label(node, label):
        raise NotSplitError(f"{node.name} {node.grouping} ({', '.join(node.labels)}) loses {label}")
    return together or None


def _together(parts: Sequence[Expression], label: str) -> list[int]:
    return [end for part in parts for end in _of_one(part, label) or ()]


def _keeps_label(node: Expression, label: str) -> bool:
    if node.name == "count_values" and node.parts[0].name == label:
        return False
    return label not in node.labels if node.grouping == "without" else label in node.labels


def _of_both(node: Expression, label: str) -> list[int] | None:
    """Return the same of a binary expression: what is matched on other labels, and not kept, is read whole."""
    left, right = node.parts
    if node.name in _SETS:
        return _kept_with(left, right, node, label)
    for word, (many, single) in {"group_left": (left, right), "group_right": (right, left)}.items():
        if word in node.extra:
            if label in node.extra[word].split(","):
                raise NotSplitError(f"{node.name} {word} ({node.extra[word]}) takes {label} from the other side")
            return _kept_with(many, single, node, label)
    together = _together(node.parts, label)
    if together and not _is_matched(node, label):
        raise NotSplitError(f"{node.name} on ({node.extra.get('on')}) loses {label}")
    if node.name == "or" and not all(_of_one(part, label) for part in node.parts):
        raise NotSplitError(f"a side of its `or` is of no single {label}")
    return together or None


def _kept_with(kept: Expression, other: Expression, node: Expression, label: str) -> list[int] | None:
    """Return the ends of the side whose values are kept, and of the other one where it is matched on the label."""
    ends = _of_one(kept, label)
    if ends is None or not _is_matched(node, label):
        return ends
    try:
        return ends + (_of_one(other, label) or [])
    except NotSplitError:
        return ends  # read whole, it says the same


def _is_matched(node: Expression, label: str) -> bool:
    on, ignoring = node.extra.get("on"), node.extra.get("ignoring", "")
    return label in on.split(",") if on is not None else label not in ignoring.split(",")
