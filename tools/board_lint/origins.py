"""Labels that others add: expressions that match series of two origins by all of their labels.

A scrape adds labels to what it reads (`pod`, `prometheus_replica`), a group or a ruler to what rules record
(`namespace`, external labels), an aggregation leaves those that it names. Series of one origin have the same labels
added, and may be matched by all of them; those of two may not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyrometer_dashboards.promql import Expression

SCRAPED, NAMED = "scraped", "named"
_KEEP_ALL = ("topk", "bottomk", "limitk", "limit_ratio")
_WITHOUT_SERIES = ("absent", "absent_over_time", "vector", "time", "scalar", "pi")
_SETS = ("and", "unless")

Origins = frozenset[str]


def unnamed(tree: Expression, recorded_by: Mapping[str, str]) -> Iterator[str]:
    """Yield each operator that matches series of different origins without saying by which labels.

    Args:
        tree: of a rule.
        recorded_by: the group that records each name.
    """
    for node, _ in tree.walk():
        if node.kind == "binary" and "on" not in node.extra and not any(map(is_scalar, node.parts)):
            left, right = (origins(part, recorded_by) for part in node.parts)
            if len(left | right) > 1:
                yield f"{node.name} between {' and '.join(sorted(left | right))}"


def origins(node: Expression, recorded_by: Mapping[str, str]) -> Origins:
    """Return where the labels of a part's values are from: SCRAPED, NAMED, or the group that records them."""
    if node.kind == "selector":
        return frozenset((recorded_by.get(node.name, "ALERTS" if node.name.startswith("ALERTS") else SCRAPED),))
    if node.kind == "aggregation" and node.name not in _KEEP_ALL and node.grouping != "without":
        return frozenset((NAMED,))
    if node.kind == "binary" and not any(map(is_scalar, node.parts)):
        return _of_both(node, recorded_by)
    series = [part for part in node.parts if not is_scalar(part)]
    if not series or node.name in _WITHOUT_SERIES:
        return frozenset((NAMED,))
    return origins(series[-1], recorded_by)


def _of_both(node: Expression, recorded_by: Mapping[str, str]) -> Origins:
    left, right = (origins(part, recorded_by) for part in node.parts)
    if node.name in _SETS or "group_left" in node.extra:
        return left
    if "group_right" in node.extra:
        return right
    return frozenset((NAMED,)) if node.name != "or" and "on" in node.extra else left | right


def is_scalar(node: Expression) -> bool:
    """Return whether a part is a number or a text, and has no labels."""
    if node.kind in ("number", "string"):
        return True
    if node.kind == "call":
        return node.name in ("scalar", "time", "pi")
    return node.kind in ("parentheses", "binary") and all(map(is_scalar, node.parts))
