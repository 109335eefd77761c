"""Boards and panels as data: queries, explanations and layout, independent of Grafana's JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """One PromQL query.

    Attributes:
        legend: Grafana's legend format; a table needs none.
        instant: evaluate once, at the end of the time range, instead of over the range.
        table: return rows with a column per label.
        step: smallest step of a range query, such as ``15s``.
    """

    expr: str
    legend: str = ""
    instant: bool = False
    table: bool = False
    step: str = ""


@dataclass(frozen=True)
class Reading:
    """How to read a panel: what it shows, what is healthy, what to do first, and the runbook's heading.

    ``runbook`` is one of our alerts (a heading in docs/alerts.md), or empty for a panel without an alert.
    """

    shows: str
    healthy: str
    first: str
    runbook: str = ""

    def text(self) -> str:
        """Return the description behind the panel's (i), as Markdown."""
        book = f"docs/alerts.md#{self.runbook.lower()}" if self.runbook else "docs/dashboards.md"
        return f"{self.shows}\n\n**Healthy:** {self.healthy}\n\n**Else:** {self.first}\n\n**More:** {book}"


@dataclass(frozen=True)
class Override:
    """Changes of one field: ``name`` is its display name; ``properties`` are keyed by Grafana's property id."""

    name: str
    properties: Mapping[str, Any]
    by: str = "byName"


@dataclass(frozen=True)
class Panel:
    """One panel: a question and its answer.

    Attributes:
        kind: Grafana's panel type.
        unit: Grafana's unit id; every panel has one; ``none`` for a number without a unit.
        steps: thresholds as (value, colour), the first with None for the base.
        limits: fixed ends of the scale; None for a free end.
        custom, options, overrides, transformations, mappings, links: applied to Grafana's own defaults.
        span: width in Grafana's 24 columns.
        source: ``prometheus`` or ``loki``, whose queries are LogQL.
    """

    title: str
    kind: str
    reading: Reading
    queries: Sequence[Query] = ()
    unit: str = "none"
    decimals: int | None = None
    steps: Sequence[tuple[float | None, str]] = ()
    limits: tuple[float | None, float | None] = (None, None)
    colour: Json | None = None
    custom: Json = field(default_factory=dict)
    options: Json = field(default_factory=dict)
    overrides: Sequence[Override] = ()
    transformations: Sequence[Json] = ()
    mappings: Sequence[Json] = ()
    links: Sequence[tuple[str, str]] = ()
    no_value: str = "no data"
    step: str = ""
    max_points: int | None = None
    time_from: str = ""
    span: int = 8
    height: int = 0
    source: str = "prometheus"


@dataclass(frozen=True)
class Row:
    """Panels side by side; ``title`` adds a heading, and a ``collapsed`` row is neither drawn nor queried."""

    panels: Sequence[Panel]
    height: int = 8
    title: str = ""
    collapsed: bool = False


@dataclass(frozen=True)
class Variable:
    """A choice at the top of a board: from a Prometheus query, or a fixed list in ``values``.

    ``all_value`` makes it a choice of several with *All* first, and is the value of All. With ``every``, All is each of
    the choices by name. ``ordered`` keeps the order of the answer.
    """

    name: str
    label: str = ""
    query: str = ""
    values: Sequence[tuple[str, str]] = ()
    all_value: str = ""
    every: bool = False
    hidden: bool = False
    regex: str = ""
    numeric: bool = False
    ordered: bool = False


@dataclass(frozen=True)
class Annotation:
    """Annotations over all panels of a board; with ``at_value`` the sample's value is the time in ms.

    Without ``switch`` the board's head has no switch for it, which costs a line on a small screen.
    """

    name: str
    expr: str
    title: str
    text: str
    colour: str
    enabled: bool = True
    switch: bool = True
    at_value: bool = False
    step: str = "60s"


@dataclass(frozen=True)
class Board:
    """One board and the one question that it answers; ``needs`` is where its data comes from, in words."""

    uid: str
    title: str
    question: str
    rows: Sequence[Row]
    needs: str = ""
    variables: Sequence[Variable] = ()
    annotations: Sequence[Annotation] = ()
    tags: Sequence[str] = ()
    time_from: str = "now-1h"
    refresh: str = "1m"
