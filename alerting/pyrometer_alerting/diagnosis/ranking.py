"""Rank the causes of a slow run from its facts: a pure function, so that `explain` can show each weight again.

A candidate is a part with facts of one family. Its features (when it began, whether it goes on, how far it reaches, how
unlike its peers and its own past it is, whether the run waits for it) are weighed by the figures in `weights.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pyrometer_alerting.diagnosis import wording
from pyrometer_alerting.diagnosis.candidates import Candidate, Case, built, meet
from pyrometer_alerting.diagnosis.evidence.gpus import SLOWDOWNS
from pyrometer_alerting.diagnosis.extent import inside
from pyrometer_alerting.diagnosis.look import ANOTHER_DROP_SECONDS
from pyrometer_alerting.diagnosis.weights import Weights, probability
from pyrometer_alerting.model.alert_names import NAMED_CAUSES
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import Cause
from pyrometer_alerting.model.text import clock_utc, duration

LATE_SECONDS = 15.0  # three scrapes of 5 s: a cause that began later than that did not start the drop
FOUND_WITHIN_SECONDS = 180.0  # after a minute a drop is told apart; raw batches arrive up to two minutes late
QUIET_SECONDS = 3.0
EARLY_SECONDS = 300.0
STOPPED_SECONDS = 45.0  # three scrapes of 15 s without another increment
BLIP_SECONDS = 2.0
LONG_WAIT, HALF_OF_MEDIAN = 0.15, 0.5  # of the step, and of what the median rank waits
COOL_CELSIUS = 70.0  # an H100 starts to slow down at 87 C; below this heat is an unlikely explanation
MANY = 4  # parts of the run with the same fact, at least: then one of them is like its peers
# Alerts on something that happened within their window: they end with the window, and what they report does not.
EVENT_ALERTS = frozenset({"FabricMassEvent", "NvswitchFatalError", "GpuXidCritical"})
SHOWN = 0.05  # probability from which a cause is among those that were seen

# Which families of trouble produce such a curve, and which do not (the table of causes in Imbue's 70B report; MegaScale
# for garbage collection; SmolLM3 for storage). Families in neither table are left unchanged.
SPEAKS_FOR: Mapping[str, frozenset[str]] = {
    "tenth_from_start": frozenset({"link", "pcie"}),
    "third_from_start": frozenset({"pcie", "link"}),
    "low_from_start": frozenset({"link", "pcie", "throttle", "host", "rank"}),
    "regular_stalls": frozenset({"checkpoint"}),
    "rare_stalls": frozenset({"host", "data", "link"}),
    "stall_burst": frozenset({"link"}),
    "gradual_decline": frozenset({"gc"}),
    "frequent_dips": frozenset({"throttle", "link"}),
    "noisy": frozenset({"link", "gc"}),
    "step_down": frozenset({"throttle", "pcie", "link", "rank", "host", "config"}),
    "spell": frozenset({"throttle", "link", "rank", "host", "data"}),
    "stopped": frozenset({"xid", "link", "silent", "rank"}),
}
SPEAKS_AGAINST: Mapping[str, frozenset[str]] = {
    "tenth_from_start": frozenset({"throttle", "gc", "data", "checkpoint"}),
    "third_from_start": frozenset({"throttle", "gc", "checkpoint"}),
    "low_from_start": frozenset({"gc", "checkpoint"}),
    "regular_stalls": frozenset({"throttle", "pcie"}),
    "rare_stalls": frozenset({"pcie", "gc"}),
    "stall_burst": frozenset({"gc", "pcie"}),
    "gradual_decline": frozenset({"checkpoint", "pcie"}),
    "frequent_dips": frozenset({"checkpoint", "pcie"}),
    "noisy": frozenset({"pcie", "checkpoint"}),
    "step_down": frozenset({"checkpoint"}),
    "spell": frozenset({"gc"}),
    "stopped": frozenset({"throttle", "gc"}),
}


Weighed = Iterator[tuple[str, float, str]]
"""Features with their values, each with the sentence on what speaks against the candidate; empty where nothing does."""


def candidates(facts: Sequence[Fact], case: Case) -> list[Candidate]:
    """Return the candidates, the likeliest first, each with its features."""
    context = [fact for fact in facts if case.kinds[fact.kind].family == "context"]
    named = [fact for fact in facts if case.kinds[fact.kind].family != "context"]
    weighed = [_weighed(candidate, facts, context, case) for candidate in built(named, context, case)]
    return sorted(weighed, key=lambda candidate: (-candidate.logit, candidate.part))


def _weighed(candidate: Candidate, facts: Sequence[Fact], context: Sequence[Fact], case: Case) -> Candidate:
    weighed = [
        *_weigh_time(candidate, case),
        *_weigh_kind(candidate, context, case),
        *_weigh_waits(candidate, facts, case),
        *_weigh_turns(candidate, facts, case),
        *_weigh_own_wait(candidate),
        *_weigh_curve(candidate, case),
    ]
    if candidate.labels.get("node") and case.roster.gpus and candidate.labels["node"] not in case.roster.gpus:
        weighed.append(("left_by_run", 1.0, "the run no longer uses it"))
    features = {feature: value for feature, value, _against in weighed}
    against = tuple(sentence for _feature, _value, sentence in weighed if sentence)
    severity = NAMED_CAUSES.get(candidate.facts[0].detail, (50.0, ""))[0] if candidate.kind == "alert" else None
    logit = case.weights.logit(candidate.kind, features, severity)
    return replace(candidate, features=features, against=against, logit=logit)


def _weigh_time(candidate: Candidate, case: Case) -> Weighed:
    """Weigh its time: a cause starts with or shortly before its effect, and continues with it."""
    facts = _measured(candidate)
    began = [fact.began for fact in facts if fact.began is not None and not fact.chronic]
    if any(fact.chronic for fact in facts) and not began:
        if case.drops:
            yield "began_long_before_drop", 1.0, "it was already so long before the drop"
    elif began and case.drops:
        yield _lag(min(began), facts, case)
    elif not began and any(fact.before is not None for fact in facts):
        yield "since_drop", 1.0, ""
    else:
        yield "time_unknown", 1.0, ""
    yield from _weigh_end(facts, case)


def _lag(began: float, facts: Sequence[Fact], case: Case) -> tuple[str, float, str]:
    """Weigh how long before or after the nearest drop it began."""
    precision = max(fact.precision for fact in facts if fact.began == began)
    drop = min(case.drops, key=lambda at: abs(began - at))
    lag = began - drop
    if lag - precision > LATE_SECONDS and _may_be_of_another_drop(began, drop, case):
        return "time_unknown", 1.0, ""
    if lag - precision > LATE_SECONDS:
        return "began_after_drop", 1.0, f"began {duration(lag)} after the drop"
    if lag < -EARLY_SECONDS:
        share = min((-lag - EARLY_SECONDS) / 600.0, 1.0)
        return "began_long_before_drop", share, f"began {duration(-lag)} before the drop"
    return "began_before_drop" if lag < -60.0 else "began_with_drop", 1.0, ""


def _may_be_of_another_drop(began: float, drop: float, case: Case) -> bool:
    """Return whether what began after a drop may have begun with one that is not found yet.

    That is so where the run had recovered by then, as long as it may take to find a drop, and soon after a drop that is
    not the first: two that are so close to each other are told as one, and an episode without a fall of its own counts
    from its alert, which may be late.
    """
    if case.recovered is not None and began > case.recovered:
        return case.now - began <= FOUND_WITHIN_SECONDS
    return drop != case.drops[0] and began - drop <= ANOTHER_DROP_SECONDS


def _weigh_end(facts: Sequence[Fact], case: Case) -> Weighed:
    """Weigh what is over: it counts against itself where the run was slow for longer."""
    last = [_last(fact) for fact in facts]
    ends = [at for at in last if at is not None]
    if not facts or len(ends) < len(last):
        return
    ended = max(ends)
    # A cause that was over before the newest drop explains an earlier one at most, however late new evidence is.
    drop = max(case.drops) if case.drops and max(case.drops) - ended > LATE_SECONDS else case.present_drop
    quiet = 0.0 if drop is None else drop - ended
    if quiet > LATE_SECONDS:
        yield "ended_before_drop", 1.0, f"ended {duration(quiet)} before the drop"
    elif quiet > QUIET_SECONDS:
        yield "quiet_since_drop", 1.0, f"not seen again since {duration(quiet)} before the drop"
    over = all(fact.ended is not None for fact in facts) and not _is_event(facts)
    if over and case.until - ended > STOPPED_SECONDS and quiet <= LATE_SECONDS:
        if all(fact.kind == "alert" for fact in facts):  # only the end of the alert is known
            yield "ended_while_slow", 0.3, f"its alert ended at {clock_utc(ended)}"
        else:
            yield "ended_while_slow", 1.0, f"ended at {clock_utc(ended)}, but the run was still slow after that"


def _last(fact: Fact) -> float | None:
    """Return when the fact was last seen; None while it lasts. A link that flaps was last seen at its last flap."""
    return fact.moments[-1][0] if fact.kind == "link_flap" and fact.moments else fact.ended


def _is_event(facts: Sequence[Fact]) -> bool:
    """Return whether the facts are moments whose effect lasts, such as an Xid; a link must go on flapping."""
    return any((fact.moments and fact.kind != "link_flap") or fact.detail in EVENT_ALERTS for fact in facts)


def _measured(candidate: Candidate) -> Sequence[Fact]:
    """Return the facts whose time counts: an alert comes late, so it counts where nothing was measured."""
    measured = [fact for fact in candidate.facts if fact.kind != "alert"]
    return measured or candidate.facts


def _weigh_kind(candidate: Candidate, context: Sequence[Fact], case: Case) -> Weighed:
    """Weigh strength, extent, and what is unlike the peers and unlike before."""
    lead = candidate.facts[0]
    yield "strength", max(fact.strength for fact in candidate.groups[0].facts) - 0.5, ""
    kinds = {fact.kind for fact in candidate.facts}
    kinds |= {fact.kind for fact in candidate.support if fact.kind != "least_wait"}
    yield "another_kind", float(min(len(kinds - {"alert"} - {candidate.kind}), 3)), ""
    if any(fact.kind == "alert" and fact.ended is None for fact in candidate.facts) and candidate.kind != "alert":
        yield "alert", 1.0, ""
    if any(_names(fact, candidate, case.roster) for fact in context):
        yield "symptom_names_it", 1.0, ""
    yield from _weigh_peers(candidate, case)
    if candidate.family == "throttle":
        yield from _weigh_throttle(candidate, context, case)
    if candidate.kind == "link_flap" and sum(fact.count for fact in candidate.facts if fact.kind == "link_flap") < 2:
        yield "single_event", 1.0, ""
    # An alert on a switch or a rail weighs by how many of the run's ports there lost their link.
    if lead.kind == "alert" and lead.peers is not None and not lead.labels.get("rack") and not lead.value:
        there = f"of the run's {lead.peers:.0f} ports there"
        if lead.strength <= 0.0:
            yield "untouched", 1.0, f"none {there} lost its link"
        else:
            yield "touch_unknown", 1.0, f"unknown whether one {there} lost its link"
    if case.stands and candidate.family in ("rank", "xid", "link", "silent"):
        yield "run_stands", 1.0, ""


def _names(fact: Fact, candidate: Candidate, roster: Roster) -> bool:
    """Return whether the run's own alert names the candidate's part, or its trouble."""
    if fact.kind != "symptom":
        return False
    if not fact.labels:
        return candidate.family == "gc"
    return bool(candidate.labels) and meet(fact.labels, candidate.labels, roster)


def _weigh_peers(candidate: Candidate, case: Case) -> Weighed:
    group, lead = candidate.groups[0], candidate.facts[0]
    if candidate.family in ("data", "gc", "checkpoint", "config"):
        pass
    elif not candidate.labels and candidate.kind != "alert":
        yield "like_peers", 0.5, ""
    elif group.everywhere >= max(MANY, 4 * len(group.facts)) and candidate.kind != "alert":
        # Ranks that are waited for alike on several parts have a common reason: none of them is it.
        others = group.everywhere - len(group.facts)
        yield "like_peers", 2.0 if candidate.family == "rank" else 1.0, f"{others} other parts of the run show the same"
    else:
        yield "unlike_peers", 1.0, ""
    if lead.before is not None and not lead.chronic:
        yield "unlike_past", 1.0, ""
    elif lead.chronic and not case.drops:
        yield "like_past", 0.5, ""


def _weigh_throttle(candidate: Candidate, context: Sequence[Fact], case: Case) -> Weighed:
    slowed = [fact for fact in candidate.facts if fact.kind in SLOWDOWNS]
    seconds = max((fact.value or 0.0 for fact in slowed), default=BLIP_SECONDS)
    if seconds < BLIP_SECONDS and len(slowed) == len(_measured(candidate)):
        yield "blip", 1.0, f"{max(seconds, 0.1):.1f} s in all"
    if slowed and not any(fact.kind == "clock_low" for fact in (*candidate.facts, *candidate.support)):
        yield "clock_unaffected", 1.0, "its SM clock was not seen lower than before or than its peers'"
    warm = [fact for fact in context if fact.kind == "celsius" and inside(fact.labels, candidate.labels, case.roster)]
    celsius = max((fact.value or 0.0 for fact in warm), default=COOL_CELSIUS)
    if "thermal" in candidate.kind and candidate.labels and celsius < COOL_CELSIUS:
        yield "temperature_normal", 1.0, f"temperature normal ({celsius:.0f} \u00b0C)"


def _weigh_waits(candidate: Candidate, facts: Sequence[Fact], case: Case) -> Weighed:
    """Weigh whom the run waits for: a part elsewhere is not what slows it down."""
    if candidate.family == "rank" or not candidate.labels:
        return
    waits = [fact for fact in facts if case.kinds[fact.kind].awaited and not fact.chronic and fact.ended is None]
    if not waits or (not candidate.labels.get("node") and candidate.family not in ("throttle", "link")):
        return
    mine = [fact for fact in waits if meet(fact.labels, candidate.labels, case.roster)]
    if mine:
        yield "waited_for", max(fact.strength for fact in mine), ""
    elif candidate.family in ("throttle", "pcie", "host", "gpu"):
        sentence = f"the ranks wait for {_rank_and_node(waits[0])}, not for this one"
        yield "others_waited_for", max(fact.strength for fact in waits), sentence


def _rank_and_node(wait: Fact) -> str:
    return f"{wait.detail} on {wait.labels.get('node', 'another node')}"


def _weigh_turns(candidate: Candidate, facts: Sequence[Fact], case: Case) -> Weighed:
    """Weigh a part that the run waited for, and then for another one: parts that take turns have a common reason."""
    mine = [fact for fact in candidate.facts if fact.kind == "least_wait"]
    if not mine or len(mine) < len(candidate.facts):
        return
    for other in facts:
        elsewhere = other.kind == "least_wait" and not meet(other.labels, candidate.labels, case.roster)
        if elsewhere and not other.chronic and any(_apart(fact, other) for fact in mine):
            yield "takes_turns", 1.0, f"the ranks waited for {_rank_and_node(other)} as well, at another time"
            return


def _weigh_own_wait(candidate: Candidate) -> Weighed:
    """Weigh that the ranks which wait least wait long themselves: whoever holds up all the others waits for nobody."""
    waits = [fact for fact in candidate.facts if fact.kind == "least_wait"]
    if len(waits) < len(candidate.facts):
        return
    least = min(waits, key=lambda fact: fact.value or 0.0)
    share = least.value or 0.0
    if share >= max(LONG_WAIT, HALF_OF_MEDIAN * (least.peers or 0.0)):
        yield "waits_itself", 1.0, f"{least.detail} wait {100 * share:.1f} % of the step as well"


def _apart(one: Fact, other: Fact) -> bool:
    """Return whether one of two states was over, within the examined period, before the other was first seen."""
    return any(
        first.ended is not None and first.ended < second.first_at for first, second in ((one, other), (other, one))
    )


def _weigh_curve(candidate: Candidate, case: Case) -> Weighed:
    """Weigh it by whether such a trouble produces the curve, as far as the curve's kind is certain."""
    shape = case.shape
    if shape is None or shape.kind in ("unknown", "steady", "daily_wave"):
        return
    if candidate.family in SPEAKS_FOR.get(shape.kind, frozenset()):
        yield "curve_for", shape.confidence, ""
    elif candidate.family in SPEAKS_AGAINST.get(shape.kind, frozenset()):
        curve = shape.kind.replace("_", " ")
        yield "curve_against", shape.confidence, f"the MFU curve ({curve}) is not what this cause would produce"


def causes(ranked: Sequence[Candidate], case: Case) -> tuple[list[Cause], list[Cause]]:
    """Return the causes that convince and those that were seen and do not, each list with the likeliest first."""
    convincing: list[Cause] = []
    seen: list[Cause] = []
    for index, one in enumerate(ranked):
        confidence = "low" if _is_of_an_earlier_drop(one, case) else _confidence(one, ranked, index, case.weights)
        if _is_repeated(one, ranked[:index], case.roster):
            continue
        if confidence == "low":
            if probability(one.logit) >= SHOWN or _would_convince(one, case.weights):
                seen.append(to_cause(one, case, confidence))
        else:
            convincing.append(to_cause(one, case, confidence))
    return convincing, seen


def _is_of_an_earlier_drop(one: Candidate, case: Case) -> bool:
    """Return whether nothing that was measured of it is of the newest of several drops, if it explains another."""
    newest = max(case.drops, default=0.0)
    return len(case.drops) > 1 and all(
        fact.seen_at < newest or (fact.ended is not None and newest - fact.ended > LATE_SECONDS)
        for fact in _measured(one)
    )


def _would_convince(one: Candidate, weights: Weights) -> bool:
    """Return whether it would be the cause but for what speaks against it: a reader would ask about it."""
    against = sum(min(weights.features[name] * value, 0.0) for name, value in one.features.items())
    return bool(one.against) and probability(one.logit - against) >= weights.confidence["medium"]


def _is_repeated(one: Candidate, better: Sequence[Candidate], roster: Roster) -> bool:
    """Return whether a better candidate has these facts already: the waits for a part that is sick."""
    return any(
        set(map(id, one.facts)) <= set(map(id, (*other.facts, *other.support)))
        or (one.family == "rank" and other.labels and meet(one.labels, other.labels, roster))
        for other in better
    )


def _confidence(one: Candidate, ranked: Sequence[Candidate], index: int, weights: Weights) -> str:
    sure = probability(one.logit)
    if sure < weights.confidence["medium"] or "blip" in one.features:
        return "low"
    rivals = [
        other for other in ranked if other is not one and not set(map(id, other.facts)) & set(map(id, one.support))
    ]
    clear = index == 0 and all(one.logit - other.logit >= weights.clear for other in rivals[:1])
    return "high" if clear and sure >= weights.confidence["high"] else "medium"


def to_cause(one: Candidate, case: Case, confidence: str) -> Cause:
    """Return the cause as it is shown; without labels it names no single part."""
    began = [fact.began for fact in _measured(one) if fact.began is not None]
    return Cause(
        part=one.part,
        cause=one.name,
        evidence=tuple(wording.evidence(one.groups, one.support, case.roster, case.kinds)),
        against=one.against,
        since=min(began, default=None),
        score=round(100 * probability(one.logit), 1),
        labels=dict(one.labels) or None,
        confidence=confidence,
        family=one.family,
        brief=wording.brief(one.groups, one.support, case.roster, case.kinds),
        runbook=one.facts[0].detail if one.kind == "alert" else case.kinds[one.kind].runbook,
    )
