"""Clusters kept apart: expressions in which equal names of two clusters would become one."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pyrometer_dashboards.promql import Expression

LABEL = "cluster"
# Its value where a node is looked for by name (node:pyrometer_node:alias), until it is the label again.
_BESIDE = "of_cluster"
_LOSES = ("absent", "absent_over_time", "scalar")
_RENAMES = ("label_replace", "label_join")


def mixing(tree: Expression, constants: Collection[str] = ()) -> Iterator[str]:
    """Yield each aggregation, matching and function that drops the cluster.

    Args:
        tree: of a rule, or of a query that reads several clusters.
        constants: names of series that are the same for every cluster and have no label of it.
    """
    for node, _ in tree.walk():
        if node.kind == "aggregation" and not _of_one(node, constants) and _drops(node):
            labels = ", ".join(node.labels)
            yield f"{node.name} {node.grouping} ({labels})" if node.grouping else f"{node.name} of everything"
        if node.kind == "binary" and not any(_of_one(part, constants) for part in node.parts):
            on, ignoring = (node.extra.get(word) for word in ("on", "ignoring"))
            if on is not None and LABEL not in on.split(","):
                yield f"{node.name} on ({on})"
            if ignoring is not None and LABEL in ignoring.split(","):
                yield f"{node.name} ignoring ({ignoring})"
        if node.kind == "call" and node.name in _LOSES and not _of_one(node, constants):
            yield f"{node.name}()"
        if node.kind == "call" and node.name in _RENAMES and node.parts[1].name == LABEL and not _is_brought(node):
            yield f"{node.name}() of the cluster"


def _drops(node: Expression) -> bool:
    return LABEL in node.labels if node.grouping == "without" else not {LABEL, _BESIDE} & set(node.labels)


def _is_brought(node: Expression) -> bool:
    return [part.name for part in node.parts[2:]] == ["$1", _BESIDE, "(.*)"]


def _of_one(node: Expression, constants: Collection[str]) -> bool:
    """Return whether all that is read is of one chosen cluster, or the same in all."""
    selectors = [each for each, _ in node.walk() if each.kind == "selector"]
    return all(each.name in constants or _chosen(each) for each in selectors)


def _chosen(selector: Expression) -> bool:
    return any(label == LABEL and operator == "=" for label, operator, _ in selector.matchers)


def unchosen(tree: Expression) -> Iterator[Expression]:
    """Yield the selectors that read more than one cluster, and are not matched with series of a chosen one."""
    for node, under in tree.walk():
        if node.kind == "selector" and not _chosen(node) and not any(map(_matched, under)):
            yield node


def _matched(node: Expression) -> bool:
    on = (node.extra.get("on") or "").split(",")
    return node.kind == "binary" and node.name != "or" and LABEL in on and any(_of_one(part, ()) for part in node.parts)
