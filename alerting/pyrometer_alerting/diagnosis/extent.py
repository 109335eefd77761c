"""Find the smallest part that contains all who are sick: GPU, node, rack or another place, switch, job.

Facts of one kind that began together are one fact about the part that covers them (fault domain by set cover).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyrometer_alerting.diagnosis.evidence.links import LOSSES
from pyrometer_alerting.diagnosis.look import Kind
from pyrometer_alerting.model.fact import DOMAINS, Fact, Roster
from pyrometer_alerting.model.incident import part_of

TOGETHER_SECONDS = 120.0  # facts of one cause begin within two scrapes of 60 s
COVERED = 0.75  # of the run's parts in a domain must be sick
HALF = 0.5  # of a node's GPUs that slow down together are the node: the reason lies outside of them
LEAST_GPUS = 3  # of a node; of a node of which the run uses fewer, all
LEAST_NODES = 2  # of a rack
BROAD = 0.25  # of the run's GPUs: more are no single part
BROAD_GPUS, BROAD_NODES = 8, 3
LEAST_PORTS = 3  # of a switch or a rail

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Group:
    """Facts of one kind on one part; `sick` of the run's `of` parts there, and of `everywhere` that are sick at all."""

    labels: Mapping[str, str]
    facts: tuple[Fact, ...]
    sick: int
    of: int
    everywhere: int

    @property
    def place(self) -> Labels:
        """Identify the part."""
        return tuple(sorted(self.labels.items()))

    @classmethod
    def single(cls, fact: Fact) -> Group:
        """Return a fact as a group of its own."""
        return cls(fact.labels, (fact,), 1, 1, 1)


def groups(facts: Iterable[Fact], roster: Roster, kinds: Mapping[str, Kind]) -> list[Group]:
    """Return the facts by kind and by the smallest part that covers those that began together."""
    by_kind: dict[tuple[str, str], list[Fact]] = defaultdict(list)
    for fact in facts:
        # Another resource is another trouble, another rank is not.
        by_kind[fact.kind, fact.detail if kinds[fact.kind].by_detail else ""].append(fact)
    return [
        group
        for (name, _detail), same in by_kind.items()
        for batch in _batches(same)
        for group in _covered(batch, roster, kinds[name])
    ]


def _batches(facts: Sequence[Fact]) -> list[list[Fact]]:
    """Split facts of one kind by when they began; those of unknown time go with the largest batch."""
    dated = sorted((fact for fact in facts if _began(fact) is not None), key=lambda fact: _began(fact) or 0.0)
    unknown = [fact for fact in facts if _began(fact) is None]
    batches: list[list[Fact]] = []
    for fact in dated:
        if batches and (_began(fact) or 0.0) - (_began(batches[-1][0]) or 0.0) <= TOGETHER_SECONDS:
            batches[-1].append(fact)
        else:
            batches.append([fact])
    if unknown and batches and len(unknown) < max(map(len, batches)):
        max(batches, key=len).extend(unknown)
    elif unknown:
        batches.append(unknown)
    return batches


def _began(fact: Fact) -> float | None:
    return None if fact.chronic else fact.began


def _covered(facts: Sequence[Fact], roster: Roster, kind: Kind) -> list[Group]:
    """Return groups of these facts, each on the smallest part that covers enough of it."""
    if all(not fact.labels.get("node") for fact in facts):
        return [Group.single(fact) for fact in facts]
    everywhere = len(facts)
    nodes: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        nodes[fact.labels.get("node", "")].append(fact)
    whole = {node: mine for node, mine in nodes.items() if node and _is_whole(node, mine, roster, kind)}
    found = [*_fabric(facts, roster), *_domains(whole, nodes, roster, kind)]
    taken = {id(fact) for group in found for fact in group.facts}
    for node, mine in whole.items():
        if not any(id(fact) in taken for fact in mine):
            found.append(Group({"node": node}, tuple(mine), len(mine), _size(node, mine, roster), everywhere))
    taken = {id(fact) for group in found for fact in group.facts}
    rest = [Group(fact.labels, (fact,), 1, 1, everywhere) for fact in facts if id(fact) not in taken]
    return _broad([*found, *rest], everywhere, roster, kind)


def _fabric(facts: Sequence[Fact], roster: Roster) -> list[Group]:
    """Return the switches, and the rails where no switch is known, of which nearly all of the run's ports are sick."""
    members: dict[tuple[str, str], set[str]] = defaultdict(set)
    for part, wiring in roster.ports.items():
        name = "switch" if wiring.get("switch") else "rail"
        if wiring.get(name):
            members[name, wiring[name]].add(part)
    found = []
    for (name, value), ports in members.items():
        mine = [fact for fact in facts if fact.kind in LOSSES and part_of(fact.labels) in ports]
        sick = {part_of(fact.labels) for fact in mine}
        nodes = {fact.labels.get("node") for fact in mine}
        if len(sick) >= max(LEAST_PORTS, COVERED * len(ports)) and len(nodes) >= LEAST_NODES:
            found.append(Group({name: value}, tuple(mine), len(sick), len(ports), len(facts)))
    return found


def _is_whole(node: str, facts: Sequence[Fact], roster: Roster, kind: Kind) -> bool:
    """Return whether these are most of the node's parts, or a fact on the node itself."""
    if any("gpu" not in fact.labels and "device" not in fact.labels for fact in facts):
        return True
    size = _size(node, facts, roster)
    covered = HALF if all(_is_of_nodes(fact, kind) for fact in facts) else COVERED
    return len(facts) >= max(min(LEAST_GPUS, size), covered * size, 2)


def _size(node: str, facts: Sequence[Fact], roster: Roster) -> int:
    """Return how many such parts of the node the run uses; ports are as many as its GPUs (one NIC per GPU).

    A node that the run has left had as many as the others.
    """
    used = len(roster.gpus[node]) if node in roster.gpus else max(map(len, roster.gpus.values()), default=0)
    return max(used, len(facts), 1)


def _domains(
    whole: Mapping[str, list[Fact]], nodes: Mapping[str, list[Fact]], roster: Roster, kind: Kind
) -> list[Group]:
    """Return the places that hold at least two sick nodes, hardly a healthy one, and not the whole run."""
    found: list[Group] = []
    left = dict(whole)
    members: dict[tuple[str, str], set[str]] = defaultdict(set)
    for node, places in roster.places.items():
        if node in roster.gpus:
            for name in DOMAINS:
                if places.get(name):
                    members[name, places[name]].add(node)
    everywhere = sum(map(len, nodes.values()))
    for (name, value), inside in sorted(members.items(), key=lambda item: (DOMAINS.index(item[0][0]), item[0][1])):
        sick = inside & set(left)
        of_place = all(_is_of_place(fact, kind) for node in sick for fact in left[node])
        is_run = len(inside) == len(roster.gpus) and not (of_place and len(sick) == len(inside))
        if len(sick) < LEAST_NODES or len(sick) < COVERED * len(inside) or is_run:
            continue
        # The smallest place of its kind that holds all: a wider one only where the narrower does not.
        facts = tuple(fact for node in sorted(sick) for fact in left.pop(node))
        found.append(Group({name: value}, facts, len(sick), len(inside), everywhere))
    return _widened(found, members, roster)


def _widened(found: list[Group], members: Mapping[tuple[str, str], set[str]], roster: Roster) -> list[Group]:
    """Join several places into the one that holds them all, such as two racks on one PDU."""
    if len(found) < 2:
        return found
    for name in DOMAINS:
        for (kind, value), inside in members.items():
            if kind != name or len(inside) == len(roster.gpus):
                continue
            held = [group for group in found if all(fact.labels.get("node") in inside for fact in group.facts)]
            sick = {fact.labels.get("node") for group in held for fact in group.facts}
            if len(held) == len(found) and len(sick) >= COVERED * len(inside):
                facts = tuple(fact for group in held for fact in group.facts)
                return [Group({name: value}, facts, len(sick), len(inside), found[0].everywhere)]
    return found


def _broad(found: list[Group], everywhere: int, roster: Roster, kind: Kind) -> list[Group]:
    """Report parts of many nodes without a common place as no single part where they are a quarter of the run."""
    if len(found) > 1 and _is_everywhere(found, roster, kind):
        facts = tuple(fact for group in found for fact in group.facts)
        return [Group({}, facts, len({fact.labels["node"] for fact in facts}), len(roster.gpus), everywhere)]
    spread = [group for group in found if group.labels.get("node")]
    facts = tuple(fact for group in spread for fact in group.facts)
    nodes = {fact.labels["node"] for fact in facts}
    if len(nodes) < BROAD_NODES or len(facts) <= max(BROAD_GPUS, BROAD * roster.size):
        return found
    others = [group for group in found if group not in spread]
    return [*others, Group({}, facts, len(nodes), len(roster.gpus), everywhere)]


def _is_everywhere(found: Sequence[Group], roster: Roster, kind: Kind) -> bool:
    """Return whether nearly all of the run is sick: no single rack of it is to blame then."""
    facts = [fact for group in found for fact in group.facts]
    sick = {fact.labels.get("node", "") for fact in facts} - {""}
    homes = {name: {roster.places.get(node, {}).get(name) for node in sick} for name in DOMAINS}
    if any(len(values) == 1 and None not in values and "" not in values for values in homes.values()):
        return False  # one place holds them all
    whole = len(sick) >= max(BROAD_NODES, COVERED * len(roster.gpus))
    of_nodes = all(_is_of_nodes(fact, kind) or fact.kind == "pressure" for fact in facts)
    return whole and of_nodes and all(fact.labels.get("node") for fact in facts)


def _is_of_place(fact: Fact, kind: Kind) -> bool:
    """Return whether it is what a place does to its nodes, or its effect on the clocks."""
    return kind.of_place or (fact.kind == "alert" and fact.detail.startswith("GpuThrottled"))


def _is_of_nodes(fact: Fact, kind: Kind) -> bool:
    return kind.of_node or _is_of_place(fact, kind)


def inside(part: Mapping[str, str], whole: Mapping[str, str], roster: Roster) -> bool:
    """Return whether the part is the whole or lies in it; anything lies in the run itself."""
    if not whole:
        return True
    if all(part.get(name) == value for name, value in whole.items()):
        return True
    wiring = roster.ports.get(part_of(part), {})
    if wiring and all(wiring.get(name) == value for name, value in whole.items()):
        return True
    node = part.get("node", "")
    return bool(node) and all(roster.places.get(node, {}).get(name) == value for name, value in whole.items())
