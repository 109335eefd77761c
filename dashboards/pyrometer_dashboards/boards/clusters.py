"""Clusters: a row for each, and the open incidents of all; for a Prometheus, or what is above it, that has several."""

from __future__ import annotations

from typing import Any

from pyrometer_dashboards import incident_panels, palette, panels, run_panels
from pyrometer_dashboards.common import (
    ALERTING,
    CLUSTERS_BOARD,
    EVERY_CLUSTER,
    OVERVIEW_OF_ROW,
    OVERVIEW_OF_SERIES,
)
from pyrometer_dashboards.grafana_defaults import absent_mapping
from pyrometer_dashboards.model import Board, Panel, Query, Reading, Row, Variable

_CLUSTERS = Variable("clusters", "Clusters", 'label_values(up{job="node"}, cluster)', all_value=".+")
_SHARE = run_panels.pace(EVERY_CLUSTER)
_LOST = f"run:pyrometer_train_lost:gpus{{{EVERY_CLUSTER}}}"
_NODES = f"cluster:up:nodes_expected{{{EVERY_CLUSTER}}}"
_GPUS = f"cluster:pyrometer_gpu_up:count{{{EVERY_CLUSTER}}}"
_GONE = f"count by (cluster) (gpu:pyrometer_gpu_up:missing{{{EVERY_CLUSTER}}})"
_NOTHING = [absent_mapping("-")]


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=CLUSTERS_BOARD,
        title="Pyrometer / Clusters",
        question="Which of the clusters needs somebody now, and why? Every row leads to its Overview.",
        needs="the node exporter on the GPU nodes of each cluster, and a label of its own for each",
        tags=["on-call"],
        time_from="now-6h",
        variables=[_CLUSTERS, ALERTING],
        rows=[
            Row([_clusters()]),
            Row([incident_panels.of_all_clusters()], height=9),
            Row([_pace(), _lost()]),
        ],
    )


def _clusters() -> Panel:
    def counted(*steps: tuple[float | None, str]) -> dict[str, Any]:
        return panels.coloured(steps) | {"unit": "locale", "custom.width": 84}

    plain = {"unit": "locale", "custom.width": 84}
    without = {"mappings": _NOTHING, "links": []}
    started = incident_panels.started(EVERY_CLUSTER)
    return panels.table(
        "Clusters: which needs somebody",
        Reading(
            "Each cluster: its nodes and how many of them are silent, its GPUs and how many of them are missing, its "
            "runs, the pace of the run that is furthest below what it could be (its best of 3 hours, what is expected "
            "of its configuration, or without the rank that all wait for), the GPU-hours that all runs lost that way "
            "in 24 hours, open incidents, and the cause of the oldest critical one (else of the oldest).",
            "no silent node, no missing GPU, a pace of 97 % and more, no incident.",
            "Click the row for the cluster's Overview; the incidents below lead to their messages.",
            "TrainMfuDropped",
        ),
        [
            _NODES,
            f"{_NODES} - on (cluster) cluster:up:nodes{{{EVERY_CLUSTER}}}",
            f"{_GPUS} + on (cluster) {_GONE} or on (cluster) {_GPUS} or on (cluster) {_GONE}",
            f"{_GONE} or on (cluster) 0 * {_GPUS}",
            f"count by (cluster) (run:pyrometer_train_ranks:count{{{EVERY_CLUSTER}}})",
            f"min by (cluster) ({_SHARE})",
            # Each of the 288 samples stands for five minutes.
            f"sum by (cluster) (sum_over_time({_LOST}[1d:5m])) / 12",
            f"count by (cluster) ({started})",
            (
                "max by (cluster, cause) (topk by (cluster) (1, "
                f"time() - {incident_panels.started(EVERY_CLUSTER, 'critical')}) "
                f"or on (cluster) topk by (cluster) (1, time() - {started}))"
            ),
        ],
        {
            "cluster": "cluster",
            "Value #A": "nodes",
            "Value #B": "silent",
            "Value #C": "GPUs",
            "Value #D": "missing",
            "Value #E": "runs",
            "Value #F": "pace",
            "Value #G": "GPU h lost, 24 h",
            "Value #H": "incidents",
            "cause": "likely cause",
            "Value #I": "for",
        },
        sort="pace",
        falling=False,
        link=OVERVIEW_OF_ROW,
        fields={
            "cluster": {"custom.width": 130},
            "nodes": plain,
            "silent": counted((None, palette.QUIET), (1, palette.BAD)),
            "GPUs": plain,
            "missing": counted((None, palette.QUIET), (1, palette.WORST)),
            "runs": plain | without,
            "pace": {
                **panels.coloured(),
                **panels.thresholds(panels.KEPT),
                **without,
                "unit": "percentunit",
                "decimals": 1,
                "custom.width": 84,
            },
            "GPU h lost, 24 h": {"unit": "locale", "decimals": 1, "custom.width": 130, **without},
            "incidents": counted((None, palette.WATCH)) | without,
            "likely cause": {"custom.wrapText": True},
            "for": {"unit": "s", "decimals": 1, "custom.width": 90, **without},
        },
        no_value="no data: this board needs the node exporter in each cluster (docs/no-data.md)",
        span=24,
    )


def _pace() -> Panel:
    return panels.lines(
        "Slowest run, against its own pace",
        Reading(
            "The run that is furthest below its pace (the table says what that is), as a share of it.",
            "97 % and more.",
            "Follow the line to the cluster's Overview: its runs have a row each.",
            "TrainMfuDropped",
        ),
        Query(f"min by (cluster) ({_SHARE})", "{{cluster}}"),
        unit="percentunit",
        limits=(0, 1),
        links=[OVERVIEW_OF_SERIES],
        overrides=panels.named(),
        span=12,
    )


def _lost() -> Panel:
    return panels.lines(
        "GPUs' worth of work that is lost",
        Reading(
            "GPUs' worth of work that the runs of each cluster lack of their pace; all GPUs of a run that is stalled.",
            "a few for each hundred GPUs.",
            "The Alerts board of the cluster ranks what did the harm.",
            "TrainStalled",
        ),
        Query(f"sum by (cluster) ({_LOST})", "{{cluster}}"),
        unit="locale",
        limits=(0, None),
        links=[OVERVIEW_OF_SERIES],
        overrides=panels.named(),
        span=12,
    )
