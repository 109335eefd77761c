"""What a digest says: goodput, incidents by cause, failures, repeat offenders, Xids and trends by month.

From Prometheus and from the incidents of our own store. What nobody measured is missing, never zero: each gap is named.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from pyrometer_alerting.digest.mtbf import Mtbf, mtbf
from pyrometer_alerting.model.incident import Incident, part_of
from pyrometer_alerting.prometheus import Prometheus, PrometheusError, Series, quoted

MONTHS = 6
TREND_SECONDS = 30 * 86_400  # over which a part is a repeat offender
LEAST_REPEATS = 2
# A subquery at this step instead of every sample: a month of 60,000 Xid counters is 10 billion samples. Counters lose
# nothing between two steps but what a restart of the exporter forgets.
SUBQUERY_PARTS = 168
_XIDS = 'pyrometer_gpu_xid_errors_total{class=~"warning|critical"}'


@dataclass(frozen=True)
class RunTime:
    """Where the time of a run went, seconds by state of the ledger."""

    cluster: str
    run: str
    seconds: dict[str, float]

    @property
    def goodput(self) -> float:
        """Useful share of all time, 0-1."""
        total = sum(self.seconds.values())
        return self.seconds.get("useful", 0.0) / total if total > 0 else 0.0


@dataclass(frozen=True)
class Offender:
    """A part that keeps failing: GPU or cable, its serial number, where it is, how often and what."""

    kind: str
    serial: str
    place: str
    times: int
    what: str


@dataclass(frozen=True)
class CauseCount:
    """How many incidents had this cause, and the GPU-hours that they cost."""

    cause: str
    incidents: int
    gpu_hours: float


@dataclass(frozen=True)
class Month:
    """One month (`2026-11`): None where nothing was measured."""

    name: str
    xids: float | None
    ecc: float | None
    flaps: float | None


@dataclass(frozen=True)
class DigestReport:
    """Everything; times in Unix seconds."""

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
    offenders: tuple[Offender, ...] = ()
    xids: tuple[tuple[str, str, float], ...] = ()
    months: tuple[Month, ...] = ()
    missing: tuple[str, ...] = ()


class DigestQueries:
    """Asks Prometheus; what fails or is not there becomes a line of `missing`."""

    def __init__(self, prometheus: Prometheus | None) -> None:
        self._prometheus = prometheus
        self.missing: list[str] = []

    def rises(self, by: str, selector: str, start: float, end: float, *, what: str) -> list[Series]:
        """Increase of counters between two times, summed by these labels."""
        span = round(end - start)
        step = max(300, span // SUBQUERY_PARTS)
        query = (
            f"sum by ({by}) (increase({selector}[{span}s:{step}s]))"
            if by
            else f"sum(increase({selector}[{span}s:{step}s]))"
        )
        return self.ask(query, end, what=what)

    def ask(self, query: str, at: float, *, what: str) -> list[Series]:
        """An instant query; empty where there is no answer."""
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
) -> DigestReport:
    """The report of a time; `incidents` are those of the store that concern it."""
    queries = DigestQueries(prometheus)
    if prometheus is None:
        queries.missing.append("no Prometheus is configured: only incidents are counted")
    mine = [incident for incident in incidents if _concerns(incident, start, end)]
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
        offenders=offenders(queries, end),
        xids=xid_table(queries, start, end),
        months=months(queries, end, zone),
        missing=tuple(dict.fromkeys(queries.missing)),
    )


def _concerns(incident: Incident, start: float, end: float) -> bool:
    if incident.joined_into or incident.component == "stack":
        return False
    return incident.started_at < end and (incident.resolved_at is None or incident.resolved_at >= start)


def run_times(queries: DigestQueries, start: float, end: float) -> tuple[RunTime, ...]:
    """Time by run and state, the longest runs first."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for series in queries.rises("cluster, run, state", "pyrometer_run_seconds_total", start, end, what="goodput"):
        key = series.labels.get("cluster", ""), series.labels.get("run", "")
        found.setdefault(key, {})[series.labels.get("state", "other")] = series.points[0][1]
    runs = [RunTime(cluster, run, seconds) for (cluster, run), seconds in found.items() if sum(seconds.values()) >= 1]
    if not runs and queries.missing == []:
        queries.missing.append("goodput: no run ledger (cluster exporter) in this time")
    return tuple(sorted(runs, key=lambda run: (-sum(run.seconds.values()), run.cluster, run.run)))


def failures(queries: DigestQueries, runs: Iterable[RunTime], start: float, end: float) -> Mtbf | None:
    """Restarts of runs in the hours that they ran; None where no ledger says either."""
    hours = sum(sum(run.seconds.values()) - run.seconds.get("down", 0.0) for run in runs) / 3600
    restarts = queries.rises("", "pyrometer_run_restarts_total", start, end, what="restarts")
    if hours <= 0 or not restarts:
        return None
    return mtbf(round(restarts[0].points[0][1]), hours)


def causes(incidents: Iterable[Incident]) -> tuple[CauseCount, ...]:
    """Incidents by their likeliest cause, `unknown` counted like any other, else by their alert; most first."""
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
    """GPUs with Xids, cables with UFM events and ports that flap, again and again within 30 days."""
    start = end - TREND_SECONDS
    gpus = [
        Offender("GPU", _serial(queries, series, end), part_of(series.labels), times, "Xids")
        for series, times in _repeats(queries.rises("cluster, node, gpu, uuid", _XIDS, start, end, what="Xids by GPU"))
    ]
    events = queries.rises("cluster, cable", 'pyrometer_ufm_cable_events_total{cable!=""}', start, end, what="cables")
    cables = [
        Offender("cable", series.labels.get("cable", ""), "", times, "UFM events") for series, times in _repeats(events)
    ]
    flaps = queries.rises(
        "cluster, node, device, port", "pyrometer_nic_link_down_events_total", start, end, what="link flaps by port"
    )
    ports = [
        Offender("port", _cable(queries, series, end), part_of(series.labels), times, "link flaps")
        for series, times in _repeats(flaps)
    ]
    return tuple(sorted([*gpus, *cables, *ports], key=lambda found: -found.times)[:10])


def _repeats(found: Iterable[Series]) -> list[tuple[Series, int]]:
    counted = [(series, round(series.points[0][1])) for series in found]
    return sorted((item for item in counted if item[1] >= LEAST_REPEATS), key=lambda item: -item[1])[:5]


def _serial(queries: DigestQueries, series: Series, end: float) -> str:
    return _label(queries, "pyrometer_gpu_info", {"uuid": series.labels.get("uuid", "")}, "serial", end)


def _cable(queries: DigestQueries, series: Series, end: float) -> str:
    where = {name: series.labels.get(name, "") for name in ("cluster", "node", "device", "port")}
    return _label(queries, "pyrometer_fabric_port_info", where, "cable", end)


def _label(queries: DigestQueries, name: str, where: dict[str, str], label: str, end: float) -> str:
    """One label of an info metric within the last day; empty where it is not known."""
    matchers = ",".join(f"{key}={quoted(value)}" for key, value in where.items())
    found = queries.ask(f"last_over_time({name}{{{matchers}}}[1d])", end, what=f"{label} numbers")
    return found[0].labels.get(label, "") if found else ""


def xid_table(queries: DigestQueries, start: float, end: float) -> tuple[tuple[str, str, float], ...]:
    """(Xid, class, times), most first; only those that happened."""
    found = queries.rises("xid, class", "pyrometer_gpu_xid_errors_total", start, end, what="Xids")
    rows = [
        (series.labels.get("xid", ""), series.labels.get("class", ""), float(round(series.points[0][1])))
        for series in found
    ]
    return tuple(sorted((row for row in rows if row[2] > 0), key=lambda row: (-row[2], row[0])))


def months(queries: DigestQueries, end: float, zone: tzinfo) -> tuple[Month, ...]:
    """The last months, the present one so far; without those of which nothing is known."""
    found = []
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
            found.append(Month(name, *values))
    return tuple(found)


def month_ranges(end: float, zone: tzinfo) -> list[tuple[float, float, str]]:
    """(start, end, name) of the last MONTHS calendar months in this time zone, oldest first."""
    first = datetime.fromtimestamp(end, tz=zone).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    ranges = []
    until = end
    for _ in range(MONTHS):
        ranges.append((first.timestamp(), until, first.strftime("%Y-%m")))
        until = first.timestamp()
        first = (first - timedelta(days=1)).replace(day=1)
    return [item for item in reversed(ranges) if item[1] - item[0] >= 300]


def _total(found: list[Series]) -> float | None:
    return float(round(found[0].points[0][1])) if found else None
