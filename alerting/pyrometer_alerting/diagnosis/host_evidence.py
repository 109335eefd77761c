"""Query what hosts and ranks report: Xids, PCIe, port rates, kernel events, pressure, and where the steps go.

Each answer is a frame; an empty one means that nothing was found or that nobody measures it. In synchronous training
all ranks' steps take equally long, so the one that waits least is the one the others wait for (MegaScale; no clock
shared between hosts is needed). Ranks are compared within their pipeline stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from pyrometer_kit.prometheus import Prometheus, Series
from pyrometer_kit.promql import matching, quoted

PRESSURE_SECONDS = 120
# node_exporter, from /proc/pressure: seconds in which some task had to wait for the resource.
_PRESSURE = {
    "CPU": "node_pressure_cpu_waiting_seconds_total",
    "memory": "node_pressure_memory_waiting_seconds_total",
    "disk and network storage": "node_pressure_io_waiting_seconds_total",
}
BAD_EVENTS = ("oom_kill", "machine_check", "pcie_aer", "sxid", "nvme", "soft_lockup")


@dataclass
class HostEvidence:
    """Columns of `xids`: node, gpu, xid, count; `pcie`: node, gpu, lanes; `rates`: node, device, port, ratio.

    `events`: node, kind, count; `pressure`: node, resource, now, before, usual (the median of the run's nodes).
    """

    xids: pd.DataFrame = field(default_factory=pd.DataFrame)
    pcie: pd.DataFrame = field(default_factory=pd.DataFrame)
    rates: pd.DataFrame = field(default_factory=pd.DataFrame)
    events: pd.DataFrame = field(default_factory=pd.DataFrame)
    pressure: pd.DataFrame = field(default_factory=pd.DataFrame)
    missing: list[str] = field(default_factory=list)


def gather_host(prometheus: Prometheus, cluster: str, nodes: Sequence[str], onset: float, now: float) -> HostEvidence:
    """Query these nodes now, and before the drop where a comparison is needed.

    Raises:
        PrometheusError: a query failed.
    """
    where = f"cluster={quoted(cluster)},{matching('node', nodes)}"
    since = max(round(now - onset) + 120, 300)
    evidence = HostEvidence()
    xids = f'pyrometer_gpu_xid_errors_total{{{where},class=~"warning|critical"}}'
    evidence.xids = _table(
        prometheus.instant(f"round(increase({xids}[{since}s])) > 0", now), ["node", "gpu", "xid"], "count"
    )
    lanes, full = f"DCGM_FI_DEV_PCIE_LINK_WIDTH{{{where}}}", f"DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH{{{where}}}"
    evidence.pcie = _table(
        prometheus.instant(f"max by (node, gpu) ({lanes}) < max by (node, gpu) ({full})", now), ["node", "gpu"], "lanes"
    )
    rate, most = "pyrometer_nic_link_rate_bits_per_second", "pyrometer_nic_link_rate_max_bits_per_second"
    by = "by (node, device, port)"
    evidence.rates = _table(
        prometheus.instant(f"max {by} ({rate}{{{where}}} > 0) / max {by} ({most}{{{where}}}) < 1", now),
        ["node", "device", "port"],
        "ratio",
    )
    events = f"pyrometer_kernel_events_total{{{where},{matching('kind', BAD_EVENTS)}}}"
    evidence.events = _table(
        prometheus.instant(f"round(increase({events}[{since}s])) > 0", now), ["node", "kind"], "count"
    )
    evidence.pressure = _pressures(prometheus, where, onset, now)
    if evidence.pressure.empty and not _has_pressure(prometheus, where, now):
        evidence.missing.append("no CPU, memory or disk pressure of the nodes (node_exporter is not scraped there)")
    return evidence


def _pressures(prometheus: Prometheus, where: str, onset: float, now: float) -> pd.DataFrame:
    """Return hosts whose tasks wait over 10 % of the time, clearly more than before and than on other hosts."""
    frames = [
        _pressure(prometheus, resource, f"max by (node) (rate({name}{{{where}}}[{PRESSURE_SECONDS}s]))", onset, now)
        for resource, name in _PRESSURE.items()
    ]
    return pd.concat(frames, ignore_index=True)


def _pressure(prometheus: Prometheus, resource: str, query: str, onset: float, now: float) -> pd.DataFrame:
    current = _table(prometheus.instant(query, now), ["node"], "now")
    if current.empty:
        return pd.DataFrame(columns=["node", "resource", "now", "before", "usual"])
    before = _table(prometheus.instant(query, onset - 30), ["node"], "before")
    frame = current.merge(before, on="node", how="left").assign(resource=resource, usual=current["now"].median())
    risen = (
        (frame["now"] > 0.1) & (frame["now"] > 2 * frame["usual"]) & (frame["now"] > frame["before"].fillna(0) + 0.08)
    )
    return frame[risen]


def _has_pressure(prometheus: Prometheus, where: str, now: float) -> bool:
    return bool(prometheus.instant(f"count({_PRESSURE['CPU']}{{{where}}})", now))


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
