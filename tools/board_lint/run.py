"""Run all checks over some boards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.board_lint import claims, colours, links, older, queries, schema, shape, traps
from tools.board_lint.finding import Finding, Json, LintContext

_NAME = re.compile(r"^\| `([A-Za-z_:][\w:]*)` \|", re.MULTILINE)
_HISTOGRAM = re.compile(r"^\| `([A-Za-z_:][\w:]*)` \| histogram \|", re.MULTILINE)
_ENDS = ("bucket", "sum", "count")
_RECORD = re.compile(r"^\s*- record: (\S+)$", re.MULTILINE)
_HEADING = re.compile(r"^## (\w+)$", re.MULTILINE)


def findings(boards: Mapping[str, Json], context: LintContext, *, ours: bool = False) -> Iterator[Finding]:
    """Yield the findings of all checks, board by board; ``ours`` have to do in older releases of Grafana, too."""
    checks = [schema.check_types, shape.check, traps.check, claims.check, queries.check, links.check, colours.check]
    if ours:
        checks.append(older.check)
    if schema.sdk_available():
        checks.append(schema.check_round_trip)
    yield from shape.unique_uids(boards)
    for name, board in boards.items():
        broken = list(schema.check_structure(name, board))
        yield from broken
        for check in checks if not broken else ():
            yield from dict.fromkeys(check(name, board, context))  # a query may have the same problem twice


def load_context(project: Path, boards: Mapping[str, Json], others: Mapping[str, Json]) -> LintContext:
    """Return the names that a checkout knows; without a checkout nothing is held against a board.

    Args:
        project: the root of the checkout.
        boards: the checked boards, which may link to each other.
        others: further boards that they may link to.
    """
    page = _text(project / "docs" / "metrics.md")
    metrics = {*_NAME.findall(page), *(f"{name}_{end}" for name in _HISTOGRAM.findall(page) for end in _ENDS)}
    for path in sorted((project / "alert_rules").glob("*.rules.yaml")):
        metrics |= set(_RECORD.findall(_text(path)))
    runbooks = frozenset(name.lower() for name in _HEADING.findall(_text(project / "docs" / "alerts.md")))
    by_uid = {str(board.get("uid")): board for board in (*others.values(), *boards.values())}
    return LintContext(frozenset(metrics), runbooks, by_uid)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
