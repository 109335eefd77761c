"""Sentences of a message, each generated from one checked fact: nothing is said that the fact's figures contradict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyrometer_alerting.diagnosis.catalog import KINDS
from pyrometer_alerting.diagnosis.extent import Group
from pyrometer_alerting.diagnosis.look import times
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import part_of
from pyrometer_alerting.model.text import clock_utc, duration

MOST_SENTENCES = 6


def name_of(kind: str, facts: Sequence[Fact]) -> str:
    """Return the cause in words, as far as the facts support it."""
    title = KINDS[kind].title
    return title([fact for fact in facts if fact.kind == kind] or facts) if title is not None else KINDS[kind].name


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
    sentence = _sentence(fact, several=len(group.facts) > 1)
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


def _sentence(fact: Fact, *, several: bool) -> str:
    """Return the sentence on one fact, or on the strongest of several alike."""
    kind = KINDS[fact.kind]
    says = (kind.says_of_several if several else None) or kind.says
    if says is not None:
        return says(fact)
    if fact.moments:
        return f"{kind.name}: {times(fact)} in the kernel log"
    return f"{fact.detail} {kind.name}".strip()


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
