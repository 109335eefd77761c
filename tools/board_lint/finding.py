"""Findings, the context that checks need, and access to the parts of a board's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """One problem: the board, the panel (empty: the board itself), the problem, and its remedy."""

    board: str
    panel: str
    problem: str
    remedy: str

    def line(self) -> str:
        """Return the finding in one line."""
        where = f"{self.board}: {self.panel}" if self.panel else self.board
        return " ".join(f"{where}: {self.problem}. {self.remedy}".split())


@dataclass(frozen=True)
class LintContext:
    """The names and boards that a board may refer to.

    Attributes:
        metrics: names of exporters' metrics and recording rules; if empty, names are not checked.
        runbooks: headings of docs/alerts.md in lower case; if empty, runbooks are not checked.
        boards: boards by uid.
    """

    metrics: frozenset[str] = frozenset()
    runbooks: frozenset[str] = frozenset()
    boards: Mapping[str, Json] = field(default_factory=dict)


def panels(board: Json) -> Iterator[Json]:
    """Yield all panels of a board except rows, those in collapsed rows included."""
    for panel in board.get("panels", []):
        if panel.get("type") == "row":
            yield from panel.get("panels", [])
        else:
            yield panel


def visible(board: Json) -> list[Json]:
    """Return the panels that are queried when the board opens: those in collapsed rows are not."""
    return [panel for panel in board.get("panels", []) if panel.get("type") != "row"]


def targets(panel: Json) -> Sequence[Json]:
    """Return the PromQL queries of a panel; those of Loki are in another language."""
    found: Sequence[Json] = panel.get("targets", [])
    return [each for each in found if _source(each) != "loki"]


def _source(target: Json) -> str:
    source = target.get("datasource")
    return str(source.get("type", "")) if isinstance(source, dict) else ""


def custom(panel: Json) -> Json:
    """Return the settings of all fields that are specific to the panel's kind."""
    found: Json = panel.get("fieldConfig", {}).get("defaults", {}).get("custom", {})
    return found


def title(panel: Json) -> str:
    """Return a panel's title, or its number if it has none."""
    return str(panel.get("title") or f"panel {panel.get('id')}")
