"""Sentences of a message, each generated from one checked fact: nothing is said that the fact's figures contradict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pyrometer_alerting.diagnosis.extent import Group
from pyrometer_alerting.diagnosis.weights import KINDS
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import part_of
from pyrometer_alerting.model.named_causes import NAMED_CAUSES
from pyrometer_alerting.model.text import clock_utc, duration, percent

SLOWDOWNS = frozenset({"hw_thermal", "sw_thermal", "hw_power_brake", "hw_slowdown"})
SHARES = frozenset({"clocks_setting", "power_cap", "board_limit", "reliability"})
MOST_SENTENCES = 6
CLEARLY = 0.98  # of the peers' clock: of a part that is half of the run the median is nearly its own
SAME_WAIT = 0.005  # of the step
_PARTS = {"data": "data loading", "gc": "garbage collection", "checkpoint": "a checkpoint", "eval": "evaluation"}


def name_of(kind: str, facts: Sequence[Fact]) -> str:
    """Return the cause in words, as far as the facts support it."""
    fact = next((one for one in facts if one.kind == kind), facts[0])
    special = {
        "alert": NAMED_CAUSES.get(fact.detail, (0.0, fact.detail))[1],
        "xid": f"Xid {fact.detail}",
        "xid_fatal": f"Xid {fact.detail}",
        "pressure": f"{fact.detail} pressure",
        "tagged": f"planned work ({fact.detail})",
        "node_silent": "fell silent: its exporter or the node stopped",
    }
    if kind == "power_limit" and fact.chronic:
        return "power limit below its peers'"
    if kind == "link_flap" and sum(one.count for one in facts if one.kind == kind) < 2:
        return "a single link flap"
    return special.get(kind, KINDS[kind].name)


def evidence(groups: Sequence[Group], support: Sequence[Fact], roster: Roster) -> Iterator[str]:
    """Yield one sentence per kind of fact, the leading kind first, then what supports it from elsewhere."""
    sentences = [sentence for group in groups if (sentence := said(group, roster))]
    sentences += [sentence for one in _elsewhere(support) if (sentence := said(one, roster, elsewhere=True))]
    yield from list(dict.fromkeys(sentences))[:MOST_SENTENCES]


def _elsewhere(facts: Iterable[Fact]) -> Iterator[Group]:
    """Yield the facts to be told each for itself, at most three of a kind; those of several GPUs or ports as one."""
    kinds: dict[str, list[Fact]] = {}
    for fact in facts:
        kinds.setdefault(fact.kind, []).append(fact)
    for kind, same in kinds.items():
        nodes = {fact.labels.get("node") for fact in same}
        if len(same) > 1 and KINDS[kind].family in ("throttle", "clock", "link", "pcie"):
            node = nodes.pop() if len(nodes) == 1 else None
            yield Group({"node": node} if node else {}, tuple(same), len(same), len(same), len(same))
        else:
            yield from (Group(fact.labels, (fact,), 1, 1, 1) for fact in same[:3])


def said(group: Group, roster: Roster, *, elsewhere: bool = False) -> str:
    """Return the sentence on facts of one kind on one part; empty where there is nothing to say."""
    fact = _leading(group.facts)
    part = part_of(fact.labels if len(group.facts) == 1 else group.labels)
    prefix = f"{part}: " if elsewhere and part and fact.kind != "least_wait" else ""
    sentence = _sentence(fact, group)
    if not sentence:
        return ""
    where = _extent(group, roster)
    return f"{prefix}{sentence}{f' on {where}' if where else ''}"


def _leading(facts: Sequence[Fact]) -> Fact:
    """Return the fact that stands for all: one that lasts, the strongest."""
    return max(facts, key=lambda fact: (fact.ended is None, fact.strength, -(fact.began or 0.0)))


def _extent(group: Group, roster: Roster) -> str:
    """Return `8 of its 8 GPUs`, `6 of its 6 nodes`; empty for a single part."""
    if len(group.facts) < 2:
        return ""
    parts = {tuple(sorted(fact.labels.items())) for fact in group.facts}
    nodes = {fact.labels.get("node") for fact in group.facts}
    what = "ports" if any("device" in fact.labels for fact in group.facts) else "GPUs"
    if not any("gpu" in fact.labels or "device" in fact.labels for fact in group.facts):
        what = "nodes"
    if len(nodes) == 1:
        of = len(roster.gpus.get(next(iter(nodes)) or "", ())) if what == "GPUs" else 0
        return f"{len(parts)} of its {of} {what}" if of >= len(parts) else f"{len(parts)} of its {what}"
    if not group.labels:
        counted = (
            f"{len(parts)} of the run's {roster.size} GPUs, " if what == "GPUs" and roster.size >= len(parts) else ""
        )
        return f"{counted}{len(nodes)} of the run's {max(len(roster.gpus), len(nodes))} nodes"
    there = "ports" if {"switch", "rail"} & set(group.labels) else "nodes"
    return f"{group.sick} of the run's {group.of} {there} there"


def _sentence(fact: Fact, group: Group) -> str:
    """Return the sentence on one fact, or on the strongest of several alike."""
    return _slowdown(fact, group) if fact.kind in SLOWDOWNS else _SENTENCES.get(fact.kind, _other)(fact)


def _slowdown(fact: Fact, group: Group) -> str:
    name = KINDS[fact.kind].name
    until = fact.ended if fact.ended is not None else fact.read_at if fact.read_at is not None else fact.seen_at
    share = min((fact.value or 0.0) / max(until - (fact.began or until), 1.0), 1.0)
    reason = name if len(group.facts) > 1 or fact.kind == "hw_slowdown" else "throttled"
    began = f"since before {clock_utc(fact.began)}" if fact.chronic and fact.began is not None else since(fact)
    if fact.ended is not None and fact.began is not None:
        return f"{reason} {percent_of(share)} of the time from {clock_utc(fact.began)} to {clock_utc(fact.ended)}"
    return f"{reason} {percent_of(share)} of the time {began}"


def percent_of(share: float) -> str:
    """Return whole per cent: `98 %`; anything above zero is at least `1 %`."""
    return f"{max(round(100 * share), 1 if share > 0 else 0)} %"


def since(fact: Fact) -> str:
    """Return since when, as exactly as is known."""
    if fact.chronic or fact.began is None:
        return "since before the examined period" if fact.chronic else "now"
    return f"since {clock_utc(fact.began)}"


def _share(fact: Fact) -> str:
    compared = [f"{percent_of(fact.before)} before the drop" if fact.before is not None else ""]
    compared.append(f"{percent_of(fact.peers)} the median of the run" if fact.peers is not None else "")
    against = ", ".join(piece for piece in compared if piece)
    began = f", more {since(fact)}" if fact.began is not None and not fact.chronic else ""
    tense = "" if fact.ended is None else f", until {clock_utc(fact.ended)}"
    minute = "the last minute" if fact.ended is None else "its last minute"
    held = f"{KINDS[fact.kind].name} {percent_of(fact.value or 0.0)} of {minute}{began}{tense}"
    return f"{held} ({against})" if against else held


def _low_clock(fact: Fact) -> str:
    if fact.value is None:
        return ""
    lower = [f"{fact.before:.0f} MHz before the drop" if fact.before is not None and fact.value < fact.before else ""]
    lower.append(
        f"{fact.peers:.0f} MHz, the median of the run's other GPUs"
        if fact.peers is not None and fact.value < CLEARLY * fact.peers
        else ""
    )
    against = " and ".join(piece for piece in lower if piece)
    return f"SM clock down to {fact.value:.0f} MHz against {against}" if against else ""


def _power_limit(fact: Fact) -> str:
    if fact.value is None:
        return ""
    if fact.before is not None and fact.value < fact.before:
        began = f", more {since(fact)}" if fact.began is not None and not fact.chronic else ""
        return f"power limit {fact.value:.0f} W{began} instead of {fact.before:.0f} W before the drop"
    usual = f", {fact.peers:.0f} W the median of the run" if fact.peers is not None else ""
    return f"power limit {fact.value:.0f} W{usual}"


def _link(fact: Fact) -> str:
    if fact.kind == "link_rate":
        return f"runs at {percent(fact.value or 0.0)} of its rate"
    if fact.kind == "link_down":
        return (
            f"its link is down {since(fact)}"
            if fact.ended is None
            else f"its link was down until {clock_utc(fact.ended)}"
        )
    last = fact.moments[-1][0] if fact.moments else fact.began or 0.0
    if fact.count < 2:
        return f"link went down once, at {clock_utc(last)}"
    first = fact.moments[0][0] if fact.moments else fact.began or 0.0
    return f"link went down {fact.count} times since {clock_utc(first)}, last at {clock_utc(last)}"


def _alert(fact: Fact) -> str:
    verb, over = ("firing", "") if fact.ended is None else ("fired", f", ended at {clock_utc(fact.ended)}")
    told = f"{fact.detail} {verb} since {clock_utc(fact.began or 0.0)}{over}"
    if fact.value and fact.peers:
        if fact.labels.get("rack"):
            return f"{told}, {fact.value:.0f} of the run's {fact.peers:.0f} nodes are in it"
        whose = "its link" if fact.value == 1 else "their link"
        return f"{told}, {fact.value:.0f} of the run's {fact.peers:.0f} ports there lost {whose}"
    return told


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


def _part(fact: Fact) -> str:
    value = fact.value or 0.0
    if fact.detail == "loss":
        return f"pauses that all ranks wait for took {percent(value)} of the last ten minutes{_share_before(fact)}"
    if fact.labels:
        usual = f", {percent(fact.peers)} of the median's" if fact.peers is not None else ""
        return f"{_PARTS[fact.kind]} takes {percent(value)} of {fact.detail}'s step{usual}"
    return f"takes {percent(value)} of the median rank's step{_share_before(fact)}"


def _share_before(fact: Fact) -> str:
    return f", {percent(fact.before)} before the drop" if fact.before is not None else ""


def _xid(fact: Fact) -> str:
    times = f"Xid {fact.detail} {_times(fact)}"
    return times if fact.kind == "xid_fatal" else f"{times}, which does not take a GPU out of service"


def _celsius(fact: Fact) -> str:
    if fact.strength <= 0 or fact.value is None:
        return ""
    usual = f", {fact.peers:.0f} \u00b0C the median of the run" if fact.peers is not None else ""
    return f"{fact.value:.0f} \u00b0C{usual}"


def _pcie(fact: Fact) -> str:
    value = fact.value or 0.0
    past = f", {fact.before:.0f} before the drop" if fact.before is not None and fact.before > value else ""
    return f"{value:.0f} lanes{past}"


def _rank_silent(fact: Fact) -> str:
    step = f" after the step of {clock_utc(fact.began)}" if fact.began is not None else ""
    return f"{fact.detail} {'is' if fact.detail.startswith('rank ') else 'are'} behind the others{step}"


def _behind(fact: Fact) -> str:
    lasts = fact.began is not None and fact.ended is None and fact.seen_at > fact.began
    return fact.detail + (f" for {duration(fact.seen_at - (fact.began or 0.0))}" if lasts else "")


def _node_silent(fact: Fact) -> str:
    return f"no data since {clock_utc(fact.began)}" if fact.began is not None else "no data in the last hour"


def _changed(fact: Fact) -> str:
    verb = "began " if fact.kind == "restart" else ""
    return f"{fact.detail} {verb}at {clock_utc(fact.began)}" if fact.began is not None else fact.detail


def _tagged(fact: Fact) -> str:
    return f"{percent_of(fact.value or 0.0)} of the batches since the drop are tagged {fact.detail}"


def _other(fact: Fact) -> str:
    if fact.moments:
        return f"{KINDS[fact.kind].name}: {_times(fact)} in the kernel log"
    return f"{fact.detail} {KINDS[fact.kind].name}".strip()


def _times(fact: Fact) -> str:
    first = clock_utc(fact.moments[0][0])
    return f"once, at {first}" if fact.count < 2 else f"{fact.count} times since {first}"


def _pressure(fact: Fact) -> str:
    sentence = f"tasks wait for {fact.detail} {percent(fact.value or 0.0)} of the time"
    sentence += f", {percent(fact.peers)} on the median node" if fact.peers is not None else ""
    return sentence + _share_before(fact)


def began_after(seconds: float) -> str:
    """Return what speaks against a late cause."""
    return f"began {duration(seconds)} after the drop"


def began_before(seconds: float) -> str:
    """Return what speaks against an early cause."""
    return f"began {duration(seconds)} before the drop"


def ended_before(seconds: float) -> str:
    """Return what speaks against a cause that was over."""
    return f"ended {duration(seconds)} before the drop"


def quiet_since(seconds: float) -> str:
    """Return what speaks against a cause that was last seen before the drop."""
    return f"not seen again since {duration(seconds)} before the drop"


def ended_while_slow(ended: float, *, alert: bool = False) -> str:
    """Return what speaks against a cause that is over while the run is slow; of an alert only its end is known."""
    if alert:
        return f"its alert ended at {clock_utc(ended)}"
    return f"ended at {clock_utc(ended)}, but the run was still slow after that"


def many_others(count: int) -> str:
    """Return what speaks against one of many alike."""
    return f"{count} other parts of the run show the same"


def waits_elsewhere(fact: Fact) -> str:
    """Return whom the run waits for instead."""
    return f"the ranks wait for {fact.detail} on {fact.labels.get('node', 'another node')}, not for this one"


def takes_turns(fact: Fact) -> str:
    """Return which part the run waited for before or after this one."""
    return f"the ranks waited for {fact.detail} on {fact.labels.get('node', 'another node')} as well, at another time"


def waits_itself(fact: Fact) -> str:
    """Return how long the ranks that wait least wait themselves."""
    return f"{fact.detail} wait {100 * (fact.value or 0.0):.1f} % of the step as well"


def blip(seconds: float) -> str:
    """Return how short it was."""
    return f"{max(seconds, 0.1):.1f} s in all"


_SENTENCES: Mapping[str, Callable[[Fact], str]] = {
    **dict.fromkeys(SHARES, _share),
    **dict.fromkeys(("link_flap", "link_down", "link_rate"), _link),
    **dict.fromkeys(_PARTS, _part),
    **dict.fromkeys(("xid", "xid_fatal"), _xid),
    **dict.fromkeys(("config", "restart"), _changed),
    "clock_low": _low_clock,
    "power_limit": _power_limit,
    "celsius": _celsius,
    "alert": _alert,
    "least_wait": _least_wait,
    "pcie_width": _pcie,
    "rank_silent": _rank_silent,
    "behind": _behind,
    "not_arrived": _behind,
    "not_spinning": _behind,
    "node_silent": _node_silent,
    "tagged": _tagged,
    "pressure": _pressure,
}
