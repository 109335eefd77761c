"""Data, then drawing: everything that needs Matplotlib behind one function."""

from __future__ import annotations

from pyrometer_alerting.model.incident import Incident
from pyrometer_alerting.render.drop_data import drop_of
from pyrometer_alerting.render.drop_figure import draw
from pyrometer_kit.prometheus import Prometheus


def illustrate(prometheus: Prometheus, incident: Incident, now: float) -> bytes | None:
    """The picture of an incident as PNG; None where there is nothing to draw. Raises PrometheusError."""
    drop = drop_of(prometheus, incident, now)
    return draw(drop) if drop is not None else None
