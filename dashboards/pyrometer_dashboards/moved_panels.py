"""Panels of parts whose faults move with them: GPUs that failed in two places, and cables."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels, proof
from pyrometer_dashboards.common import CLUSTER
from pyrometer_dashboards.failure_panels import CRITICAL
from pyrometer_dashboards.model import Panel, Reading
from pyrometer_dashboards.proof import Healthy


def gpus() -> Panel:
    """Return the GPUs that failed in more than one place."""
    events = f"sum by (uuid, node, gpu) (sum_over_time({CRITICAL}[$__range]))"
    places = f"count by (uuid) ({events} > 0) > 1"
    return panels.table(
        "GPUs that failed in two places",
        Reading(
            "GPUs with critical Xids in more than one node or slot within the time range, by UUID: they were moved or "
            "reseated, and failed again.",
            "'none'.",
            "The fault is the board's and not the place's: return it. GPU detail has its places by serial number.",
            "GpuFailsInTwoNodes",
        ),
        f"topk(20, {places})",
        {"uuid": "uuid", "Value": "places"},
        unit="locale",
        sort="places",
        steps=[(None, palette.QUIET), (2, palette.BAD), (3, palette.WORST)],
        fields={"places": panels.coloured() | {"custom.width": 80}},
        no_value=proof.NO_LOG,
        healthy=Healthy("none", proof.XIDS_SEEN),
        span=12,
    )


def cables() -> Panel:
    """Return the cables with most events in UFM, by serial number."""
    events = f"sum by (cable, event) (increase(pyrometer_ufm_cable_events_total{{{CLUSTER}}}[$__range]))"
    return panels.table(
        "Cables by serial number",
        Reading(
            "Events of UFM by the cable's serial number within the time range: they stay with the cable when it is "
            "plugged into another port.",
            "no row.",
            "Replace the first row's cable; do not plug it in elsewhere.",
            "CableFailsAtTwoPorts",
        ),
        f"topk(20, {events} > 0)",
        {"cable": "cable", "event": "event", "Value": "events"},
        unit="locale",
        decimals=0,
        sort="events",
        steps=[(None, palette.QUIET), (2, palette.WATCH), (5, palette.BAD)],
        fields={"events": panels.coloured() | {"custom.width": 80}},
        no_value="no data: no event of a cable, or no UFM",
        span=12,
    )
