"""Who uses a sick part: a reporting run, a job with a process on it, nobody, or it is not known.

"Nobody" is said only where the driver lists the processes of every GPU concerned and there are none: a run that does
not report is still a run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from pyrometer_alerting.model.harm import IDLE, PROCESS, SLOWED_BY, UNREPORTED, is_only_slow
from pyrometer_alerting.model.incident import Incident
from pyrometer_alerting.model.places import Topology, touches
from pyrometer_kit.prometheus import Prometheus, PrometheusError
from pyrometer_kit.promql import matching, quoted

MOST_NODES = 50  # of a storm: more are not asked about, and the severity is that of the rule
WINDOW = "[1m]"  # a scrape that is missed ends its series, which does not mean that nobody is there
_RANKS = ("cluster", "node", "run", "attempt", "rank")


def use_of(prometheus: Prometheus, incident: Incident, now: float) -> str:
    """Return who uses the parts of an incident: `run llama-70b`, `job 4711`, PROCESS, IDLE or UNREPORTED.

    Empty where Prometheus does not answer, or for parts of too many nodes.
    """
    firing = [alert.labels for alert in incident.members if alert.firing and alert.labels.get("node")]
    nodes = sorted({labels["node"] for labels in firing})
    if not nodes or len(nodes) > MOST_NODES:
        return ""
    only_gpus = all(labels.get("gpu") for labels in firing)
    gpus = {(labels["node"], labels["gpu"]) for labels in firing if labels.get("gpu")} if only_gpus else set()
    where = f"{{cluster={quoted(incident.cluster)},{matching('node', nodes)}}}"
    ended = f"pyrometer_train_rank_up{where} == 0"
    ranked = f"last_over_time(pyrometer_train_rank_info{where}{WINDOW}) unless on ({', '.join(_RANKS)}) {ended}"
    try:
        ranks = prometheus.instant(ranked, now)
        jobs = prometheus.instant(f"last_over_time(pyrometer_gpu_job_info{where}{WINDOW})", now)
        processes = prometheus.instant(f"last_over_time(pyrometer_gpu_processes{where}{WINDOW})", now)
    except PrometheusError:
        return ""

    runs = {series.labels.get("run", "") for series in ranks if _is_of(series.labels, gpus)} - {""}
    if runs:
        return _named("run", runs)
    ids = {series.labels.get("job_id", "") for series in jobs if _is_of(series.labels, gpus)} - {""}
    if ids:
        return _named("job", ids)
    counted = [series for series in processes if _is_of(series.labels, gpus)]
    seen = {(series.labels.get("node", ""), series.labels.get("gpu", "")) for series in counted}
    is_complete = gpus <= seen if gpus else {node for node, _gpu in seen} == set(nodes)
    if any(series.points[-1][1] > 0 for series in counted):
        return PROCESS
    return IDLE if is_complete else UNREPORTED


def held_up_by_another(
    incident: Incident, use: str, others: Callable[[], Iterable[Incident]], topology: Topology
) -> str:
    """Return who uses a part that is only slow, with what is to blame where the run's diagnosis names another part.

    A blame that is not proven, or one of several causes that is this part, says nothing for the part. The other
    incidents are read only for a part that is slow and no worse.
    """
    if not is_only_slow(incident):
        return use
    for other in others():
        found = other.diagnosis
        if not other.firing or other.cluster != incident.cluster or f"run {other.run}" != use or found is None:
            continue
        first = found.causes[0] if found.names_cause else None
        parts = [cause.labels for cause in found.causes if cause.labels]
        if first and first.confidence != "low" and not touches(incident, parts, topology, found.roster):
            return f"{use}{SLOWED_BY}{first.part if first.labels else first.cause}"
    return use


def _is_of(labels: Mapping[str, str], gpus: Collection[tuple[str, str]]) -> bool:
    """Return whether something is on one of these GPUs, or on their node where no GPU is named."""
    place = labels.get("node", ""), labels.get("gpu", "")
    return not gpus or not place[1] or place in gpus


def _named(kind: str, names: Iterable[str]) -> str:
    # People name runs: no name may read as if another part were to blame.
    first, *rest = sorted(name.replace(SLOWED_BY, " ") for name in names)
    more = f" and {len(rest)} more" if rest else ""
    return f"{kind} {first}{more}"
