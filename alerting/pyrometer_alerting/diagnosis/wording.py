"""Sentences of a message, each generated from one checked fact: nothing is said that the fact's figures contradict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pyrometer_alerting.diagnosis.extent import Group
from pyrometer_alerting.diagnosis.look import Kind, times
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import part_of

MOST_SENTENCES = 6
Kinds = Mapping[str, Kind]


def evidence(groups: Sequence[Group], support: Sequence[Fact], roster: Roster, kinds: Kinds) -> Iterator[str]:
    """Yield one sentence per kind of fact, the leading kind first, then what supports it from elsewhere."""
    sentences = [said(group, roster, kinds) for group in groups]
    sentences += [said(group, roster, kinds, elsewhere=True) for group in _elsewhere(support, kinds)]
    yield from list(dict.fromkeys(filter(None, sentences)))[:MOST_SENTENCES]


def _elsewhere(facts: Iterable[Fact], kinds: Kinds) -> Iterator[Group]:
    """Yield the facts to be told each for itself, at most three of a kind; those of several GPUs or ports as one."""
    by_kind: dict[str, list[Fact]] = {}
    for fact in facts:
        by_kind.setdefault(fact.kind, []).append(fact)
    for kind, same in by_kind.items():
        nodes = {fact.labels.get("node") for fact in same}
        if len(same) > 1 and kinds[kind].family in ("throttle", "clock", "link", "pcie"):
            node = nodes.pop() if len(nodes) == 1 else None
            yield Group({"node": node} if node else {}, tuple(same), len(same), len(same), len(same))
        else:
            yield from map(Group.single, same[:3])


def said(group: Group, roster: Roster, kinds: Kinds, *, elsewhere: bool = False) -> str:
    """Return the sentence on facts of one kind on one part; empty where there is nothing to say."""
    fact = _leading(group.facts)
    part = part_of(fact.labels if len(group.facts) == 1 else group.labels)
    prefix = f"{part}: " if elsewhere and part and fact.kind != "least_wait" else ""
    sentence = _sentence(fact, kinds[fact.kind], several=len(group.facts) > 1)
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


def _sentence(fact: Fact, kind: Kind, *, several: bool) -> str:
    """Return the sentence on one fact, or on the strongest of several alike."""
    says = (kind.says_of_several if several else None) or kind.says
    if says is not None:
        return says(fact)
    if fact.moments:
        return f"{kind.name}: {times(fact)} in the kernel log"
    return f"{fact.detail} {kind.name}".strip()
