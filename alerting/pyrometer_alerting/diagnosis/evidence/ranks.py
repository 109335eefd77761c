"""Facts about ranks: whom the others wait for, and who fell silent.

In synchronous training all ranks' steps take equally long, so the one that waits least is the one the others wait for
(MegaScale; no clock shared between hosts is needed). Ranks are compared within their pipeline stage, and with before
the drop: a rank that always waited less is not to blame for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyrometer_alerting.diagnosis.look import STANDS_SECONDS, Kind, Look, Query, Questions, Subject, middle
from pyrometer_alerting.model.alert_names import DEATH
from pyrometer_alerting.model.fact import Fact
from pyrometer_alerting.model.text import clock_utc, percent
from pyrometer_kit.prometheus import Series

# 0.05: MegaScale's slow hosts were 10 % slower in their forward pass, about half of that in the step.
LESS_WAIT = 0.05
GREW = 0.03  # of the step more than before the drop
ALIKE = 0.5  # ranks of one node whose lead is at least this part of the largest one slow down together
# Longer windows average noise, but must not reach back before the drop; the shortest holds two scrapes of 15 s.
LONGEST_SECONDS, SHORTEST_SECONDS = 300.0, 35.0
FRESH_SECONDS = 120.0  # in longer windows it hardly counts which node was scraped last
MOST_NODES = 4
SAME_WAIT = 0.005  # of the step

Shares = Mapping[str, float]


def waits(questions: Questions) -> Look:
    """Return the ranks that wait clearly less than their peers, as one fact per GPU or, of several alike, per node."""
    recent, before = shares(questions, "wait|checkpoint|eval")
    now = _aligned(questions, recent)
    if len(now) < 4:
        return Look(missing=_unknown_parts(questions) if not now else ())
    leads, usual = _leads(now, questions)
    past, _usual = _leads(before, questions)
    found = _Waits(now, leads, usual, past)
    # Without the ranks of a silent node nobody knows who waits less than the others.
    if not found.ahead and not questions.roster.silent:
        found = _Waits(now, _shifts(now, before, questions), dict.fromkeys(now, middle(now.values()) or 0.0), {})
    by_node: dict[str, list[str]] = defaultdict(list)
    for rank in found.ahead:
        by_node[questions.ranks[rank].node].append(rank)
    worst = sorted(by_node, key=lambda node: -max(found.leads[rank] for rank in by_node[node]))[:MOST_NODES]
    return Look(tuple(_least(questions, node, found) for node in worst), frozenset({"least_wait"}))


def _aligned(questions: Questions, recent: Shares) -> Shares:
    """Return the shares as if all nodes had been scraped at one time.

    All ranks' steps take equally long. A node that was scraped before a stall ended shows none of the wait in it, and
    shorter steps; what its ranks do themselves in a step is what it is.
    """
    window = window_of(questions)
    if window > FRESH_SECONDS or not recent:
        return recent
    run, by = f"{questions.of_run()}[{round(window)}s]", "max by (attempt, rank)"
    seconds = f"{by} (rate(pyrometer_train_step_seconds_total{run}))"
    query = f"{seconds} / ({by} (rate(pyrometer_train_steps_total{run})) > 0)"
    means = {rank: mean for (_attempt, rank), mean in questions.values(query, ("attempt", "rank")).items()}
    usual = middle(means[rank] for rank in recent if rank in means)
    if not usual:
        return recent
    # Where every step takes longer since the drop, a node that was scraped later has longer steps without waiting less.
    return {rank: max(1 - (1 - share) * means.get(rank, usual) / usual, share) for rank, share in recent.items()}


@dataclass(frozen=True)
class _Waits:
    """By rank: its share of waiting now, how much less that is than usual, what is usual, and its lead in the past."""

    now: Shares
    leads: Shares
    usual: Shares
    past: Shares

    @property
    def ahead(self) -> list[str]:
        """The ranks that stand out."""
        spread = 1.4826 * (middle(abs(lead) for lead in self.leads.values()) or 0.0)
        return [rank for rank, lead in self.leads.items() if lead >= max(LESS_WAIT, 4 * spread)]


def _leads(waiting: Shares, questions: Questions) -> tuple[dict[str, float], dict[str, float]]:
    """Return by rank how much less it waits than the median of its stage, and that median."""
    stages: dict[str, list[float]] = defaultdict(list)
    for rank, share in waiting.items():
        if rank in questions.ranks:
            stages[questions.ranks[rank].stage].append(share)
    medians = {stage: middle(values) or 0.0 for stage, values in stages.items()}
    usual = {rank: medians[questions.ranks[rank].stage] for rank in waiting if rank in questions.ranks}
    return {rank: usual[rank] - waiting[rank] for rank in usual}, usual


def _shifts(now: Shares, before: Shares, questions: Questions) -> dict[str, float]:
    """Return by rank how much less of its step it waits than before the drop, against the median rank.

    Where a node is a pipeline stage of its own its ranks have no peers; they wait as before while all others wait more.
    """
    shifts = {rank: before[rank] - now[rank] for rank in now if rank in before and rank in questions.ranks}
    usual = middle(shifts.values()) or 0.0
    return {rank: shift - usual for rank, shift in shifts.items()}


def _least(questions: Questions, node: str, waits_: _Waits) -> Fact:
    leads, past = waits_.leads, waits_.past
    mine = [rank for rank, place in questions.ranks.items() if place.node == node and rank in leads]
    lead = max(leads[rank] for rank in mine)
    group = sorted((rank for rank in mine if leads[rank] >= ALIKE * lead), key=number_of)
    first = max(group, key=lambda rank: leads[rank])
    place = questions.ranks[first]
    labels = {"node": node} if len(group) > 1 or not place.gpu else {"node": node, "gpu": place.gpu}
    earlier = [past[rank] for rank in group if rank in past]
    grew = not earlier or lead - max(earlier) >= GREW
    return Fact(
        "least_wait",
        labels,
        named_ranks(group),
        chronic=not grew,
        strength=min(0.4 + lead / 0.3, 1.0),
        value=waits_.now[first],
        peers=waits_.usual[first],
        before=past.get(first),  # its lead then
        source="rank:pyrometer_train_step_part_seconds:spare_ratio" + questions.of_run(),
    )


def named_ranks(ranks: Sequence[str]) -> str:
    """Return `rank 7`, `ranks 16-23` or `ranks 1, 5, 9`."""
    numbers = sorted(map(number_of, ranks))
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"ranks {numbers[0]}-{numbers[-1]}"
    return "ranks " + ", ".join(map(str, numbers))


def number_of(rank: str) -> int:
    """Return a rank as a number; -1 for anything else."""
    return int(rank) if rank.isdigit() else -1


def _unknown_parts(questions: Questions) -> tuple[str, ...]:
    """Return why no waits are known: the job names no parts, or it makes no steps now."""
    if questions.instant(f"count(pyrometer_train_step_part_seconds_total{questions.of_run()})"):
        return ()
    return ("no parts of the steps: the job does not name them (run.part)",)


def shares(questions: Questions, parts: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return each rank's share of step time in these parts, since the drop and before it."""
    now = _share(questions, parts, window_of(questions), questions.now)
    # The samples around the onset belong to both: the comparison ends a scrape before it.
    before = _share(questions, parts, LONGEST_SECONDS, min(questions.began, questions.now) - 15.0)
    return now, before


def window_of(questions: Questions) -> float:
    """Return how many seconds to look back for what is so now."""
    return min(max(questions.now - questions.began, SHORTEST_SECONDS), LONGEST_SECONDS)


def _share(questions: Questions, parts: str, seconds: float, at: float) -> dict[str, float]:
    window = f"[{round(seconds)}s]"
    matcher = f'part=~"{parts}"'
    named = f"pyrometer_train_step_part_seconds_total{questions.of_run(matcher)}{window}"
    steps = f"pyrometer_train_step_seconds_total{questions.of_run()}{window}"
    by = "by (attempt, rank)"
    query = f"sum {by} (rate({named})) / (max {by} (rate({steps})) > 0)"
    found = questions.values(query, ("attempt", "rank"), at)
    newest = max((number_of(attempt) for attempt, _rank in found), default=-1)
    return {rank: share for (attempt, rank), share in found.items() if number_of(attempt) == newest}


def silent_ranks(questions: Questions) -> Look:
    """Return the ranks of a stalled run which are behind, or which alone are not waiting."""
    run, kinds = questions.of_run(), frozenset({"rank_silent"})
    # Which rank of a run died first its alert says; where the others stood as they ended says nothing.
    if any(alert.name == DEATH and alert.firing for alert in questions.incident.members):
        return Look(kinds=kinds)
    newest = questions.values(f"max by (attempt) (pyrometer_train_last_step_timestamp_seconds{run})", ("attempt",))
    if not newest or questions.now - max(newest.values()) < STANDS_SECONDS:
        return Look(kinds=kinds)
    steps = questions.values(f"max by (rank) (pyrometer_train_last_step{run})", ("rank",))
    last = max(steps.values(), default=0.0)
    # A process that is gone moves no more, whatever step it finished last.
    gone = questions.values(f"max by (rank) (pyrometer_train_rank_up{run}) == 0", ("rank",))
    behind = [rank for (rank,) in gone if rank in questions.ranks]
    if not behind:
        behind = [rank for (rank,), step in steps.items() if step < last and rank in questions.ranks]
    if not behind:
        behind = _not_waiting(questions.instant(f"pyrometer_train_current_part_seconds{run}"), questions)
    if not behind or len(behind) > max(len(questions.ranks) // 4, 1):
        return Look(kinds=kinds)
    by_node: dict[str, list[str]] = defaultdict(list)
    for rank in behind:
        by_node[questions.ranks[rank].node].append(rank)
    began = max(newest.values())
    facts = []
    for node, group in list(by_node.items())[:MOST_NODES]:
        gpu = questions.ranks[group[0]].gpu
        labels = {"node": node, "gpu": gpu} if len(group) == 1 and gpu else {"node": node}
        source = f"pyrometer_train_last_step{run}"
        facts.append(
            Fact("rank_silent", labels, named_ranks(group), began=began, precision=30.0, peers=0.0, source=source)
        )
    return Look(tuple(facts), kinds)


def _not_waiting(series_list: Iterable[Series], questions: Questions) -> list[str]:
    """Return the ranks that are in another part than waiting, while most ranks wait."""
    parts_now = {series.labels.get("rank", ""): series.labels.get("part", "") for series in series_list}
    waiting = [rank for rank, part in parts_now.items() if part == "wait"]
    others = [rank for rank, part in parts_now.items() if part != "wait" and rank in questions.ranks]
    return others if len(waiting) > len(parts_now) // 2 else []


def _least_wait(fact: Fact) -> str:
    if fact.value is None or fact.peers is None or fact.value >= fact.peers:
        return ""
    waits = "waits" if fact.detail.startswith("rank ") else "wait"
    sentence = f"{fact.detail} {waits} least: {percent(fact.value)} of the step, {percent(fact.peers)} the median rank"
    if fact.before is None:
        return sentence
    if fact.before < SAME_WAIT:
        return f"{sentence}; not less than the others before the drop"
    points = round(100 * fact.before)
    return f"{sentence}; {points} point{'s' if points != 1 else ''} less than the others before the drop"


def _rank_silent(fact: Fact) -> str:
    step = f" after the step of {clock_utc(fact.began)}" if fact.began is not None else ""
    return f"{fact.detail} {'is' if fact.detail.startswith('rank ') else 'are'} behind the others{step}"


SUBJECT = Subject(
    3,
    {
        "least_wait": Kind(
            "rank", "the other ranks wait for it", -0.58, says=_least_wait, awaited=True, runbook="TrainStraggler"
        ),
        "rank_silent": Kind("rank", "fell silent first", 1.12, says=_rank_silent, awaited=True, runbook="TrainStalled"),
    },
    (Query(waits, "waits of the ranks", first_look=6), Query(silent_ranks)),
)
