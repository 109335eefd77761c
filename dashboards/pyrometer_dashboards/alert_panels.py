"""Tables of the alerts that fire for some part of the cluster, each with the link to its runbook."""

from __future__ import annotations

from collections.abc import Mapping

from pyrometer_dashboards import palette, panels, proof
from pyrometer_dashboards.common import (
    ALERT_OF_ROW,
    CLUSTER,
    NODE_OF_ALERT,
    RUN_OF_ALERT,
    RUNBOOK_OF_ROW,
    TARGETS,
    leading_to,
    with_targets,
)
from pyrometer_dashboards.incident_panels import urgency
from pyrometer_dashboards.model import Panel, Reading
from pyrometer_dashboards.proof import Healthy

_SEVERITIES = (("critical", palette.WORST), ("warning", palette.BAD), ("info", palette.QUIET))

_PLACES = {"node": NODE_OF_ALERT, "run": RUN_OF_ALERT}


def firing(
    title: str,
    which: str,
    columns: Mapping[str, str],
    *,
    runbook: str,
    span: int = 8,
    matchers: str = CLUSTER,
    only: str = "",
) -> Panel:
    """Return the alerts that fire, the critical ones first.

    Args:
        title: of the panel.
        which: regular expression for the alerts' names.
        columns: further labels of an alert, with their headings.
        runbook: the heading that the panel's description names.
        span: width in columns.
        matchers: which series of the alerts.
        only: appended to the alerts' series, such as ``and on (node) ...``.
    """
    labels = ", ".join(dict.fromkeys(("alertname", "severity", *columns, *(("job_id",) if "run" in columns else ()))))
    firing_here = f'alertname=~"{which}", {matchers}'
    alerts = (
        f"time() - max by ({labels}) (ALERTS_FOR_STATE{{{firing_here}}} "
        f'and ignoring (alertstate) ALERTS{{alertstate="firing", {firing_here}}} {only})'
    )
    states = [panels.state(str(at), name, colour, at) for at, (name, colour) in enumerate(_SEVERITIES)]
    return panels.table(
        title,
        Reading(
            "The alerts of this board's subject that fire now, with the part that is meant.",
            "'no such alert'.",
            "Click the alert for its runbook and the board that shows it, the part for its node.",
            runbook,
        ),
        with_targets(urgency(alerts, tuple(name for name, _ in _SEVERITIES))),
        {"urgency": "severity", "alertname": "alert", **columns, "Value": "for", **TARGETS},
        unit="s",
        sort="severity",
        falling=False,
        fields={
            "severity": panels.coloured() | {"custom.width": 96, "mappings": states},
            "alert": leading_to(RUNBOOK_OF_ROW, ALERT_OF_ROW, **{"custom.width": 185}),
            "for": {"custom.width": 80, "decimals": 1},
            **{label: leading_to(_PLACES[label]) for label in columns if label in _PLACES},
            **({"gpu": {"custom.width": 56}} if "gpu" in columns else {}),
            **dict.fromkeys(TARGETS.values(), panels.HIDDEN),
        },
        healthy=Healthy("no such alert", proof.ALERTS),
        span=span,
    )
