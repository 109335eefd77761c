"""Alerts: which fire, which fired, and which of them did harm."""

from __future__ import annotations

from pyrometer_dashboards import incident_panels, palette, panels, proof
from pyrometer_dashboards.common import (
    ALERT_OF_ROW,
    ALERTING,
    ALERTS,
    CLUSTER,
    CLUSTERS,
    DEPLOYS,
    NODE_OF_ALERT,
    RESTARTS,
    RUN_NAME,
    RUN_OF_ALERT,
    RUN_OF_SERIES,
    RUNBOOK_OF_ROW,
    TARGETS,
    leading_to,
    with_targets,
)
from pyrometer_dashboards.model import Board, Panel, Query, Reading, Row
from pyrometer_dashboards.proof import Healthy

_FIRING = f"alert:ALERTS:firing{{{CLUSTER}}}"
_SEVERITIES = (("critical", palette.WORST), ("warning", palette.BAD), ("info", palette.HEALTHY))
# Severities as numbers, to sort a table by: by name, info would be above warning. Unknown ones come last.
_URGENCIES = (*_SEVERITIES, ("other", palette.QUIET))


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=ALERTS,
        title="Pyrometer / Alerts",
        question="What fires, what fired, and which of it did harm?",
        needs="our rules in Prometheus, and the alerting service scraped",
        tags=["on-call"],
        time_from="now-24h",
        variables=[CLUSTERS, ALERTING],
        annotations=[RESTARTS, DEPLOYS],
        rows=[
            Row([_critical(), _warning(), _harm_now(), _rising(), _silences(), _held_back()], height=4),
            Row([incident_panels.incidents()], height=7),
            Row([_now()], height=14),
            Row([incident_panels.cost(), _often()]),
            Row([_timeline()], height=9),
            Row([_volume(), _lost()]),
        ],
    )


def _count(severity: str, colour: str, healthy: str, first: str) -> Panel:
    return panels.stat(
        f"{severity.capitalize()} now",
        Reading(f"Alerts of the severity {severity} that fire now, each part counted.", healthy, first),
        f'count(ALERTS{{alertstate="firing", alertname!="Watchdog", severity="{severity}", {CLUSTER}}}) or on () 0 * '
        f"count(cluster:up:nodes{{{CLUSTER}}})",
        unit="locale",
        steps=[(None, palette.QUIET), (1, colour)],
    )


def _critical() -> Panel:
    return _count(
        "critical", palette.WORST, "0.", "The table names the parts; the message in Slack has the likely cause."
    )


def _warning() -> Panel:
    return _count("warning", palette.BAD, "few.", "For today, not for tonight.")


def _harm_now() -> Panel:
    return panels.stat(
        "Harm",
        Reading(
            "What all runs lack of the pace that they could have (their best of 3 hours, what is expected of their "
            "configuration, or without the rank that all wait for), as a share of the training GPUs; a stopped run "
            "loses all of its GPUs.",
            "below 5 %.",
            "Find the alert in the table by harm.",
            "TrainMfuDropped",
        ),
        f"sum(run:pyrometer_train_lost:gpus{{{CLUSTER}}}) / sum(run:pyrometer_train_ranks:count{{{CLUSTER}}} "
        f"and on (run, job_id) run:pyrometer_train_lost:gpus{{{CLUSTER}}})",
        unit="percentunit",
        decimals=0,
        steps=panels.LOST_TIME,
    )


def _rising() -> Panel:
    return panels.stat(
        "Pending",
        Reading(
            "Alerts whose condition holds, and that wait for their time before they fire.",
            "0.",
            "What comes next; look at it before it pages.",
        ),
        f'count(ALERTS{{alertstate="pending", {CLUSTER}}}) or on () 0 * count(cluster:up:nodes{{{CLUSTER}}})',
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.WATCH)],
    )


def _silences() -> Panel:
    return panels.stat(
        "Silences",
        Reading(
            "Silences of Alertmanager that hold alerts back now, whoever set them.",
            "few, each known to somebody.",
            "Alertmanager's page has who set which until when; a forgotten one hides the next fault.",
        ),
        'max(alertmanager_silences{state="active"})',
        unit="locale",
        steps=[(None, palette.QUIET), (5, palette.WATCH)],
    )


def _held_back() -> Panel:
    return panels.stat(
        "Held back",
        Reading(
            "Firing alerts for which Alertmanager notifies nobody, due to a silence or an inhibition.",
            "0, or known maintenance.",
            "They are listed below like all others: check that the silence is still justified.",
        ),
        'max(alertmanager_alerts{state="suppressed"})',
        unit="locale",
        steps=[(None, palette.QUIET), (5, palette.WATCH)],
    )


def _now() -> Panel:
    return panels.table(
        "Firing now, with the part that is meant",
        Reading(
            "Every alert that fires, the part that it names, and since when: the critical ones on top.",
            "'nothing fires'.",
            "Click the alert for the board that shows it, the part for its node, 'runbook' for what to do first.",
        ),
        with_targets(
            incident_panels.urgency(
                f'(time() - ALERTS_FOR_STATE{{{CLUSTER}, alertname!="Watchdog"}}) '
                f'and ignoring (alertstate) ALERTS{{alertstate="firing", {CLUSTER}}}',
                tuple(name for name, _ in _SEVERITIES),
            )
        ),
        {
            "urgency": "severity",
            "alertname": "alert",
            "node": "node",
            "gpu": "gpu",
            "device": "device",
            "run": "run",
            "job_id": "job",
            "Value": "for",
            "book": "what to do",
            **TARGETS,
        },
        unit="s",
        decimals=0,
        sort="severity",
        falling=False,
        link=NODE_OF_ALERT,
        fields={
            "alert": {"custom.width": 230, **leading_to(ALERT_OF_ROW)},
            "what to do": {"custom.width": 90, **leading_to(RUNBOOK_OF_ROW)},
            **dict.fromkeys(TARGETS.values(), panels.HIDDEN),
            "gpu": {"custom.width": 60},
            "node": {"custom.width": 160},
            "device": {"custom.width": 100},
            "run": leading_to(RUN_OF_ALERT),
            "for": {"custom.width": 90, "decimals": 1, "links": []},
            "severity": panels.coloured()
            | {
                "custom.width": 90,
                "links": [],
                "mappings": [panels.state(str(at), name, colour, at) for at, (name, colour) in enumerate(_URGENCIES)],
            },
        },
        healthy=Healthy("nothing fires", proof.ALERTS),
        span=24,
    )


# How an alert of each severity is drawn; the last adds a row that says so if nothing fires.
_STATES = {len(_SEVERITIES) - at: name for at, (name, _) in enumerate(_SEVERITIES)}
_NOTHING = (
    f'label_replace(0 * max(cluster:up:nodes{{{CLUSTER}}}), "alertname", "nothing", "", "") unless on () {_FIRING}'
)


def _fired(severity: str, state: int) -> str:
    firing = f'{state} * group by (alertname) (alert:ALERTS:firing{{{CLUSTER}, severity="{severity}"}})'
    return f"{firing} or {_NOTHING}" if state == min(_STATES) else firing


def _timeline() -> Panel:
    return panels.timeline(
        "When each alert fired",
        Reading(
            "A row for each alert of the range, the critical ones first; in the colour of its severity while it fires.",
            "empty, or short.",
            "Rows that begin together are one incident. A row of stripes flaps: its threshold is too near.",
        ),
        # A query for each severity: rows are in the order of the queries.
        [Query(_fired(name, state), "{{alertname}}", step="1m") for state, name in _STATES.items()],
        [
            *(panels.state(str(state), name, dict(_SEVERITIES)[name], state) for state, name in _STATES.items()),
            panels.state("0", "quiet", palette.QUIET, 4),
        ],
        options={"showValue": "never"},
        span=24,
    )


def _volume() -> Panel:
    return panels.stacked(
        "Alerts firing, by severity",
        Reading(
            "How many alerts fire, each part counted.",
            "few.",
            "A wall: a switch or a rack; Slack has one message for it.",
        ),
        Query(f"sum by (severity) ({_FIRING})", "{{severity}}", step="1m"),
        unit="locale",
        limits=(0, None),
        overrides=[panels.fixed(name, colour) for name, colour in _SEVERITIES],
        watched=proof.ALERTS,
        span=12,
    )


def _lost() -> Panel:
    return panels.lines(
        "GPUs' worth of training lost",
        Reading(
            "What each run lacks of its pace (the tile Harm says what that is), times its GPUs; all of them while "
            "it is stopped.",
            "near 0.",
            "Compare with the rows above: what fires when it rises?",
            "TrainMfuDropped",
        ),
        Query(f"run:pyrometer_train_lost:gpus{{{CLUSTER}}}", RUN_NAME),
        unit="locale",
        limits=(0, None),
        overrides=panels.named(),
        custom={"lineWidth": 2, "axisSoftMax": 50},
        links=[RUN_OF_SERIES],
        no_value="no run",
        span=12,
    )


def _often() -> Panel:
    began = f"group by (alertname) ({_FIRING}) unless on (alertname) ({_FIRING} offset 1m)"
    fired = f"max by (alertname) (count_over_time({_FIRING}[$__range]))"
    return panels.table(
        "Alerts in the range: how long, how often",
        Reading(
            "For how long each alert of the time range fired, how often it began in it (0: it fired before), and on "
            "how many parts at once.",
            "few, and short.",
            "Often and short: the threshold is within the noise, or the part flaps. Long and without an incident: a "
            "candidate for a lower severity.",
        ),
        [
            with_targets(f"{fired} * 60"),
            f"count_over_time(({began})[$__range:1m]) or 0 * {fired}",
            f"max by (alertname) (max_over_time({_FIRING}[$__range]))",
        ],
        {
            "alertname": "alert",
            "Value #A": "fired for",
            "Value #B": "began",
            "Value #C": "parts",
            "book": "what to do",
            "to": "to",
        },
        unit="locale",
        decimals=0,
        sort="fired for",
        fields={
            "alert": leading_to(ALERT_OF_ROW),
            "what to do": {"custom.width": 90, **leading_to(RUNBOOK_OF_ROW)},
            "to": panels.HIDDEN,
            "fired for": {"unit": "s", "decimals": 1, "custom.width": 100},
            "began": {"custom.width": 70},
            "parts": {"custom.width": 70},
        },
        healthy=Healthy("nothing fired", proof.PAST_ALERTS),
        span=12,
    )
