"""Build the candidates for the cause of a slow run: a part, with its facts of one family and what supports them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyrometer_alerting.diagnosis.evidence.alerts import family_of
from pyrometer_alerting.diagnosis.extent import Group, groups, inside
from pyrometer_alerting.diagnosis.look import Kind
from pyrometer_alerting.diagnosis.weights import Weights
from pyrometer_alerting.model.alert_names import MASS_EVENT, NAMED_CAUSES
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import NO_SINGLE_PART, Shape, part_of

# A GPU that is slowed down has a lower clock: both are one cause.
MERGED = {"clock": "throttle"}
SLOWING = frozenset({"throttle", "link", "xid", "pcie", "host", "gpu", "silent"})  # families that ranks may wait for
ARRIVAL_SECONDS = 45.0  # three scrapes of 15 s


@dataclass(frozen=True)
class Case:
    """The standard that facts are weighed against: drops, their end, the roster, the curve, and the weights."""

    now: float
    drops: tuple[float, ...] = ()
    recovered: float | None = None
    roster: Roster = field(default_factory=Roster)
    shape: Shape | None = None
    stands: bool = False
    weights: Weights = field(default_factory=Weights)

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """All kinds of facts, by name."""
        return self.weights.catalog.kinds

    @property
    def until(self) -> float:
        """Until when the run was slow: now, or its recovery."""
        return self.now if self.recovered is None else self.recovered

    @property
    def present_drop(self) -> float | None:
        """The newest drop that is old enough for its evidence to have arrived, else the first one."""
        arrived = [drop for drop in self.drops if self.until - drop > ARRIVAL_SECONDS]
        return max(arrived) if arrived else min(self.drops, default=None)


@dataclass(frozen=True)
class Candidate:
    """A possible cause: its part, its name, its facts by weight, its features and the logit they add up to."""

    labels: Mapping[str, str]
    family: str
    kind: str
    name: str
    facts: tuple[Fact, ...]
    groups: tuple[Group, ...] = ()
    features: Mapping[str, float] = field(default_factory=dict)
    support: tuple[Fact, ...] = ()  # facts elsewhere that speak for it: the ranks that wait for it
    against: tuple[str, ...] = ()
    logit: float = 0.0

    @property
    def part(self) -> str:
        """The part in the channel's notation."""
        return part_of(self.labels) or NO_SINGLE_PART


def built(facts: Sequence[Fact], context: Sequence[Fact], case: Case) -> list[Candidate]:
    """Return the candidates for facts that may name a cause, beside those of their context; not yet weighed."""
    roster = case.roster
    candidates = _with_waits(_absorbed(_by_part(groups(facts, roster, case.kinds), case), roster), roster)
    return [_with_temperature(candidate, context) for candidate in candidates]


def _by_part(found: Iterable[Group], case: Case) -> list[Candidate]:
    """Merge the groups of one family on one part; what was over before the drop gives no name to what came with it."""
    parts: dict[tuple[object, str, bool], list[Group]] = defaultdict(list)
    for group in found:
        family = _family(group.facts[0], case.kinds)
        # A host's kinds of events are troubles of their own.
        over = family == "host" and _was_over(group, case.drops)
        parts[group.place, family, over].append(group)
    return [_candidate(family, same, case.kinds) for (_place, family, _over), same in parts.items()]


def _was_over(group: Group, drops: Sequence[float]) -> bool:
    """Return whether it is an event of well before the first drop."""
    last = [fact.moments[-1][0] if fact.moments else fact.ended for fact in group.facts]
    return bool(drops) and all(at is not None and min(drops) - at > ARRIVAL_SECONDS for at in last)


def _candidate(family: str, same: Sequence[Group], kinds: Mapping[str, Kind]) -> Candidate:
    ordered = tuple(sorted(same, key=lambda group: _naming(group, kinds)))
    if flapping := [group for group in ordered if group.facts[0].kind == "link_flap" and group.facts[0].count > 1]:
        ordered = (*flapping, *(group for group in ordered if group not in flapping))  # not "link down", of its last
    facts = tuple(fact for group in ordered for fact in group.facts)
    labels, kind = ordered[0].labels, ordered[0].facts[0].kind
    title = kinds[kind].title
    name = kinds[kind].name if title is None else title([fact for fact in facts if fact.kind == kind])
    if family == "link" and {"switch", "rail"} & set(labels):
        name = NAMED_CAUSES[MASS_EVENT][1]
    return Candidate(labels, family, kind, name, facts, ordered)


def _naming(group: Group, kinds: Mapping[str, Kind]) -> tuple[float, int]:
    """Name a cause after the kind that held the part the longest, of equals after the more specific one."""
    fact = group.facts[0]
    live = [member for member in group.facts if member.ended is None]
    weight = max((member.strength for member in live or group.facts), default=0.0)
    if fact.kind == "hw_slowdown":  # is on with the other hardware reasons as well (nvml.h)
        weight *= 0.5
    # It went down once, and may have stayed down.
    if fact.kind == "link_flap" and sum(member.count for member in group.facts) < 2:
        weight *= 0.5
    tier = 0 if kinds[fact.kind].family == "throttle" else 1 if fact.kind != "alert" else 2
    return tier - min(weight, 1.0) * 0.9, list(kinds).index(fact.kind)


def _family(fact: Fact, kinds: Mapping[str, Kind]) -> str:
    family = family_of(fact.detail) if fact.kind == "alert" else kinds[fact.kind].family
    return MERGED.get(family, family)


def _absorbed(found: Sequence[Candidate], roster: Roster) -> list[Candidate]:
    """Let a wider candidate of the same family take those in it: its links are a switch's effect, its GPUs a node's."""
    ordered = sorted(found, key=lambda candidate: _width(candidate.labels))
    kept = [candidate for candidate in ordered if not any(_explains(other, candidate, roster) for other in found)]
    return [
        replace(
            wide,
            support=(*wide.support, *(fact for one in found if _explains(wide, one, roster) for fact in one.facts)),
        )
        for wide in kept
    ]


def _explains(wide: Candidate, narrow: Candidate, roster: Roster) -> bool:
    """Return whether the wide candidate has the other as its effect: they began together, as far as is known."""
    if wide is narrow or wide.family != narrow.family or _width(wide.labels) <= _width(narrow.labels):
        return False
    if not wide.labels or not inside(narrow.labels, wide.labels, roster):
        return False
    apart = [
        abs(one.began - other.began) - one.precision - other.precision
        for one in wide.facts[:1]
        for other in narrow.facts[:1]
        if one.began is not None and other.began is not None
    ]
    return not apart or apart[0] <= 60.0


_WIDTH = ("device", "gpu", "rank", "node", "chassis", "rack", "row", "pdu", "cooling_zone", "rail", "switch")


def _width(labels: Mapping[str, str]) -> int:
    return next((index for index, name in enumerate(_WIDTH) if labels.get(name)), len(_WIDTH))


def _with_waits(candidates: Sequence[Candidate], roster: Roster) -> list[Candidate]:
    """Let waits speak for what is on the part that the ranks wait for; alone they stand where nothing else is there."""
    waits = [candidate for candidate in candidates if candidate.family == "rank"]
    others = [candidate for candidate in candidates if candidate.family != "rank"]
    slowing = [candidate for candidate in others if candidate.labels and candidate.family in SLOWING]
    explained = [wait for wait in waits if any(meet(wait.labels, other.labels, roster) for other in slowing)]
    supported = [
        replace(
            candidate,
            support=(
                *candidate.support,
                *(
                    fact
                    for wait in waits
                    if candidate in slowing and meet(wait.labels, candidate.labels, roster)
                    for fact in wait.facts
                ),
            ),
        )
        for candidate in others
    ]
    alone = [candidate for candidate in waits if candidate not in explained]
    # A sick part there may be an innocent bystander: the waits keep a candidate of their own, which it must beat.
    return [*supported, *alone, *(replace(candidate, support=()) for candidate in explained)]


def _with_temperature(candidate: Candidate, context: Sequence[Fact]) -> Candidate:
    """Add the temperature of the GPU that is slowed down by heat."""
    if "thermal" not in candidate.kind or not candidate.labels.get("gpu"):
        return candidate
    warm = (fact for fact in context if fact.kind == "celsius" and fact.labels == candidate.labels)
    return replace(candidate, groups=(*candidate.groups, *map(Group.single, warm)))


def meet(one: Mapping[str, str], other: Mapping[str, str], roster: Roster) -> bool:
    """Return whether one part lies in the other, or they share the node and are not two different GPUs."""
    if inside(one, other, roster) or inside(other, one, roster):
        return True
    same = bool(one.get("node")) and one.get("node") == other.get("node")
    return same and not (one.get("gpu") and other.get("gpu"))
