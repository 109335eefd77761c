"""What a check found, and what checks look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: on which board, in which panel (empty: the board itself), what, and the way out."""

    board: str
    panel: str
    problem: str
    remedy: str

    def line(self) -> str:
        """The finding in one line."""
        where = f"{self.board}: {self.panel}" if self.panel else self.board
        return " ".join(f"{where}: {self.problem}. {self.remedy}".split())


@dataclass(frozen=True)
class LintContext:
    """What boards refer to.

    Attributes:
        metrics: names that exist, of exporters and recording rules; empty: not known, not checked.
        runbooks: headings of docs/alerts.md, in lower case; empty: not known, not checked.
    """

    metrics: frozenset[str] = frozenset()
    runbooks: frozenset[str] = frozenset()
    boards: Mapping[str, Json] = field(default_factory=dict)


def panels(board: Json) -> Iterator[Json]:
    """All panels of a board but its rows, those in folded rows too."""
    for panel in board.get("panels", []):
        if panel.get("type") == "row":
            yield from panel.get("panels", [])
        else:
            yield panel


def visible(board: Json) -> list[Json]:
    """The panels that are asked when the board is opened: those of folded rows aren't."""
    return [panel for panel in board.get("panels", []) if panel.get("type") != "row"]


def targets(panel: Json) -> Sequence[Json]:
    """The queries of a panel."""
    found: Sequence[Json] = panel.get("targets", [])
    return found


def custom(panel: Json) -> Json:
    """The settings of a panel's own kind for all its fields."""
    found: Json = panel.get("fieldConfig", {}).get("defaults", {}).get("custom", {})
    return found


def title(panel: Json) -> str:
    """A panel's title, or what stands for it."""
    return str(panel.get("title") or f"panel {panel.get('id')}")
