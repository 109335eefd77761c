"""The few kinds of panel that all boards are made of, so that they look alike.

grafanalib's types stay in this package: it is frozen upstream, and what it doesn't know is added here as plain JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from grafanalib import core
from grafanalib._gen import DashboardEncoder

DATASOURCE = "${datasource}"
WIDTH = 24
HEIGHT = 8


class _Instant(core.Target):  # type: ignore[misc]  # grafanalib has no types
    """A target that is an instant query and nothing else: grafanalib leaves the second flag out."""

    def to_json_data(self) -> dict[str, object]:
        return {**super().to_json_data(), "range": False}


def query(expression: str, legend: str) -> core.Target:
    """A PromQL query over the board's time range, with Grafana's legend format."""
    return core.Target(expr=expression, legendFormat=legend)


def every_batch(series: str, legend: str) -> core.Target:
    """All samples of a per-batch series in the board's time range, each at its own time.

    A range selector in an instant query: a range query would draw one batch per step of the panel and hide the rest.
    """
    return _Instant(expr=f"{series}[$__range]", legendFormat=legend, instant=True)


def time_series(
    title: str,
    description: str,
    queries: Sequence[core.Target],
    *,
    unit: str,
    stacked: bool = False,
    points: bool = False,
) -> core.TimeSeries:
    """Lines over time; with ``points`` each sample as a dot, for series that have one sample per batch."""
    return core.TimeSeries(
        title=title,
        description=description,
        dataSource=DATASOURCE,
        targets=[_with_ref(target, number) for number, target in enumerate(queries)],
        unit=unit,
        stacking={"mode": "normal"} if stacked else {},
        fillOpacity=30 if stacked else 0,
        drawStyle="points" if points else "line",
        pointSize=4,
        legendDisplayMode="list",
        legendPlacement="bottom",
    )


def dashboard(
    *,
    title: str,
    uid: str,
    description: str,
    variables: Sequence[core.Template],
    rows: Sequence[Sequence[core.TimeSeries]],
) -> core.Dashboard:
    """A board with what all boards have in common: the choice of Prometheus, tags, refresh, a shared crosshair."""
    return core.Dashboard(
        title=title,
        uid=uid,
        description=description,
        tags=["pyrometer"],
        timezone="browser",
        refresh="10s",
        time=core.Time("now-30m", "now"),
        sharedCrosshair=True,
        templating=core.Templating(list=[_datasource(), *variables]),
        panels=_arranged(rows),
    )


def _arranged(rows: Sequence[Sequence[core.TimeSeries]]) -> list[core.TimeSeries]:
    """Give every panel its place: rows from top to bottom, the panels of a row side by side and equally wide."""
    placed = []
    for number, row in enumerate(rows):
        width = WIDTH // len(row)
        for column, panel in enumerate(row):
            panel.gridPos = core.GridPos(h=HEIGHT, w=width, x=column * width, y=number * HEIGHT)
            placed.append(panel)
    return placed


def variable(name: str, label: str, values: str, *, several: bool = False) -> core.Template:
    """A choice at the top of the board; ``values`` is a label_values() query."""
    return core.Template(
        name=name,
        label=label,
        query=values,
        dataSource=DATASOURCE,
        refresh=core.REFRESH_ON_TIME_RANGE_CHANGE,
        multi=several,
        includeAll=several,
        sort=1,
    )


def _datasource() -> core.Template:
    """The choice of Prometheus, first on every board."""
    return core.Template(name="datasource", label="Prometheus", type="datasource", query="prometheus")


def to_json(board: core.Dashboard) -> str:
    """A board as the JSON text that Grafana's provisioning reads."""
    return json.dumps(board.auto_panel_ids(), indent=2, sort_keys=True, cls=DashboardEncoder) + "\n"


def _with_ref(target: core.Target, number: int) -> core.Target:
    target.refId = chr(ord("A") + number)
    return target
