"""Sentences of a message, each generated from one checked fact: nothing is said that the fact's figures contradict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pyrometer_alerting.diagnosis.extent import Group
from pyrometer_alerting.diagnosis.look import Kind, times
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import part_of

MOST_SENTENCES = 6
Kinds = Mapping[str, Kind]
_WHEN = re.compile(
    r" (since|from|at|after the step of) (before )?\d\d:.*$| since before the examined period| now$| once$"
)


_BEFORE = re.compile(r"(?<=step|utes), ([\d.]+ %) before the drop$")


def evidence(groups: Sequence[Group], support: Sequence[Fact], roster: Roster, kinds: Kinds) -> Iterator[str]:
    """Yield one sentence per kind of fact, the leading kind first, then what supports it from elsewhere."""
    measured = {group.facts[0].kind for group in groups}
    sentences = [said(group, roster, kinds) for group in groups if not _is_same(group, measured)]
    sentences += [said(group, roster, kinds, elsewhere=True) for group in _elsewhere(support, kinds)]
    yield from list(dict.fromkeys(filter(None, sentences)))[:MOST_SENTENCES]


def brief(groups: Sequence[Group], support: Sequence[Fact], roster: Roster, kinds: Kinds) -> str:
    """Return the strongest evidence in a few words, without times: `all 8 GPUs held at 1320 MHz (others 1939)`."""
    lead = groups[0]
    kind = kinds[lead.facts[0].kind]
    clause = _clock_clause(groups) or _first_clause(said(lead, roster, kinds))
    clause = f"{kind.name} {clause}" if clause.startswith("takes ") else clause
    where = _extent(lead, roster).replace("of its", "of the node's") if len(lead.facts) > 1 else ""
    where = re.sub(r"^(\d+) of the (?:node's|run's) \1 (GPUs|nodes|ports)", r"all \1 \2", where)
    waits = any(kinds[fact.kind].awaited for fact in (*support, *(fact for group in groups for fact in group.facts)))
    pieces = [f"{where} {clause}".strip() if _clock_clause(groups) else clause]
    if waits and not kind.awaited:
        pieces.append("the other ranks wait for it")
    return "; ".join(filter(None, pieces))


def _clock_clause(groups: Sequence[Group]) -> str:
    """Return `held at 1320 MHz (others 1939), 92 \u00b0C`; empty where no clock is known to be lower."""
    facts = {group.facts[0].kind: _leading(group.facts) for group in groups}
    clock, heat = facts.get("clock_low"), facts.get("celsius")
    if clock is None or clock.value is None:
        return ""
    usual = max((value for value in (clock.peers, clock.before) if value is not None), default=0.0)
    compared = f"others {usual:.0f}" if usual == clock.peers else f"{usual:.0f} before"
    against = f" ({compared})" if usual > clock.value else ""
    warm = f", {heat.value:.0f} \u00b0C" if heat is not None and heat.value is not None and heat.strength > 0 else ""
    return f"held at {clock.value:.0f} MHz{against}{warm}"


def _first_clause(sentence: str) -> str:
    """Return a sentence up to its first comma, without since when; the share before the drop stays, in brackets."""
    sentence = _BEFORE.sub(r" up from \1", sentence)
    clause = re.split(r"[,;] | \(", sentence)[0]
    return _WHEN.sub("", clause).rstrip(":")


def _is_same(group: Group, measured: set[str]) -> bool:
    """Return whether a more specific fact says it: heat slows the hardware down, an alert counts what is measured."""
    kind = group.facts[0].kind
    if kind == "hw_slowdown":
        return bool(measured & {"hw_thermal", "hw_power_brake"})
    return kind == "alert" and len(measured) > 1 and group.facts[0].value is None


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
