"""Write the manual's page of what uses each metric, from the code: ``make docs``.

    python -m tools.metrics_used docs/reference/metrics-used.md

A metric counts as shown, or watched, also where a board or an alert asks for a series that rules record from it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.board_lint import finding
from tools.metric_reasons import REASONS
from tools.metrics_page import OWN_FAMILIES, exporters

from pyrometer_alerting.incidents.metrics import FAMILIES as OF_ALERTING
from pyrometer_dashboards.main import rendered
from pyrometer_exporters.framework.deprecation import DEPRECATED
from pyrometer_simulator.stack.promtool import groups_of

ROOT = Path(__file__).resolve().parents[1]
_NAME = re.compile(r"[A-Za-z_:][\w:]*")
# The series of a histogram.
_ENDS = ("", "_bucket", "_sum", "_count")
# Programs that ask Prometheus themselves.
_READERS = {
    "diagnosis": "alerting/pyrometer_alerting/diagnosis/**/*.py",
    "messages": "alerting/pyrometer_alerting/channel/*.py",
    "digest": "alerting/pyrometer_alerting/channel/digest/*.py",
    "ledger": "exporters/pyrometer_exporters/cluster/ledger/**/*.py",
}
_DCGM = "dcgm-exporter's name: for boards and rules that were written for it"
_REASONS = {name: reason for reason, names in REASONS.items() for name in names}
_HEAD = """\
# What uses each metric

Generated from boards, rules and the programs that ask Prometheus: change those, then run `make docs`.
[Metrics](../metrics.md) has the meaning of each metric, [Alerts](alerts.md) that of each alert.

Boards are in bold, with those that ask for a series that a rule records from the metric; programs in italics. A metric
that none of these asks for says why it exists.

"""


@dataclass
class Use:
    """The users of one metric.

    Attributes:
        panels: titles of panels by board; what a mark or a choice at the top of the board asks for has a title, too.
        alerts: names.
        readers: programs.
    """

    panels: dict[str, list[str]] = field(default_factory=dict)
    alerts: list[str] = field(default_factory=list)
    readers: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Return whether anything uses the metric."""
        return bool(self.panels or self.alerts or self.readers)


def sections() -> Iterator[tuple[str, list[str]]]:
    """Yield all metrics that our programs export, by the part that exports them."""
    yield "Every exporter, about itself", [family.name for family in OWN_FAMILIES]
    for title, _, specs in exporters():
        for spec in specs:
            # A family may come from two collectors, of which one replaces the other.
            yield f"{title}: {spec.name}", list(dict.fromkeys(family.name for family in spec.families))
    yield "Alerting service", [family.name for family in OF_ALERTING]


def rules() -> Iterator[dict[str, Any]]:
    """Yield all rules."""
    for path in sorted((ROOT / "alert_rules").glob("*.rules.yaml")):
        for group in groups_of(path):
            yield from group["rules"]


class Sources:
    """Which metrics an expression reads, itself or through recorded series."""

    def __init__(self, metrics: Iterable[str]) -> None:
        self._metrics = {f"{name}{end}": name for name in metrics for end in _ENDS}
        self._recorded: dict[str, set[str]] = defaultdict(set)
        for rule in rules():
            if "record" in rule:
                self._recorded[rule["record"]] |= set(_NAME.findall(rule["expr"]))

    def of(self, text: str) -> set[str]:
        """Return the metrics that a text reads."""
        found: set[str] = set()
        seen: set[str] = set()
        left = set(_NAME.findall(text))
        while left:
            name = left.pop()
            seen.add(name)
            if name in self._metrics:
                found.add(self._metrics[name])
            left |= self._recorded.get(name, set()) - seen
        return found


def uses(boards: Mapping[str, Any] | None = None) -> dict[str, Use]:
    """Return what uses each metric; ``boards`` are ours unless given."""
    metrics = [name for _, names in sections() for name in names]
    sources = Sources(metrics)
    found = {name: Use() for name in metrics}
    boards = {name: json.loads(text) for name, text in rendered().items()} if boards is None else boards
    for board in boards.values():
        shown = board["title"].rpartition("/")[2].strip()
        for title, expr in _asked(board):
            for name in sources.of(expr):
                titles = found[name].panels.setdefault(shown, [])
                titles += [title] if title not in titles else []
    for rule in rules():
        asked = " ".join([rule["expr"], *rule["annotations"].values()]) if "alert" in rule else ""
        for name in sources.of(asked):
            found[name].alerts += [rule["alert"]] if rule["alert"] not in found[name].alerts else []
    for reader, files in _READERS.items():
        for name in {name for text in _strings(files) for name in sources.of(text)}:
            found[name].readers.append(reader)
    return found


def _asked(board: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401  Grafana's own JSON
    """Yield the queries of a board's panels, marks and choices with a title each."""
    for panel in finding.panels(board):
        yield from ((finding.title(panel), target["expr"]) for target in finding.targets(panel))
    for mark in board["annotations"]["list"]:
        if "target" in mark:
            yield f"mark {mark['name']}", mark["target"]["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield f"choice {variable.get('label') or variable['name']}", json.dumps(variable["query"])


def _strings(files: str) -> Iterator[str]:
    """Yield the texts in a program, without its docstrings: a metric that a docstring names is not read."""
    for path in sorted(ROOT.glob(files)):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                yield node.value


def reason(name: str) -> str:
    """Return why a metric that nothing of ours asks for is there; empty where nothing says so."""
    if name in DEPRECATED:
        return "deprecated"
    return _REASONS.get(name, _DCGM if name.startswith("DCGM_") else "")


def page() -> str:
    """Return the page as Markdown."""
    found = uses()
    used, deprecated = sum(map(bool, found.values())), len(DEPRECATED)
    others = len(found) - used - deprecated
    counts = f"{len(found)} metrics: {used} are used, {others} have another reason, {deprecated} are deprecated.\n"
    parts = [_HEAD, counts]
    for title, names in sections():
        parts.append(f"\n## {title}\n\n| metric | used by |\n|---|---|\n")
        parts += [f"| `{name}` | {_users(found[name]) or reason(name)} |\n" for name in names]
    return "".join(parts)


def _users(use: Use) -> str:
    boards = [f"**{board}**" for board in use.panels]
    alerts = [f"[{alert}](../alerts.md#{alert.lower()})" for alert in use.alerts]
    readers = [f"*{reader}*" for reader in use.readers]
    return ", ".join([*_first(boards, "boards"), *_first(alerts, "alerts"), *readers])


def _first(users: list[str], kind: str) -> list[str]:
    """Return the first of many users, and the number of the others: a cell that nobody can read helps nobody."""
    most = 6
    return users if len(users) <= most else [*users[: most - 1], f"{len(users) - most + 1} more {kind}"]


def main(arguments: Sequence[str]) -> int:
    """Write the page into the file named; return the exit status."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tools.metrics_used FILE\n")
        return 2
    Path(arguments[0]).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
