"""Facts about the run itself: its roster, nodes that fell silent, changes of configuration, restarts, planned work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping

from pyrometer_alerting.diagnosis.look import LOOK_BACK_SECONDS, STANDS_SECONDS, Look, Questions, Rank, middle
from pyrometer_alerting.model.alert_names import STALLS
from pyrometer_alerting.model.fact import DOMAINS, Fact, Roster
from pyrometer_alerting.model.incident import Incident
from pyrometer_kit.prometheus import Series
from pyrometer_kit.promql import quoted

CONFIGURATION = (
    "model",
    "dtype",
    "convention",
    "world_size",
    "global_batch_size",
    "micro_batch_size",
    "sequence_length",
    "recompute",
    "source",
)
STALL = 2.0  # times the usual step: what the curve's classes call deep
LEAST_PAUSE = 0.2  # of the usual step: less is its noise
BETWEEN_STALLS_SECONDS = 300.0  # longer pauses are between two troubles
PLANNED_SHARE = 0.3  # of the batches since the drop
LATE_SCRAPES_SECONDS = 150.0  # two scrapes of a minute, the longest interval in use, and their delay
FRESH_SECONDS = 15.0  # a newer sample is no silence, whatever the interval
SILENT_SECONDS = 3600.0  # for which the last sample of a silent node is sought


def ranks_of(questions: Questions) -> tuple[str, dict[str, Rank], Roster]:
    """Return the newest attempt, its ranks and the roster, with nodes that were silent for up to 15 minutes.

    Raises:
        PrometheusError: a query failed.
    """
    query = f"last_over_time(pyrometer_train_rank_info{questions.of_run()}[{LOOK_BACK_SECONDS:.0f}s])"
    series_list = questions.instant(query)
    attempt = max((_number(series.labels.get("attempt", "")) for series in series_list), default=-1)
    newest = [series.labels for series in series_list if _number(series.labels.get("attempt", "")) == attempt]
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
    return str(attempt), ranks, Roster(str(attempt), listed, {node: place for node, place in places.items() if place})


def kept_roster(known: Roster | None, now: Roster) -> Roster:
    """Return the roster from before the drop with what came since; another attempt has a roster of its own."""
    if known is None or not known.gpus:
        return now
    if not now.gpus:
        return known
    if known.attempt != now.attempt:
        return now
    return Roster(now.attempt, {**known.gpus, **now.gpus}, {**known.places, **now.places}, ports=known.ports)


def stalls(incident: Incident) -> bool:
    """Return whether the run stalls now and then, and is fast in between."""
    return any(alert.name == STALLS and alert.firing for alert in incident.members)


def onset_without_a_fall(questions: Questions) -> float | None:
    """Return since when a run is stopped or stalls again and again, which no level of its MFU shows; None otherwise.

    Raises:
        PrometheusError: a query failed.
    """
    return stalls_since(questions) if stalls(questions.incident) else stopped_at(questions)


def stalls_since(questions: Questions) -> float | None:
    """Return when the first of the stalls began that have come one after the other since.

    Raises:
        PrometheusError: a query failed.
    """
    run, window = questions.of_run(), f"[{2 * LOOK_BACK_SECONDS:.0f}s]"
    steps = [
        point
        for series in questions.instant(f"pyrometer_train_batch_step_seconds{run}{window}")
        for point in series.points
    ]
    tags = questions.instant(f"pyrometer_train_batch_tag{run}{window}")
    planned = {at for series in tags for at, _one in series.points}
    usual = middle(seconds for _at, seconds in steps)
    if usual is None:
        return None
    stalled = [(at, seconds) for at, seconds in steps if seconds > STALL * usual and at not in planned]
    first: float | None = None
    last = questions.now
    for at, seconds in sorted(stalled or _long_pauses(steps, planned, usual), reverse=True):
        if last - at > BETWEEN_STALLS_SECONDS:
            break
        first, last = at - seconds, at
    return first


def _long_pauses(
    steps: Iterable[tuple[float, float]], planned: Container[float], usual: float
) -> list[tuple[float, float]]:
    """Return the tagged steps, such as checkpoints, whose pause is far longer than the run's shorter ones."""
    pauses = sorted((seconds - usual, at, seconds) for at, seconds in steps if at in planned)
    least = max(STALL * pauses[len(pauses) // 4][0], LEAST_PAUSE * usual) if pauses else 0.0
    return [(at, seconds) for pause, at, seconds in pauses if pause > least]


def stopped_at(questions: Questions) -> float | None:
    """Return when a stopped run should have ended the step that never ended; None while it moves.

    Raises:
        PrometheusError: a query failed.
    """
    run = questions.of_run()
    last = questions.values(f"max(pyrometer_train_last_step_timestamp_seconds{run})", ()).get(())
    if last is None or questions.now - last < STANDS_SECONDS:
        return None
    batches = f"pyrometer_train_batch_step_seconds{run}[{LOOK_BACK_SECONDS:.0f}s]"
    usual = questions.values(f"max(quantile_over_time(0.5, {batches}))", (), last).get((), 0.0)
    return min(last + usual, questions.now)


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


def silence(questions: Questions) -> Look:
    """Return the nodes that fell silent as facts: their exporter stopped, or the whole node."""
    facts = [
        Fact(
            "node_silent",
            {"node": node},
            began=at or None,
            precision=15.0,
            chronic=not at,
            strength=0.5,
            source=f"up{{node={quoted(node)}}}",
        )
        for node, at in questions.roster.silent.items()
    ]
    return Look(tuple(facts[:20]), frozenset({"node_silent"}))


def configuration(questions: Questions) -> Look:
    """Return what changed in the run's configuration since shortly before the drop, and a restart."""
    window = max(questions.now - questions.before + LOOK_BACK_SECONDS, LOOK_BACK_SECONDS)
    name = f"pyrometer_train_run_info{questions.of_run()}"
    infos = questions.instant(f"{name}[{window:.0f}s]")
    before = [series for series in infos if series.points and series.points[0][0] <= questions.before]
    kinds = frozenset({"config", "restart"})
    if not before:
        return Look(kinds=kinds)
    newest = max(infos, key=_age)
    older = max(before, key=lambda series: (_number(series.labels.get("attempt", "")), series.points[-1][0]))
    facts = []
    began, source = newest.points[0][0], f"{name}[{window:.0f}s]"
    if changed := _changes(older.labels, newest.labels):
        facts.append(Fact("config", {}, changed, began=began, precision=30.0, source=source))
    if older.labels.get("attempt") != newest.labels.get("attempt"):
        attempts = f"attempt {newest.labels.get('attempt', '')}"
        facts.append(Fact("restart", {}, attempts, began=began, precision=30.0, source=source))
    return Look(tuple(facts), kinds)


def _age(series: Series) -> tuple[int, float, float]:
    """Order by attempt, then the series that lives, then the one that began last."""
    return _number(series.labels.get("attempt", "")), round(series.points[-1][0] / 60.0), series.points[0][0]


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return `global_batch_size 1024 to 2048, ...`; empty where nothing changed."""
    names = [name for name in CONFIGURATION if before.get(name, "") != now.get(name, "")]
    return ", ".join(f"{name} {before.get(name) or 'unknown'} to {now.get(name) or 'unknown'}" for name in names)


def planned(questions: Questions) -> Look:
    """Return the tags of most batches since the drop: checkpoint, evaluation, warm-up, ramp, restart."""
    window = f"[{max(round(questions.now - questions.began), 30)}s]"
    run = questions.of_run()
    tags = questions.values(f"sum by (tag) (count_over_time(pyrometer_train_batch_tag{run}{window}))", ("tag",))
    if not tags:
        return Look(kinds=frozenset({"tagged"}))
    batches = questions.values(f"sum(count_over_time(pyrometer_train_batch_mfu_ratio{run}{window}))", ()).get((), 0.0)
    shares = {tag: count / max(batches, count, 1.0) for (tag,), count in tags.items()}
    facts = [
        Fact("tagged", {}, tag, strength=share, value=share, source=f"pyrometer_train_batch_tag{run}{window}")
        for tag, share in shares.items()
        if share >= PLANNED_SHARE
    ]
    return Look(tuple(facts), frozenset({"tagged"}))


def _number(value: str) -> int:
    return int(value) if value.isdigit() else -1
