"""Facts about ranks: whom the others wait for, who fell silent, and where the steps' time goes.

In synchronous training all ranks' steps take equally long, so the one that waits least is the one the others wait for
(MegaScale; no clock shared between hosts is needed). Ranks are compared within their pipeline stage, and with before
the drop: a rank that always waited less is not to blame for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyrometer_alerting.diagnosis.look import STANDS_SECONDS, Look, Questions, middle
from pyrometer_alerting.model.fact import Fact
from pyrometer_kit.prometheus import Series

# 0.05: MegaScale's slow hosts were 10 % slower in their forward pass, about half of that in the step.
LESS_WAIT = 0.05
GREW = 0.03  # of the step more than before the drop
ALIKE = 0.5  # ranks of one node whose lead is at least this part of the largest one slow down together
# Longer windows average noise, but must not reach back before the drop; the shortest holds two scrapes of 15 s.
LONGEST_SECONDS, SHORTEST_SECONDS = 300.0, 35.0
FRESH_SECONDS = 120.0  # in longer windows it hardly counts which node was scraped last
MOST_NODES = 4
PARTS = ("data", "gc", "checkpoint", "eval")
PAUSES = ("checkpoint", "eval")  # in which all ranks are for seconds at a time
MOST_OF_IT = 0.5  # of all that garbage collection costs
GREW_PART = 0.05  # of every step: more than a busy host shows

Shares = Mapping[str, float]


def waits(questions: Questions) -> Look:
    """Return the ranks that wait clearly less than their peers, as one fact per GPU or, of several alike, per node."""
    shares, before = _shares(questions, "wait|checkpoint|eval")
    now = _aligned(questions, shares)
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


def _aligned(questions: Questions, shares: Shares) -> Shares:
    """Return the shares as if all nodes had been scraped at one time.

    All ranks' steps take equally long. A node that was scraped before a stall ended shows none of the wait in it, and
    shorter steps; what its ranks do themselves in a step is what it is.
    """
    window = _window(questions)
    if window > FRESH_SECONDS or not shares:
        return shares
    run, by = f"{questions.of_run()}[{round(window)}s]", "max by (attempt, rank)"
    seconds = f"{by} (rate(pyrometer_train_step_seconds_total{run}))"
    query = f"{seconds} / ({by} (rate(pyrometer_train_steps_total{run})) > 0)"
    means = {rank: mean for (_attempt, rank), mean in questions.values(query, ("attempt", "rank")).items()}
    usual = middle(means[rank] for rank in shares if rank in means)
    if not usual:
        return shares
    # Where every step takes longer since the drop, a node that was scraped later has longer steps without waiting less.
    return {rank: max(1 - (1 - share) * means.get(rank, usual) / usual, share) for rank, share in shares.items()}


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


def _leads(shares: Shares, questions: Questions) -> tuple[dict[str, float], dict[str, float]]:
    """Return by rank how much less it waits than the median of its stage, and that median."""
    stages: dict[str, list[float]] = defaultdict(list)
    for rank, share in shares.items():
        if rank in questions.ranks:
            stages[questions.ranks[rank].stage].append(share)
    medians = {stage: middle(values) or 0.0 for stage, values in stages.items()}
    usual = {rank: medians[questions.ranks[rank].stage] for rank in shares if rank in questions.ranks}
    return {rank: usual[rank] - shares[rank] for rank in usual}, usual


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
    group = sorted((rank for rank in mine if leads[rank] >= ALIKE * lead), key=_number)
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
    numbers = sorted(map(_number, ranks))
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"ranks {numbers[0]}-{numbers[-1]}"
    return "ranks " + ", ".join(map(str, numbers))


def _number(rank: str) -> int:
    return int(rank) if rank.isdigit() else -1


def _unknown_parts(questions: Questions) -> tuple[str, ...]:
    """Return why no waits are known: the job names no parts, or it makes no steps now."""
    if questions.instant(f"count(pyrometer_train_step_part_seconds_total{questions.of_run()})"):
        return ()
    return ("no parts of the steps: the job does not name them (run.part)",)


def _shares(questions: Questions, parts: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return each rank's share of step time in these parts, since the drop and before it."""
    now = _share(questions, parts, _window(questions), questions.now)
    # The samples around the onset belong to both: the comparison ends a scrape before it.
    before = _share(questions, parts, LONGEST_SECONDS, min(questions.began, questions.now) - 15.0)
    return now, before


def _window(questions: Questions) -> float:
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
    newest = max((_number(attempt) for attempt, _rank in found), default=-1)
    return {rank: share for (attempt, rank), share in found.items() if _number(attempt) == newest}


def parts(questions: Questions) -> Look:
    """Return the parts that take clearly more of the step than before the drop, on all ranks or on one."""
    facts: list[Fact] = []
    for part in PARTS:
        now, before = _shares(questions, part)
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
    return fact.kind in PAUSES and "gpu" not in fact.labels and _window(questions) <= FRESH_SECONDS


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
    group = sorted((rank for rank in mine if now[rank] - usual >= ALIKE * lead), key=_number)
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


def silent_ranks(questions: Questions) -> Look:
    """Return the ranks of a stalled run which are behind, or which alone are not waiting."""
    run, kinds = questions.of_run(), frozenset({"rank_silent"})
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
