"""Query where the ranks' steps go: who waits least, and whether loading, garbage collection or saving has grown.

In synchronous training all ranks' steps take equally long, so the one that waits least is the one the others wait for
(MegaScale; no clock shared between hosts is needed). Ranks are compared within their pipeline stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from pyrometer_kit.prometheus import Prometheus, Series
from pyrometer_kit.promql import quoted

WINDOW = "2m"  # eight samples at 15 s scrapes; NVIDIA's resiliency extension reports every 5 minutes
PARTS = ("data", "gc", "checkpoint", "eval")


@dataclass
class RankEvidence:
    """Columns of `waits`: node, gpu, rank, stage, wait (share of the step); `parts`: part, rank, worst, now, before.

    `worst` is the share of the rank with the largest one, `now` and `before` the median rank's.
    """

    waits: pd.DataFrame = field(default_factory=pd.DataFrame)
    parts: pd.DataFrame = field(default_factory=pd.DataFrame)
    missing: list[str] = field(default_factory=list)


def gather_ranks(prometheus: Prometheus, cluster: str, run: str, onset: float, now: float) -> RankEvidence:
    """Query the shares now and before the drop.

    Raises:
        PrometheusError: a query failed.
    """
    where = f"cluster={quoted(cluster)},run={quoted(run)}"
    evidence = RankEvidence()
    evidence.waits = _table(prometheus.instant(_waits(where), now), ["node", "gpu", "rank", "stage"], "wait")
    share = _share(where, "|".join(PARTS))
    worst = _table(prometheus.instant(f"topk by (part) (1, {share})", now), ["part", "rank"], "worst")
    median = _table(prometheus.instant(f"quantile by (part) (0.5, {share})", now), ["part"], "now")
    before = _table(prometheus.instant(f"quantile by (part) (0.5, {share})", onset - 30), ["part"], "before")
    if not worst.empty:
        evidence.parts = worst.merge(median, on="part", how="left").merge(before, on="part", how="left")
    if evidence.waits.empty and evidence.parts.empty:
        evidence.missing.append("no parts of the steps: the job does not name them (run.part)")
    return evidence


def _share(where: str, parts: str) -> str:
    """Return the query for each rank's share of step time in these parts."""
    part = f'rate(pyrometer_train_step_part_seconds_total{{{where},part=~"{parts}"}}[{WINDOW}])'
    step = f"rate(pyrometer_train_step_seconds_total{{{where}}}[{WINDOW}])"
    by = "run, attempt, rank"
    return f"(max by ({by}, part) ({part}) / on ({by}) group_left () max by ({by}) ({step} > 0))"


def _waits(where: str) -> str:
    """Return the query for the waiting share of each rank, with its GPU."""
    info = f"max by (run, attempt, rank, node, gpu, stage) (pyrometer_train_rank_info{{{where}}})"
    by = "run, attempt, rank"
    return f"{info} * on ({by}) group_left () max by ({by}) {_share(where, 'wait')}"


def _table(result: Sequence[Series], keys: list[str], value: str) -> pd.DataFrame:
    rows = [{**{key: series.labels.get(key, "") for key in keys}, value: series.points[0][1]} for series in result]
    return pd.DataFrame(rows, columns=[*keys, value])
