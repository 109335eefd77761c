"""Panels of failures by month, and the series that failures are counted from."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels, proof
from pyrometer_dashboards.common import CLUSTER
from pyrometer_dashboards.model import Panel, Query, Reading
from pyrometer_dashboards.proof import Healthy

XIDS = f"gpu:pyrometer_gpu_xid_errors:new5m{{{CLUSTER}}}"
CRITICAL = f'gpu:pyrometer_gpu_xid_errors:new5m{{{CLUSTER}, class="critical"}}'
# Series of failures are recorded each five minutes, the codes of Xids each minute, and what alerts at once: a panel of
# the past that would say "none" adds the present.
_COUNTED = f"gpu:pyrometer_gpu_xid_errors:counted{{{CLUSTER}}}"
_XIDS_NOW = (
    f"({_COUNTED} - {_COUNTED} offset 5m or {_COUNTED} and on (node) node:up:answering{{{CLUSTER}}} offset 5m) > 0"
)
_RISEN = f"gpu:pyrometer_gpu_xid_critical_errors:rise10m{{{CLUSTER}}}"
FAILED_NOW = f"group by (node) ({_RISEN})"
FLAPS = f"port:pyrometer_nic_link_down_events:new5m{{{CLUSTER}}}"
ECC = f"gpu:pyrometer_gpu_ecc_uncorrected:new5m{{{CLUSTER}}}"
LOST = f"node:up:lost5m{{{CLUSTER}}}"
# A completed day or month of a known cluster without events is 0; one that is not over has no bar.
KNOWN = f"or on () 0 * count(cluster:up:nodes{{{CLUSTER}}})"
_LOG_KNOWN = f"or on () 0 * count({proof.XIDS})"
# So long after the first failure the next is another one: within ten minutes, alerts take both as one, too.
_ANOTHER = 600


def again(labels: str, *series: str) -> str:
    """Return the parts whose failures in the time range are so far apart that they are not one."""
    when = " or ".join(f"max by ({labels}) (timestamp({expr}))" for expr in series)
    first, last = (f"{which}_over_time(({when})[$__range:5m])" for which in ("min", "max"))
    return f"({last} - {first} >= {_ANOTHER})"


def xids_by_code(outer: str, inner: str) -> str:
    """Return Xids of the time range by code; ``how`` and ``each`` are the outer and the inner aggregation.

    The codes of the last minute are not known yet.
    """
    by_code = f"{outer} by (xid, class) ({inner})"
    new = f'label_replace({outer}({inner % _RISEN}), "xid", "just now", "", "")'
    new = f'label_replace({new}, "class", "critical", "", "")'
    return f"{by_code % f'sum_over_time({XIDS}[$__range])'} or {by_code % f'({_XIDS_NOW})'} or on () {new}"


def _month(title: str, expr: str, legend: str, colour: str, reading: Reading, *, or_zero: str = KNOWN) -> Panel:
    return panels.bars(
        title,
        reading,
        Query(f"{expr} {or_zero}", legend, step="30d"),
        unit="locale",
        no_value="no whole 30 days yet",
        time_from="360d",
        overrides=[panels.fixed(legend, colour)],
    )


def xids() -> Panel:
    """Return the critical Xids of each month."""
    return _month(
        "Critical Xids by month",
        f"sum(sum_over_time({CRITICAL}[30d]))",
        "critical Xids",
        palette.WORST,
        Reading(
            "Critical Xids of each 30 days, up to a year.",
            "falling after the first months.",
            "A rise: age, heat or a driver.",
            "GpuXidCritical",
        ),
        or_zero=_LOG_KNOWN,
    )


def links() -> Panel:
    """Return the lost links of each month."""
    return _month(
        "Lost links by month",
        f"sum(sum_over_time({FLAPS}[30d]))",
        "lost links",
        palette.BAD,
        Reading(
            "Losses of links of each 30 days, up to a year.",
            "falling: bad cables are found in the first months.",
            "A rise: dust, or work in the racks.",
            "NicLinkFlappingChronic",
        ),
    )


def memory() -> Panel:
    """Return the uncorrected memory errors of each month."""
    return _month(
        "ECC errors by month",
        f"sum(sum_over_time({ECC}[30d]))",
        "memory errors",
        palette.REASONS["hw_power_brake"],
        Reading(
            "Uncorrected memory errors of each 30 days, up to a year.",
            "few.",
            "A rise on few boards: replace them.",
            "GpuEccUncorrected",
        ),
    )


def moved_gpus() -> Panel:
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


def moved_cables() -> Panel:
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
