"""The roster of a run: its ranks and their GPUs and nodes, and which of these are silent."""

from __future__ import annotations

from collections import defaultdict

from pyrometer_alerting.diagnosis.look import LOOK_BACK_SECONDS, Questions, Rank, attempt_of
from pyrometer_alerting.model.fact import DOMAINS, Roster

LATE_SCRAPES_SECONDS = 150.0  # two scrapes of a minute, the longest interval in use, and their delay
FRESH_SECONDS = 15.0  # a newer sample is no silence, whatever the interval
SILENT_SECONDS = 3600.0  # for which the last sample of a silent node is sought


def ranks_of(questions: Questions) -> tuple[dict[str, Rank], Roster]:
    """Return the ranks of the newest attempt and the roster, with nodes that were silent for up to 15 minutes.

    Raises:
        PrometheusError: a query failed.
    """
    query = f"last_over_time(pyrometer_train_rank_info{questions.of_run()}[{LOOK_BACK_SECONDS:.0f}s])"
    series_list = questions.instant(query)
    attempt = max((attempt_of(series.labels.get("attempt", "")) for series in series_list), default=-1)
    newest = [series.labels for series in series_list if attempt_of(series.labels.get("attempt", "")) == attempt]
    ranks: dict[str, Rank] = {}
    gpus: dict[str, set[str]] = defaultdict(set)
    places: dict[str, dict[str, str]] = {}
    for number, labels in enumerate(newest):
        node, gpu = labels.get("node", ""), labels.get("gpu", "")
        if not node:
            continue
        gpus[node].add(gpu)
        ranks[labels.get("rank") or f"#{number}"] = Rank(node, gpu, labels.get("stage", ""))
        places[node] = {name: labels[name] for name in DOMAINS if labels.get(name)}
    listed = {node: tuple(sorted(names, key=lambda name: (len(name), name))) for node, names in gpus.items()}
    return ranks, Roster(str(attempt), listed, {node: place for node, place in places.items() if place})


def kept_roster(known: Roster | None, now: Roster) -> Roster:
    """Return the roster from before the drop with what came since; another attempt has a roster of its own."""
    if known is None or not known.gpus:
        return now
    if not now.gpus:
        return known
    if known.attempt != now.attempt:
        return now
    return Roster(now.attempt, {**known.gpus, **now.gpus}, {**known.places, **now.places}, ports=known.ports)


def silent_nodes(questions: Questions) -> dict[str, float]:
    """Return the run's nodes without data now, with the time of their last sample (0 where there is none).

    Raises:
        PrometheusError: a query failed.
    """
    name = "DCGM_FI_DEV_SM_CLOCK"
    last = _last_samples(questions, name)
    if not last:  # GPUs of another exporter: then the ranks' own data count
        name = "pyrometer_train_rank_info"
        last = _last_samples(questions, name)
    gone = {node for node in questions.roster.gpus if questions.now - last.get(node, 0.0) > FRESH_SECONDS}
    if unknown := sorted(gone - set(last)):
        query = f"max by (node) (timestamp({name}{questions.of_nodes(nodes=unknown)}))"
        found = questions.prometheus.range(query, questions.now - SILENT_SECONDS, questions.now, 15)
        last |= {series.labels.get("node", ""): series.points[-1][1] for series in found if series.points}
    if not gone:
        return {}
    # One scrape that failed ends the series at once, and is no silence.
    late = _late_seconds(questions)
    return {node: last.get(node, 0.0) for node in sorted(gone) if questions.now - last.get(node, 0.0) > late}


def _late_seconds(questions: Questions) -> float:
    """Return the age from which a node's newest sample is late: three scrapes and a step of the query."""
    query = f"max(count_over_time(up{questions.of_nodes()}[{round(2 * LATE_SCRAPES_SECONDS)}s]))"
    scrapes = questions.values(query, ()).get((), 0.0)
    late = 3.0 * 2 * LATE_SCRAPES_SECONDS / scrapes + 20.0 if scrapes else LATE_SCRAPES_SECONDS
    return min(late, LATE_SCRAPES_SECONDS)


def _last_samples(questions: Questions, name: str) -> dict[str, float]:
    """Return the time of the newest sample by node; a target that fails has none at once, a lost block after 5 min."""
    query = f"max by (node) (timestamp({name}{questions.of_nodes()}))"
    return {node: at for (node,), at in questions.values(query, ("node",)).items()}
