"""Proofs that somebody looked, without which no panel may say that nothing is wrong.

An empty answer means that nothing was found, or that nobody looked. A panel says the first only beside a series that
proves that somebody looked; all else is *no data*.
"""

from __future__ import annotations

from typing import NamedTuple

from pyrometer_dashboards import palette
from pyrometer_dashboards.common import CLUSTER, NODE_IS, RUN_IS
from pyrometer_dashboards.model import Json, Override, Query

# The value that stands for "looked, and found nothing": no count, time, rate or share is negative.
NOTHING = -1

NODES = f"cluster:up:nodes{{{CLUSTER}}} > 0"
NODES_SEEN = f"cluster:up:nodes{{{CLUSTER}}}"
NODE = f'up{{job="node", {NODE_IS}}} == 1'
GPUS = f"cluster:pyrometer_gpu_up:count{{{CLUSTER}}}"
# Where no clock event was counted, nobody knows whether a GPU was slowed.
CLOCK_EVENTS = f"cluster:pyrometer_gpu_throttled:count{{{CLUSTER}}}"
# Xids come from the kernel's log: GPUs that answer prove nothing of a log that nobody reads. On nearly all nodes, as
# one that can't read its log is named on Stack health, and silences nothing else.
XIDS = f"cluster:pyrometer_kernel_log:read_ratio{{{CLUSTER}}} >= 0.99"
XIDS_SEEN = f"avg_over_time(cluster:pyrometer_kernel_log:read_ratio{{{CLUSTER}}}[$__range]) >= 0.99"
XIDS_OF_NODE = f"pyrometer_kernel_log_lost_records_total{{{NODE_IS}}}"
NO_LOG = "no data: the kernel's log is not read everywhere"
PORTS = f"cluster:pyrometer_nic_link_up:count{{{CLUSTER}}}"
PORTS_OF_RUN = f"{PORTS} and on () run:pyrometer_train_ranks:count{{{RUN_IS}}}"
COLLECTORS = f'node:pyrometer_check:ok{{{CLUSTER}, check!="answers"}}'
CHECKS = f"node:pyrometer_check:ok{{{CLUSTER}}}"
TARGETS = f"up{{{CLUSTER}}}"
RAS = f"pyrometer_nccl_standstill_seconds{{{CLUSTER}}}"
INSPECTOR = f"comm:pyrometer_nccl_bus_bandwidth:per_best1d{{{CLUSTER}}}"
# The heartbeat is an alert: where it fires, alerts are evaluated. It has no cluster.
_HEARTBEAT = 'ALERTS{alertname="Watchdog"}'
ALERTS = f"{TARGETS} and on () {_HEARTBEAT}"

# The alerting service is scraped, and alerts reach it: its heartbeat comes each minute. Services that don't export
# their incidents yet have no page either.
ALERTING = "pyrometer_alerting_watchdog_last_seen_timestamp_seconds"
_PAGE = "pyrometer_alerting_page_info"
INCIDENTS = f"({ALERTING} > time() - 300 and on (instance) {_PAGE})"


class Healthy(NamedTuple):
    """The words of a panel that found nothing, and the query whose answer proves that somebody looked."""

    words: str
    proof: str


def compared(what: str) -> str:
    """Return whether GPUs were compared in a quantity; ``what`` is its matcher."""
    return f"gpu:pyrometer_gpu_quantity:now{{{CLUSTER}, {what}}}"


def past(series: str) -> str:
    """Return whether somebody looked within the time range."""
    return f"last_over_time({series}[$__range])"


PAST_ALERTS = f"{past(TARGETS)} and on () {past(_HEARTBEAT)}"
PAST_INCIDENTS = f"({past(ALERTING)} and on (instance) {past(_PAGE)})"


def or_nothing(expr: str, proof: str, *others: str, label: str = "") -> str:
    """Return ``expr``, or NOTHING where neither it nor the ``others`` beside it have an answer though ``proof`` has.

    ``label`` gets a blank in the row of NOTHING: Grafana groups no rows that have none of the labels.
    """
    unless_answered = "".join(f" unless on () ({other})" for other in others)
    nothing = f"0 * max({proof}) + {NOTHING}{unless_answered}"
    named = f'label_replace({nothing}, "{label}", " ", "", "")' if label else nothing
    return f"({expr}) or on () ({named})"


def mapping(words: str) -> Json:
    """Return the words for NOTHING."""
    return {"type": "value", "options": {str(NOTHING): {"text": words, "color": palette.QUIET, "index": 1}}}


def watched(proof: str, step: str = "") -> Query:
    """Return an invisible line at 0 while somebody looks: an empty chart says nothing of what nobody watches."""
    return Query(f"0 * max({proof})", _WATCHED, step=step)


_WATCHED = "watched"
UNSEEN = Override(_WATCHED, {"custom.hideFrom": {"legend": True, "tooltip": True, "viz": False}, "custom.lineWidth": 0})
