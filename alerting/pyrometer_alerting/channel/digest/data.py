"""Gather a digest's data: goodput, incidents by cause, failures, repeat offenders, Xids and trends by month.

The sources are Prometheus and the incidents in the store. A value that nobody measured is missing,
never zero: each gap is named.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from pyrometer_alerting.channel.digest.mtbf import Mtbf, mtbf
from pyrometer_alerting.model.incident import Incident, part_of
from pyrometer_kit.prometheus import Prometheus, PrometheusError, Series
from pyrometer_kit.promql import matching, quoted

MONTHS = 6
TREND_SECONDS = 30 * 86_400  # the period in which a part is a repeat offender
LEAST_REPEATS = 2
# Subqueries take this many steps instead of every sample, which would be billions for a month of a large cluster.
# Between two steps counters lose only what a restart of the exporter resets.
SUBQUERY_PARTS = 168
_XIDS = 'pyrometer_gpu_xid_errors_total{class=~"warning|critical"}'


@dataclass(frozen=True)
class RunTime:
    """The time of a run, in seconds by state of the ledger; ``whose`` are its user and jobs, `ada, 4711 and 2 more`."""

    cluster: str
    run: str
    seconds: dict[str, float]
    whose: str = ""

    @property
    def goodput(self) -> float:
        """Useful share of all time, 0-1."""
        total = sum(self.seconds.values())
        return self.seconds.get("useful", 0.0) / total if total > 0 else 0.0


@dataclass(frozen=True)
class Offender:
    """A part that fails repeatedly: kind, serial number, place, how often and what."""

    kind: str
    serial: str
    place: str
    times: int
    what: str
    cluster: str = ""


@dataclass(frozen=True)
class ClusterShare:
    """One of several clusters: the useful share of its runs' time (None without a ledger), incidents, losses."""

    cluster: str
    goodput: float | None
    incidents: int
    firing: int
    gpu_hours: float


@dataclass(frozen=True)
class CauseCount:
    """The number of incidents with this cause, and the GPU-hours that they cost."""

    cause: str
    incidents: int
    gpu_hours: float


@dataclass(frozen=True)
class Month:
    """One month (`2026-11`); None for what was not measured."""

    name: str
    xids: float | None
    ecc: float | None
    flaps: float | None


@dataclass(frozen=True)
class DigestReport:
    """All data of one digest; times are Unix seconds."""

    kind: str
    start: float
    end: float
    runs: tuple[RunTime, ...] = ()
    failures: Mtbf | None = None
    causes: tuple[CauseCount, ...] = ()
    incidents: int = 0
    firing: int = 0
    median_seconds: float | None = None
    gpu_hours: float = 0.0
    dead: int = 0
    judged_right: int = 0
    judged_wrong: int = 0
    offenders: tuple[Offender, ...] = ()
    xids: tuple[tuple[str, str, float], ...] = ()
    months: tuple[Month, ...] = ()
    missing: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    """Those that the digest is about; none is all."""
    shares: tuple[ClusterShare, ...] = ()

    @property
    def several(self) -> bool:
        """True if names of runs and nodes need their cluster beside them."""
        return len({*(share.cluster for share in self.shares), *(part.cluster for part in self.offenders)} - {""}) > 1


class DigestQueries:
    """Queries Prometheus about some clusters, or all; each failure becomes a line of `missing`."""

    def __init__(self, prometheus: Prometheus | None, clusters: Sequence[str] = ()) -> None:
        self._prometheus = prometheus
        self._chosen = matching("cluster", clusters) if clusters else ""
        self.missing: list[str] = []

    def rises(self, by: str, selector: str, start: float, end: float, *, what: str) -> list[Series]:
        """Return the increase of counters between two times, summed by these labels."""
        span, selector = round(end - start), self._of(selector)
        step = max(300, span // SUBQUERY_PARTS)
        query = (
            f"sum by ({by}) (increase({selector}[{span}s:{step}s]))"
            if by
            else f"sum(increase({selector}[{span}s:{step}s]))"
        )
        return self.ask(query, end, what=what)

    def labels(self, by: str, selector: str, start: float, end: float, *, what: str) -> list[Series]:
        """Return these labels of what was there between two times."""
        span = round(end - start)
        step = max(300, span // SUBQUERY_PARTS)
        return self.ask(f"group by ({by}) (last_over_time({self._of(selector)}[{span}s:{step}s]))", end, what=what)

    def _of(self, selector: str) -> str:
        """Return the selector with its clusters: `up{job="node"}` becomes `up{cluster=~"prod-a",job="node"}`."""
        name, _, matchers = selector.removesuffix("}").partition("{")
        chosen = ",".join(filter(None, (self._chosen, matchers)))
        return f"{name}{{{chosen}}}" if chosen else name

    def ask(self, query: str, at: float, *, what: str) -> list[Series]:
        """Return the result of an instant query; empty if it failed."""
        if self._prometheus is None:
            return []
        try:
            return self._prometheus.instant(query, at)
        except PrometheusError as error:
            self.missing.append(f"{what}: {error}")
            return []


def gather(
    prometheus: Prometheus | None,
    incidents: Sequence[Incident],
    kind: str,
    *,
    start: float,
    end: float,
    zone: tzinfo,
    dead: int = 0,
    judged: tuple[int, int] = (0, 0),
    clusters: Sequence[str] = (),
) -> DigestReport:
    """Gather a digest's data; `incidents` are the candidates from the store, `judged` diagnoses right and wrong.

    Without `clusters` it is about all of them.
    """
    queries = DigestQueries(prometheus, clusters)
    if prometheus is None:
        queries.missing.append("no Prometheus is configured: only incidents are counted")
    mine = [
        incident
        for incident in incidents
        if _concerns(incident, start, end) and (not clusters or incident.cluster in clusters)
    ]
    lasted = [incident.resolved_at - incident.started_at for incident in mine if incident.resolved_at is not None]
    runs = run_times(queries, start, end)
    return DigestReport(
        kind=kind,
        start=start,
        end=end,
        runs=runs,
        failures=failures(queries, runs, start, end),
        causes=causes(mine),
        incidents=len(mine),
        firing=sum(incident.firing for incident in mine),
        median_seconds=statistics.median(lasted) if lasted else None,
        gpu_hours=sum(_gpu_hours(incident) for incident in mine),
        dead=dead,
        judged_right=judged[0],
        judged_wrong=judged[1],
        offenders=offenders(queries, end),
        xids=xid_table(queries, start, end),
        months=months(queries, end, zone),
        missing=tuple(dict.fromkeys(queries.missing)),
        clusters=tuple(clusters),
        shares=shares(runs, mine),
    )


def shares(runs: Sequence[RunTime], incidents: Sequence[Incident]) -> tuple[ClusterShare, ...]:
    """Return the figures of each cluster that has a run or an incident, the most GPU-hours lost first."""
    found = []
    for name in {*(run.cluster for run in runs), *(incident.cluster for incident in incidents)}:
        own = [incident for incident in incidents if incident.cluster == name]
        firing, lost = sum(incident.firing for incident in own), sum(map(_gpu_hours, own))
        found.append(ClusterShare(name, goodput([run for run in runs if run.cluster == name]), len(own), firing, lost))
    return tuple(sorted(found, key=lambda share: (-share.gpu_hours, -share.incidents, share.cluster)))


def goodput(runs: Sequence[RunTime]) -> float | None:
    """Return the useful share of the time of these runs; None without a ledger."""
    total = sum(sum(run.seconds.values()) for run in runs)
    return sum(run.seconds.get("useful", 0.0) for run in runs) / total if total > 0 else None


def _concerns(incident: Incident, start: float, end: float) -> bool:
    if incident.joined_into or incident.component == "stack":
        return False
    return incident.started_at < end and (incident.resolved_at is None or incident.resolved_at >= start)


def run_times(queries: DigestQueries, start: float, end: float) -> tuple[RunTime, ...]:
    """Return time by run and state, the longest runs first; jobs that continue each other are one run."""
    rises = queries.rises("cluster, run, job_id, state", "pyrometer_run_seconds_total", start, end, what="goodput")
    infos = queries.labels("cluster, run, job_id, user, lineage", "pyrometer_run_job_info", start, end, what="goodput")
    known = {_job(series.labels): series.labels for series in infos}
    seconds_by_run: dict[tuple[str, str, str], dict[str, float]] = {}
    jobs: dict[tuple[str, str, str], dict[str, str]] = {}
    for series in rises:
        cluster, run, job_id = _job(series.labels)
        info = known.get((cluster, run, job_id), {})
        key = cluster, run, info.get("lineage") or job_id
        seconds, state = seconds_by_run.setdefault(key, {}), series.labels.get("state", "other")
        seconds[state] = seconds.get(state, 0.0) + series.points[0][1]
        jobs.setdefault(key, {})[job_id] = info.get("user", "")
    runs = [
        RunTime(key[0], key[1], seconds, _whose(key[2], jobs[key]))
        for key, seconds in seconds_by_run.items()
        if sum(seconds.values()) >= 1
    ]
    if not runs and queries.missing == []:
        queries.missing.append("goodput: no run ledger (cluster exporter) in this period")
    return tuple(sorted(runs, key=lambda run: (-sum(run.seconds.values()), run.cluster, run.run, run.whose)))


def _job(labels: Mapping[str, str]) -> tuple[str, str, str]:
    return labels.get("cluster", ""), labels.get("run", ""), labels.get("job_id", "")


def _whose(first: str, users: Mapping[str, str]) -> str:
    """Return `ada, 4711 and 2 more`: the user and the jobs of a run, of which the first names it."""
    more = len(users.keys() - {first, ""})
    named = [*filter(None, (next(filter(None, users.values()), ""), first))]
    return ", ".join(named) + (f" and {more} more" if named and more else "")


def failures(queries: DigestQueries, runs: Iterable[RunTime], start: float, end: float) -> Mtbf | None:
    """Return the MTBF from restarts and hours of runs; None if no ledger has either."""
    hours = sum(sum(run.seconds.values()) - run.seconds.get("down", 0.0) for run in runs) / 3600
    restarts = queries.rises("", "pyrometer_run_restarts_total", start, end, what="restarts")
    if hours <= 0 or not restarts:
        return None
    return mtbf(round(restarts[0].points[0][1]), hours)


def causes(incidents: Iterable[Incident]) -> tuple[CauseCount, ...]:
    """Count incidents by likeliest cause, else by alert; `unknown` is a cause; the most frequent first."""
    counts: Counter[str] = Counter()
    cost: dict[str, float] = {}
    for incident in incidents:
        name = _cause(incident)
        counts[name] += 1
        cost[name] = cost.get(name, 0.0) + _gpu_hours(incident)
    ordered = sorted(counts, key=lambda name: (-counts[name], -cost[name], name))
    return tuple(CauseCount(name, counts[name], cost[name]) for name in ordered)


def _cause(incident: Incident) -> str:
    if not incident.wants_diagnosis:
        return incident.alertname
    first = incident.diagnosis.causes[0] if incident.diagnosis is not None and incident.diagnosis.causes else None
    return first.cause if first is not None and first.cause else "unknown"


def _gpu_hours(incident: Incident) -> float:
    cost = incident.diagnosis.cost if incident.diagnosis is not None else None
    return cost.gpu_hours if cost is not None else 0.0


def offenders(queries: DigestQueries, end: float) -> tuple[Offender, ...]:
    """Return GPUs with Xids, cables with UFM events and flapping ports that failed repeatedly within 30 days."""
    start = end - TREND_SECONDS
    gpus = [
        Offender("GPU", _serial(queries, series, end), part_of(series.labels), times, "Xids", _cluster(series))
        for series, times in _repeats(queries.rises("cluster, node, gpu, uuid", _XIDS, start, end, what="Xids by GPU"))
    ]
    events = queries.rises("cluster, cable", 'pyrometer_ufm_cable_events_total{cable!=""}', start, end, what="cables")
    cables = [
        Offender("cable", series.labels.get("cable", ""), "", times, "UFM events", _cluster(series))
        for series, times in _repeats(events)
    ]
    flaps = queries.rises(
        "cluster, node, device, port", "pyrometer_nic_link_down_events_total", start, end, what="link flaps by port"
    )
    ports = [
        Offender("port", _cable(queries, series, end), part_of(series.labels), times, "link flaps", _cluster(series))
        for series, times in _repeats(flaps)
    ]
    return tuple(sorted([*gpus, *cables, *ports], key=lambda found: -found.times)[:10])


def _repeats(series_list: Iterable[Series]) -> list[tuple[Series, int]]:
    counted = [(series, round(series.points[0][1])) for series in series_list]
    return sorted((item for item in counted if item[1] >= LEAST_REPEATS), key=lambda item: -item[1])[:5]


def _cluster(series: Series) -> str:
    return series.labels.get("cluster", "")


def _serial(queries: DigestQueries, series: Series, end: float) -> str:
    where = {name: series.labels.get(name, "") for name in ("cluster", "uuid")}
    return _label(queries, "pyrometer_gpu_info", where, "serial", end)


def _cable(queries: DigestQueries, series: Series, end: float) -> str:
    where = {name: series.labels.get(name, "") for name in ("cluster", "node", "device", "port")}
    return _label(queries, "pyrometer_fabric_port_info", where, "cable", end)


def _label(queries: DigestQueries, name: str, where: dict[str, str], label: str, end: float) -> str:
    """Return one label of an info metric within the last day; empty if unknown."""
    matchers = ",".join(f"{key}={quoted(value)}" for key, value in where.items())
    result = queries.ask(f"last_over_time({name}{{{matchers}}}[1d])", end, what=f"{label} numbers")
    return result[0].labels.get(label, "") if result else ""


def xid_table(queries: DigestQueries, start: float, end: float) -> tuple[tuple[str, str, float], ...]:
    """Return (Xid, class, count) of those that occurred, the most frequent first."""
    result = queries.rises("xid, class", "pyrometer_gpu_xid_errors_total", start, end, what="Xids")
    rows = [
        (series.labels.get("xid", ""), series.labels.get("class", ""), float(round(series.points[0][1])))
        for series in result
    ]
    return tuple(sorted((row for row in rows if row[2] > 0), key=lambda row: (-row[2], row[0])))


def months(queries: DigestQueries, end: float, zone: tzinfo) -> tuple[Month, ...]:
    """Return the last months, the present one so far; those without any data are left out."""
    rows = []
    for start, until, name in month_ranges(end, zone):
        values = [
            _total(queries.rises("", selector, start, until, what=what))
            for selector, what in (
                (_XIDS, "Xids by month"),
                ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "memory errors by month"),
                ("pyrometer_nic_link_down_events_total", "link flaps by month"),
            )
        ]
        if any(value is not None for value in values):
            rows.append(Month(name, *values))
    return tuple(rows)


def month_ranges(end: float, zone: tzinfo) -> list[tuple[float, float, str]]:
    """Return (start, end, name) of the last MONTHS calendar months in this period zone, oldest first."""
    first = datetime.fromtimestamp(end, tz=zone).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    ranges = []
    until = end
    for _ in range(MONTHS):
        ranges.append((first.timestamp(), until, first.strftime("%Y-%m")))
        until = first.timestamp()
        first = (first - timedelta(days=1)).replace(day=1)
    return [item for item in reversed(ranges) if item[1] - item[0] >= 300]


def _total(result: list[Series]) -> float | None:
    return float(round(result[0].points[0][1])) if result else None
