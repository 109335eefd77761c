"""Query Prometheus about the GPUs and links of a training run, as pandas frames.

Import this late, in the diagnosis worker: pandas is slow to import and nothing else needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from pyrometer_alerting.diagnosis.examination import Examination, examine
from pyrometer_alerting.diagnosis.host_evidence import HostEvidence, RankEvidence, gather_host, gather_ranks
from pyrometer_alerting.diagnosis.signature import Drop
from pyrometer_alerting.model.incident import Alert, Shape
from pyrometer_alerting.model.text import clock_utc
from pyrometer_alerting.sources.batches import run_of
from pyrometer_alerting.sources.topology import Port, ports_at
from pyrometer_kit.prometheus import Prometheus, PrometheusError, Series
from pyrometer_kit.promql import matching, quoted

WINDOW_SECONDS = 300  # in which a throttle or a flap counts
LOOK_BACK_SECONDS = 900  # in which the onset of the drop is sought
STEP_SECONDS = 5  # the smallest scrape interval in use
CLOCK_SECONDS = 60  # over which a clock is judged: four scrapes of 15 s
QUIET_SECONDS = 60  # after this long without an increment a counter's rise is over
THROTTLE_REASONS = ("hw_thermal", "sw_thermal", "hw_power_brake", "hw_slowdown")
MAX_SUSPECT_NODES = 20


@dataclass
class Evidence:
    """The evidence on one run; every frame may be empty.

    Columns of `gpus`: node, gpu; of `throttles`: node, gpu, reason, seconds, onset, last, span; of `flaps`: node,
    device, port, downs, onset, last, span; of `clocks`: node, gpu, lowest and highest (SM clock, MHz), celsius. `racks`
    are those of the nodes where the target label is set, `ports` those at a switch or rail that fires.
    """

    nodes: tuple[str, ...] = ()
    racks: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[Port, ...] = ()
    gpus: pd.DataFrame = field(default_factory=pd.DataFrame)
    throttles: pd.DataFrame = field(default_factory=pd.DataFrame)
    flaps: pd.DataFrame = field(default_factory=pd.DataFrame)
    clocks: pd.DataFrame = field(default_factory=pd.DataFrame)
    hosts: HostEvidence = field(default_factory=HostEvidence)
    ranks: RankEvidence = field(default_factory=RankEvidence)
    looked: Examination | None = None
    shape: Shape | None = None
    onset: float | None = None
    missing: list[str] = field(default_factory=list)


def gather(
    prometheus: Prometheus,
    cluster: str,
    run: str,
    now: float,
    *,
    alerts: Sequence[Alert] = (),
    quick: bool = False,
    drop: Drop | None = None,
) -> Evidence:
    """Gather all evidence; gaps are named in `missing`, and after the first failed query nothing more is asked.

    `alerts` are possible causes: whether the run is on a switch that they name is queried. `quick` asks only for what
    names the culprit of most drops, since the first message waits for it. `drop` is the one that the run's incident
    reports.
    """
    evidence = Evidence()
    questions = _Questions(prometheus, cluster, run, now)
    try:
        ranks = questions.ranks()
        evidence.gpus = ranks[["node", "gpu"]].drop_duplicates().reset_index(drop=True)
        evidence.racks = racks_of(ranks)
        evidence.nodes = tuple(sorted(set(evidence.gpus.get("node", pd.Series(dtype=str)))))
        evidence.onset = drop_onset(questions.mfu())
        if not evidence.nodes:
            evidence.missing.append("no data on which nodes the run uses")
            return evidence
        evidence.throttles = questions.throttles(evidence.nodes)
        evidence.flaps = questions.flaps(evidence.nodes)
        evidence.clocks = questions.clocks(evidence.nodes)
        evidence.ports = ports_at(prometheus, cluster, evidence.nodes, alerts, now)
        evidence.missing += questions.silent(evidence.nodes, evidence.clocks)
        if not quick:
            _gather_more(questions, evidence, drop)
    except PrometheusError as error:
        evidence.missing.append(str(error))
    return evidence


def _gather_more(questions: _Questions, evidence: Evidence, drop: Drop | None) -> None:
    prometheus, cluster, run, now = questions.prometheus, questions.cluster, questions.run, questions.now
    onset = evidence.onset if evidence.onset is not None else now - WINDOW_SECONDS
    try:
        dated_drop = drop.seen_at(evidence.onset) if drop is not None else None
        evidence.looked = examine(prometheus, run_of(prometheus, cluster, run, now), now, drop=dated_drop)
        evidence.shape = evidence.looked.shape() if evidence.looked is not None else None
    except PrometheusError as error:
        evidence.missing.append(f"MFU of the batches: {error}")
    evidence.ranks = gather_ranks(prometheus, cluster, run, onset, now)
    evidence.hosts = gather_host(prometheus, cluster, evidence.nodes, onset, now)


@dataclass(frozen=True)
class _Questions:
    """The queries for one run at one time."""

    prometheus: Prometheus
    cluster: str
    run: str
    now: float

    def ranks(self) -> pd.DataFrame:
        """Return the ranks of the newest attempt (node, gpu, rack), including nodes silent for up to 15 min."""
        selector = f"pyrometer_train_rank_info{{cluster={quoted(self.cluster)},run={quoted(self.run)}}}"
        frame = _frame(self.prometheus.instant(f"last_over_time({selector}[{LOOK_BACK_SECONDS}s])", self.now))
        if frame.empty or not {"node", "gpu"} <= set(frame.columns):
            return pd.DataFrame(columns=["node", "gpu"])
        if "attempt" in frame.columns:
            attempts = pd.to_numeric(frame["attempt"], errors="coerce").fillna(-1)
            frame = frame[attempts == attempts.max()]
        return frame

    def mfu(self) -> pd.Series[float]:
        """Return MFU by time over the look-back; one batch per 5 s is enough to see where it fell."""
        selector = f"pyrometer_train_batch_mfu_ratio{{cluster={quoted(self.cluster)},run={quoted(self.run)}}}"
        query = f"max(avg_over_time({selector}[{STEP_SECONDS}s]))"
        result = self.prometheus.range(query, self.now - LOOK_BACK_SECONDS, self.now, STEP_SECONDS)
        return _series(result[0]) if result else pd.Series(dtype=float)

    def throttles(self, nodes: Sequence[str]) -> pd.DataFrame:
        """Return GPUs of these nodes that spent time under a slowing clock-event reason, and since when."""
        labels = f"{matching('node', nodes)},{matching('reason', THROTTLE_REASONS)}"
        name = "pyrometer_gpu_clock_event_seconds_total"
        return self._rises(name, labels, ["node", "gpu", "reason"], "seconds", least=0.5)

    def flaps(self, nodes: Sequence[str]) -> pd.DataFrame:
        """Return ports of these nodes whose link went down, how often and since when."""
        keys = ["node", "device", "port"]
        return self._rises("pyrometer_nic_link_down_events_total", matching("node", nodes), keys, "downs", least=0.5)

    def _rises(self, name: str, labels: str, keys: list[str], amount: str, *, least: float) -> pd.DataFrame:
        """Return where a counter rose in the window: first which series (cheap), then when, for those only."""
        columns = [*keys, amount, "onset", "last", "span"]
        where = f"cluster={quoted(self.cluster)},{labels}"
        risen = self.prometheus.instant(f"increase({name}{{{where}}}[{WINDOW_SECONDS}s]) > {least}", self.now)
        if not risen:
            return pd.DataFrame(columns=columns)
        worst = sorted(risen, key=lambda series: -series.points[0][1])
        nodes = list(dict.fromkeys(series.labels.get("node", "") for series in worst))[:MAX_SUSPECT_NODES]
        query = f"{name}{{{where},{matching('node', nodes)}}}"
        start = self.now - 2 * WINDOW_SECONDS
        rows = [
            {**{key: series.labels.get(key, "") for key in keys}, **rise}
            for series in self.prometheus.range(query, start, self.now, STEP_SECONDS)
            if (rise := last_rise(_series(series), amount, self.now)) is not None
        ]
        return pd.DataFrame(rows, columns=columns)

    def clocks(self, nodes: Sequence[str]) -> pd.DataFrame:
        """Return lowest and highest SM clock and highest temperature of every GPU of these nodes over the last minute.

        Present values would mislead: a GPU that cools down has its clock back before the batches show it.
        """
        where = f"{{cluster={quoted(self.cluster)},{matching('node', nodes)}}}[{CLOCK_SECONDS}s]"
        frames = []
        for column, expression in (
            ("lowest", f"min by (node, gpu) (min_over_time(DCGM_FI_DEV_SM_CLOCK{where}))"),
            ("highest", f"max by (node, gpu) (max_over_time(DCGM_FI_DEV_SM_CLOCK{where}))"),
            ("celsius", f"max by (node, gpu) (max_over_time(DCGM_FI_DEV_GPU_TEMP{where}))"),
        ):
            frame = _frame(self.prometheus.instant(expression, self.now))
            frames.append(frame.rename(columns={"value": column}).reindex(columns=["node", "gpu", column]))
        clocks = frames[0].merge(frames[1], on=["node", "gpu"], how="left")
        return clocks.merge(frames[2], on=["node", "gpu"], how="left")

    def silent(self, nodes: Sequence[str], clocks: pd.DataFrame) -> list[str]:
        """Return `no data from gpu-300 since 03:12:05 UTC` for every node of the run without GPU data now."""
        gone = sorted(set(nodes) - set(clocks["node"]))
        if not gone:
            return []
        where = f"{{cluster={quoted(self.cluster)},{matching('node', gone)}}}"
        query = f"max by (node) (timestamp(DCGM_FI_DEV_SM_CLOCK{where}))"
        last_seen = {
            series.labels.get("node", ""): series.points[-1][1]
            for series in self.prometheus.range(query, self.now - 3600, self.now, 15)
        }
        notes = [
            f"no data from {node} since {clock_utc(last_seen[node])}" if node in last_seen else f"no data from {node}"
            for node in gone[:3]
        ]
        return notes + ([f"no data from {len(gone) - 3} more nodes"] if len(gone) > 3 else [])


def racks_of(ranks: pd.DataFrame) -> dict[str, str]:
    """Return the rack of each node that has the target label."""
    if "rack" not in ranks.columns:
        return {}
    pairs = ranks[["node", "rack"]].dropna()
    return {str(node): str(rack) for node, rack in pairs.itertuples(index=False) if rack}


def drop_onset(mfu: pd.Series[float]) -> float | None:
    """Return when the MFU last fell from its good level to the present one; None if it is not lower now."""
    if len(mfu) < 6:
        return None
    smooth = mfu.rolling(3, center=True, min_periods=1).median()
    good, present = float(smooth.quantile(0.9)), float(smooth.iloc[-3:].median())
    if present > 0.95 * good:
        return None
    high = smooth[smooth > (good + present) / 2]
    later = smooth.index[smooth.index > high.index[-1]] if len(high) else smooth.index
    return float(later[0]) if len(later) else None


def last_rise(counter: pd.Series[float], amount: str, now: float) -> dict[str, float] | None:
    """Return a counter's last rise: how much, since when, until when, over how many seconds.

    The first increment is more precise than the grid: a counter of seconds that rose by 3 started 3 s ago.
    """
    increments = counter.diff().clip(lower=0.0)
    rising = increments[increments > 0]
    rising = rising[rising.index > now - WINDOW_SECONDS]
    if rising.empty:
        return None
    times = rising.index.to_series()
    stretch = (times.diff() > QUIET_SECONDS).cumsum()
    newest = rising[(stretch == stretch.iloc[-1]).to_numpy()]
    first, last = float(newest.index[0]), float(newest.index[-1])
    began = max(first - STEP_SECONDS, first - float(newest.iloc[0])) if amount == "seconds" else first
    return {amount: float(newest.sum()), "onset": began, "last": last, "span": max(last - began, 1.0)}


def _series(series: Series) -> pd.Series[float]:
    points = dict(series.points)
    values: pd.Series[float] = pd.Series(list(points.values()), index=list(points), dtype=float)
    return values.dropna()


def _frame(vector: Sequence[Series]) -> pd.DataFrame:
    return pd.DataFrame([{**series.labels, "value": series.points[0][1]} for series in vector])
