"""Panels of open incidents, as the alerting service exports them: the culprit, its cause, since when, how sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyrometer_dashboards import palette, panels, proof
from pyrometer_dashboards.common import (
    ALERT_OF_ROW,
    ALERT_THERE,
    CLUSTER,
    EVERY_CLUSTER,
    MESSAGE_OF_ROW,
    NODE_OF_ALERT,
    NODE_THERE,
    OVERVIEW_OF_ROW,
    RUN_OF_ALERT,
    RUN_OF_ROW,
    RUN_THERE,
    RUNBOOK_OF_ROW,
    TARGETS,
    leading_to,
    with_targets,
)
from pyrometer_dashboards.model import Panel, Reading
from pyrometer_dashboards.proof import Healthy

# Incidents of the stack itself have no cluster, and concern each.
_NO_CLUSTER = 'cluster=""'
_URGENCIES = (("critical", palette.WORST), ("warning", palette.BAD))
NO_INCIDENT = Healthy("no open incident", proof.INCIDENTS)


def urgency(alerts: str, severities: tuple[str, ...]) -> str:
    """Return the alerts with the position of their severity as the label ``urgency``, to sort a table by."""
    numbered = f'label_replace({alerts}, "urgency", "{len(severities)}", "", "")'
    for at, severity in enumerate(severities):
        numbered = f'label_replace({numbered}, "urgency", "{at}", "severity", "{severity}")'
    return numbered


def incidents(*, span: int = 24, height: int = 0) -> Panel:
    """Return the open incidents, the critical ones first."""
    reading = Reading(
        "What is wrong now, one row for each message in the channel: the part to blame, the likely cause and how "
        "sure the diagnosis is, who has taken it, and since when.",
        "'no open incident'.",
        "Click the part for its node, the cause for the message with the evidence, the alert for the board that "
        "shows it, 'runbook' for what to do.",
        "TrainMfuDropped",
    )
    panel = _open("Open incidents: who did it, and why", reading, CLUSTER, (RUN_OF_ALERT, NODE_OF_ALERT, ALERT_OF_ROW))
    return replace(panel, span=span, height=height)


def of_all_clusters() -> Panel:
    """Return the open incidents of several clusters, the critical ones first."""
    reading = Reading(
        "What is wrong now, one row for each message in the channels: in which cluster, the part to blame, the likely "
        "cause and how sure the diagnosis is, and since when. An incident of the monitoring itself has no cluster.",
        "'no open incident'.",
        "Click the cluster for its Overview, the part for its node, the cause for the message with the evidence.",
        "TrainMfuDropped",
    )
    links = (RUN_THERE, NODE_THERE, ALERT_THERE)
    columns = {"cluster": {"custom.width": 130, **leading_to(OVERVIEW_OF_ROW)}}
    return _open("Open incidents of all clusters", reading, EVERY_CLUSTER, links, columns)


def started(matchers: str, severity: str = "") -> str:
    """Return when the open incidents of the chosen clusters began."""
    chosen = f', severity="{severity}"' if severity else ""
    return f"pyrometer_incident_start_timestamp_seconds{{{matchers}{chosen}}}"


def _open(
    title: str,
    reading: Reading,
    clusters: str,
    links: Sequence[tuple[str, str]],
    own: Mapping[str, Mapping[str, Any]] | None = None,
) -> Panel:
    """Return a table of open incidents; the links are those of run, part and alert, ``own`` further columns."""
    severities = tuple(name for name, _ in _URGENCIES)
    states = [panels.state(str(at), name, colour, at) for at, (name, colour) in enumerate(_URGENCIES)]
    began = " or ".join(map(started, (clusters, _NO_CLUSTER)))
    to_run, to_node, to_alert = links
    return panels.table(
        title,
        reading,
        with_targets(urgency(f"time() - ({began})", severities), "alert"),
        {
            "urgency": "severity",
            **{name: name for name in own or {}},
            "run": "run",
            "job_id": "job",
            "part": "part",
            "cause": "likely cause",
            "confidence": "sure",
            "alert": "alert",
            "acknowledged": "taken by",
            "Value": "for",
            "book": "to do",
            "link": "link",
            **TARGETS,
        },
        unit="s",
        sort="severity",
        falling=False,
        fields={
            "severity": panels.coloured() | {"custom.width": 94, "mappings": states},
            **(own or {}),
            "run": {"custom.width": 110, **leading_to(to_run)},
            "part": {"custom.width": 145, **leading_to(to_node)},
            "likely cause": leading_to(MESSAGE_OF_ROW) | {"custom.wrapText": True},
            "sure": {"custom.width": 60},
            "alert": {"custom.width": 165, **leading_to(to_alert)},
            "taken by": {"custom.width": 75},
            "for": {"custom.width": 85, "decimals": 1},
            "to do": {"custom.width": 75, **leading_to(RUNBOOK_OF_ROW)},
            "link": panels.HIDDEN,
            **dict.fromkeys(TARGETS.values(), panels.HIDDEN),
        },
        no_value="no data: is the alerting service scraped?",
        healthy=NO_INCIDENT,
        span=24,
    )


def cost() -> Panel:
    """Return what incidents cost in the time range, by their cause."""
    lost = " or ".join(
        f"max_over_time(pyrometer_incident_lost_gpu_hours{{{where}}}[$__range])" for where in (CLUSTER, _NO_CLUSTER)
    )
    return panels.table(
        "Incidents by harm in the range",
        Reading(
            "Each incident of the time range: the GPU-hours that its run lost, charged to the cause that the diagnosis "
            "named, and to no other alert that fired beside it.",
            "few GPU-hours.",
            "The first row is worth a new part, or a change in the job.",
            "TrainMfuDropped",
        ),
        # The cause of an incident may change; what it lost only grows: the highest is the last.
        f"topk(20, topk by (id) (1, {lost}))",
        {"run": "run", "job_id": "job", "part": "part", "cause": "likely cause", "Value": "GPU-hours"},
        unit="locale",
        decimals=1,
        sort="GPU-hours",
        fields={
            "run": leading_to(RUN_OF_ROW, **{"custom.width": 120}),
            "part": {"custom.width": 160},
            "GPU-hours": {"custom.width": 110},
        },
        no_value="no data: is the alerting service scraped?",
        healthy=Healthy("no loss known", proof.PAST_INCIDENTS),
        span=12,
    )
