"""Facts about where the steps' time goes: data loading, garbage collection, checkpoints, evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from pyrometer_alerting.diagnosis.evidence.ranks import (
    ALIKE,
    FRESH_SECONDS,
    GREW,
    Shares,
    named_ranks,
    number_of,
    shares,
    window_of,
)
from pyrometer_alerting.diagnosis.look import Kind, Look, Query, Questions, Subject, middle, share_before
from pyrometer_alerting.model.fact import Fact
from pyrometer_alerting.model.text import percent

PARTS = ("data", "gc", "checkpoint", "eval")
PAUSES = ("checkpoint", "eval")  # in which all ranks are for seconds at a time
MOST_OF_IT = 0.5  # of all that garbage collection costs
_ON_A_RANK = {"data": "data loading", "gc": "garbage collection", "checkpoint": "a checkpoint", "eval": "evaluation"}
GREW_PART = 0.05  # of every step: more than a busy host shows


def parts(questions: Questions) -> Look:
    """Return the parts that take clearly more of the step than before the drop, on all ranks or on one."""
    facts: list[Fact] = []
    for part in PARTS:
        now, before = shares(questions, part)
        usual, past = middle(now.values()), middle(before.values())
        if usual is None:
            continue
        # A part that no rank had before the drop took none of the step, if the steps are known.
        past = 0.0 if past is None and questions.onset is not None else past
        worst = max(now, key=lambda rank: now[rank])
        matcher = f'part="{part}"'
        source = f"pyrometer_train_step_part_seconds_total{questions.of_run(matcher)}"
        if past is not None and usual - past > GREW_PART:
            strength = min(0.4 + (usual - past) / 0.3, 1.0)
            facts.append(Fact(part, {}, strength=strength, value=usual, before=past, source=source))
        elif now[worst] > max(3 * usual, GREW_PART + usual) and worst in questions.ranks:
            fact = _of_worst(questions, part, now, before)
            if not _is_of_scrapes(fact, questions):
                facts.append(fact)
    return Look((*_with_collections(facts, questions),), frozenset(PARTS))


def _is_of_scrapes(fact: Fact, questions: Questions) -> bool:
    """Return whether one node may have been scraped after a pause of all, and the others before it.

    Then all of its ranks alike were in the part, and in longer windows it is gone.
    """
    return fact.kind in PAUSES and "gpu" not in fact.labels and window_of(questions) <= FRESH_SECONDS


def _with_collections(facts: Sequence[Fact], questions: Questions) -> list[Fact]:
    """Return the facts with what garbage collection costs the run, where no rank or group has most of it.

    Pauses in different steps add up over the ranks: whoever collects the most is not to blame for all.
    """
    own = [fact for fact in facts if fact.kind == "gc"]
    whole = _collections(questions)
    if own and not (whole and own[0].labels and (own[0].value or 0.0) <= MOST_OF_IT * (whole[0].value or 0.0)):
        return list(facts)
    return [*(fact for fact in facts if fact.kind != "gc"), *whole]


def _of_worst(questions: Questions, part: str, now: Shares, before: Shares) -> Fact:
    """Return the part of the rank in which it is longest; of the node, where several of its ranks are alike."""
    worst, usual = max(now, key=lambda rank: now[rank]), middle(now.values()) or 0.0
    matcher = f'part="{part}"'
    source = f"pyrometer_train_step_part_seconds_total{questions.of_run(matcher)}"
    place, lead = questions.ranks[worst], now[worst] - usual
    mine = [rank for rank, where in questions.ranks.items() if where.node == place.node and rank in now]
    group = sorted((rank for rank in mine if now[rank] - usual >= ALIKE * lead), key=number_of)
    alone = {"gpu": place.gpu} if place.gpu else {"rank": worst}
    return Fact(
        part,
        {"node": place.node, **(alone if len(group) == 1 else {})},
        named_ranks(group),
        chronic=worst in before and now[worst] - before[worst] <= GREW,
        strength=min(0.4 + lead / 0.3, 1.0),
        value=now[worst],
        peers=usual,
        before=before.get(worst),
        source=source,
    )


def _collections(questions: Questions) -> list[Fact]:
    """Return what garbage collection costs the run, as the rule has it."""
    query = f"max(run:pyrometer_train_gc_pause_seconds:loss_ratio{questions.of_run()})"
    loss = questions.values(query, ()).get((), 0.0)
    if loss <= 0.02:  # as the rule TrainGarbageCollection has it
        return []
    # A run that did not collect before the drop lost nothing by it.
    before = questions.values(query, (), questions.before).get((), 0.0 if questions.onset is not None else None)
    chronic = before is not None and loss - before <= 0.01
    return [
        Fact("gc", {}, "loss", chronic=chronic, strength=min(loss / 0.1, 1.0), value=loss, before=before, source=query)
    ]


def _part(fact: Fact) -> str:
    value = fact.value or 0.0
    if fact.detail == "loss":
        return f"pauses that all ranks wait for took {percent(value)} of the last ten minutes{share_before(fact)}"
    if fact.labels:
        usual = f", {percent(fact.peers)} of the median's" if fact.peers is not None else ""
        return f"{_ON_A_RANK[fact.kind]} takes {percent(value)} of {fact.detail}'s step{usual}"
    return f"takes {percent(value)} of the median rank's step{share_before(fact)}"


SUBJECT = Subject(
    4,
    {
        "data": Kind("data", "data loading", 1.31, says=_part, runbook="Data loading"),
        "gc": Kind("gc", "garbage collection", 1.13, says=_part, runbook="TrainGarbageCollection"),
        "checkpoint": Kind("checkpoint", "saving a checkpoint", 0.75, says=_part, runbook="Saving a checkpoint"),
        "eval": Kind("checkpoint", "evaluation", 0.5, says=_part, runbook="A change of the run's own"),
    },
    (Query(parts, "parts of the steps"),),
)
