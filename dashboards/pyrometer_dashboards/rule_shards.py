"""Split rule groups that take too long: each shard is the same group for some of the nodes, or some of the runs.

A shard's selectors have one matcher more. Whatever a rule asks for, the shards together say what the group said: an
expression is split only where each of its values comes from series of one node (or one run), and what it compares them
with is either of the same node, or read whole. A series without the label belongs to the last shard, as does every node
that none of the others names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyrometer_dashboards.lint.promql import Expression, parse

_SETS = ("and", "unless")
_WHOLE = ("absent", "absent_over_time", "scalar")
_RENAMES = ("label_replace", "label_join")
_GROUP = re.compile(r"(?m)^  - name: (\S+)\n")
_EXPR = re.compile(r"(?m)^( +)expr: (?:\|\n((?:(?:\1 +\S.*)?\n)+)|(\S.*)\n)")
_NAME = re.compile(r"- (?:alert|record): (\S+)")


class NotSplitError(Exception):
    """A group can't be split; the message says which rule is in the way, and why."""


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
    found = []
    for number, pattern in enumerate(patterns):
        before = "" if apart or not number else f", {label}!~{_quoted('|'.join(patterns[:number]))}"
        found.append(f"{label}=~{_quoted(pattern)}{before}")
    return Shards(label, (*found, f"{label}!~{_quoted('|'.join(patterns))}"))


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
    escaped = ["\\" + each if each in "-]^\\" else each for each in characters]
    return f"[{''.join(escaped)}]"


def _quoted(pattern: str) -> str:
    """Return the text as a string of PromQL."""
    escaped = pattern.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def split_all(texts: Mapping[str, str], names: Collection[str], ways: Sequence[Shards]) -> dict[str, str]:
    """Return rule files by name whose named groups are split, each in the first of the ways that it can be.

    Raises:
        NotSplitError: there is no such group, or none of the ways is possible.
    """
    known = {name: group for text in texts.values() for name, group in groups_of(text)}
    for name in names:
        if name not in known:
            raise NotSplitError(f"there is no group {name}")
    chosen = {name: _way(name, known[name], ways) for name in names}
    return {file: split(text, chosen) for file, text in texts.items()}


def _way(name: str, group: str, ways: Sequence[Shards]) -> Shards:
    refused = []
    for shards in ways:
        try:
            check(name, group, shards.label)
        except NotSplitError as error:
            refused.append(str(error))
        else:
            return shards
    raise NotSplitError("; ".join(refused))


def split(text: str, groups: Mapping[str, Shards]) -> str:
    """Return a rule file whose named groups are split.

    Raises:
        NotSplitError: one of them can't be.
    """
    pieces = [_GROUP.split(text, maxsplit=1)[0]]
    for name, group in groups_of(text):
        pieces += _shards(group, name, groups[name]) if name in groups else [group]
    return "".join(pieces)


def groups_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each group of a rule file."""
    found = list(_GROUP.finditer(text))
    ends = [*(each.start() for each in found[1:]), len(text)]
    for each, end in zip(found, ends, strict=True):
        yield each[1], text[each.start() : end]


def shard_names(name: str, shards: Shards) -> list[str]:
    """Return the names of a group's shards."""
    count = len(shards.matchers)
    return [f"{name}_{number}_of_{count}" for number in range(1, count + 1)]


def _shards(group: str, name: str, shards: Shards) -> list[str]:
    check(name, group, shards.label)
    body = group if group.endswith("\n\n") else f"{group.rstrip()}\n\n"
    pieces: list[str] = []
    for own, matcher in zip(shard_names(name, shards), shards.matchers, strict=True):
        renamed = _own_anchors(body.replace(f"  - name: {name}\n", f"  - name: {own}\n", 1), len(pieces) + 1)
        pieces.append(_EXPR.sub(partial(_restricted, label=shards.label, matcher=matcher), renamed))
    return pieces


def _own_anchors(group: str, number: int) -> str:
    """Return a group whose anchors are its own: a name is an anchor once in a file."""
    anchors = set(re.findall(r"(?m)^ +\w+: &(\w+)", group))

    def own(found: re.Match[str]) -> str:
        return f"{found[0]}_{number}" if found[1] in anchors else found[0]

    return re.sub(r"(?m)^ +\w+: [&*](\w+)", own, group)


def _restricted(found: re.Match[str], label: str, matcher: str) -> str:
    """Return an `expr:` whose selectors have the matcher too."""
    indent, block, inline = found.groups()
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


def check(group_name: str, group: str, label: str) -> None:
    """Let a group pass that can be split by the values of a label.

    Raises:
        NotSplitError: a rule is in the way.
    """
    names = _NAME.findall(group)
    exprs = [block or inline for _, block, inline in _EXPR.findall(group)]
    if len(exprs) != len(names) or any(expr[0] in "&*'\"" for expr in exprs):  # an anchor, an alias, a string
        raise NotSplitError(f"{group_name}: its rules are not written as ours are")
    for name, expr in zip(names, exprs, strict=True):
        try:
            kept = _of_one(parse(expr), label)
        except NotSplitError as error:
            raise NotSplitError(f"{group_name}: {name}: {error}") from None
        if not kept:
            raise NotSplitError(f"{group_name}: {name}: it has one value for all {label}s")


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
    found = _together(node.parts, label)
    if node.kind == "aggregation" and found and not _keeps_label(node, label):
        raise NotSplitError(f"{node.name} {node.grouping} ({', '.join(node.labels)}) loses {label}")
    return found or None


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
    for word, (many, one) in {"group_left": (left, right), "group_right": (right, left)}.items():
        if word in node.extra:
            if label in node.extra[word].split(","):
                raise NotSplitError(f"{node.name} {word} ({node.extra[word]}) takes {label} from the other side")
            return _kept_with(many, one, node, label)
    found = _together(node.parts, label)
    if found and not _is_matched(node, label):
        raise NotSplitError(f"{node.name} on ({node.extra.get('on')}) loses {label}")
    if node.name == "or" and not all(_of_one(part, label) for part in node.parts):
        raise NotSplitError(f"a side of its `or` is of no single {label}")
    return found or None


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
