"""Facts about the run itself: nodes that fell silent, changes of configuration, restarts, planned work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyrometer_alerting.diagnosis.look import (
    LOOK_BACK_SECONDS,
    Kind,
    Look,
    Query,
    Questions,
    Subject,
    attempt_of,
    percent_of,
)
from pyrometer_alerting.model.fact import Fact
from pyrometer_alerting.model.text import clock_utc
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
PLANNED_SHARE = 0.3  # of the batches since the drop


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
    older = max(before, key=lambda series: (attempt_of(series.labels.get("attempt", "")), series.points[-1][0]))
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
    return attempt_of(series.labels.get("attempt", "")), round(series.points[-1][0] / 60.0), series.points[0][0]


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


def _node_silent(fact: Fact) -> str:
    return f"no data since {clock_utc(fact.began)}" if fact.began is not None else "no data in the last hour"


def _changed(fact: Fact) -> str:
    verb = "began " if fact.kind == "restart" else ""
    return f"{fact.detail} {verb}at {clock_utc(fact.began)}" if fact.began is not None else fact.detail


def _tagged(fact: Fact) -> str:
    return f"{percent_of(fact.value or 0.0)} of the batches since the drop are tagged {fact.detail}"


def _silence_title(_facts: Sequence[Fact]) -> str:
    return "fell silent: its exporter or the node stopped"


def _planned_title(facts: Sequence[Fact]) -> str:
    return f"planned work ({facts[0].detail})"


SUBJECT = Subject(
    7,
    {
        "config": Kind(
            "config",
            "the configuration changed",
            1.2,
            says=_changed,
            by_detail=True,
            runbook="A change of the run's own",
        ),
        "restart": Kind("config", "the run was restarted", -0.5, says=_changed, runbook="A change of the run's own"),
        "tagged": Kind(
            "config",
            "planned work",
            0.8,
            says=_tagged,
            title=_planned_title,
            by_detail=True,
            runbook="A change of the run's own",
        ),
        "node_silent": Kind(
            "silent", "fell silent", -2.0, says=_node_silent, title=_silence_title, runbook="NodeExporterDown"
        ),
    },
    (Query(silence, first_look=7), Query(configuration, "configuration"), Query(planned)),
)
