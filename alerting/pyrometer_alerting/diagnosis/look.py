"""One look at a run's evidence: what providers query with and return, and how it is merged with what is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

from pyrometer_alerting.diagnosis.weights import KINDS
from pyrometer_alerting.incidents.topology import Port
from pyrometer_alerting.model.fact import MOST_MOMENTS, Fact, Roster
from pyrometer_alerting.model.incident import Incident
from pyrometer_kit.prometheus import Prometheus, Series
from pyrometer_kit.promql import matching, quoted

LOOK_BACK_SECONDS = 900.0  # before the first known time of the trouble
LEAST_WINDOW, LONGEST_WINDOW = 300.0, 3600.0
BEFORE_SECONDS = 45.0  # "before the drop" is this long before its onset: three scrapes of 15 s
# A state that was not seen for this long has ended: one look below a threshold is no end, and a node counts as silent
# before what was last seen on it counts as over.
GONE_SECONDS = 100.0
STANDS_SECONDS = 60.0  # without a step of any rank
MOST_FACTS = 400
MOST_SUSPECTS = 160  # series of one kind whose onset is sought: the GPUs of two and a half racks

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Rank:
    """Where a rank runs, and its pipeline stage."""

    node: str
    gpu: str
    stage: str


@dataclass(frozen=True)
class Questions:
    """The knowledge that a provider asks with: the run, its roster, the drop's onset, the facts found before it."""

    prometheus: Prometheus
    incident: Incident
    now: float
    onset: float | None = None
    roster: Roster = field(default_factory=Roster)
    others: Sequence[Incident] = ()
    found: Sequence[Fact] = ()
    answered: Mapping[str, float] = field(default_factory=dict)
    ranks: Mapping[str, Rank] = field(default_factory=dict)  # by number, of the newest attempt
    ports: Sequence[Port] = ()  # of the run, at switches and rails that an alert names

    @property
    def began(self) -> float:
        """When the trouble began, as far as is known."""
        return self.onset if self.onset is not None else self.incident.started_at

    @property
    def before(self) -> float:
        """A time shortly before the trouble, to compare with."""
        return min(self.began, self.now) - BEFORE_SECONDS

    def since(self, provider: str) -> float:
        """Return the seconds to look back: to what the provider has seen already, else to before the trouble."""
        last = self.answered.get(provider)
        start = self.began - LEAST_WINDOW if last is None else last
        return float(round(min(max(self.now - start + 120.0, LEAST_WINDOW), LONGEST_WINDOW)))

    def of_nodes(self, *matchers: str, nodes: Iterable[str] | None = None) -> str:
        """Return the label matchers of the run's nodes, in braces."""
        chosen = sorted(self.roster.gpus if nodes is None else nodes)
        return "{" + ",".join([f"cluster={quoted(self.incident.cluster)}", matching("node", chosen), *matchers]) + "}"

    def of_run(self, *matchers: str) -> str:
        """Return the label matchers of the run, in braces."""
        mine = [f"cluster={quoted(self.incident.cluster)}", f"run={quoted(self.incident.run)}"]
        return "{" + ",".join([*mine, *matchers]) + "}"

    def instant(self, query: str, at: float | None = None) -> list[Series]:
        """Query Prometheus now, or at another time.

        Raises:
            PrometheusError: no answer.
        """
        return self.prometheus.instant(query, self.now if at is None else at)

    def values(self, query: str, keys: Sequence[str], at: float | None = None) -> dict[tuple[str, ...], float]:
        """Query and return the values by these labels."""
        return {
            tuple(series.labels.get(key, "") for key in keys): series.points[-1][1]
            for series in self.instant(query, at)
            if series.points and series.points[-1][1] == series.points[-1][1]
        }


@dataclass(frozen=True)
class Look:
    """The facts that one provider found, and the kinds of which it knows that there are no others."""

    facts: tuple[Fact, ...] = ()
    kinds: frozenset[str] = frozenset()
    missing: tuple[str, ...] = ()


Provider = Callable[[Questions], Look]


def merged(known: Iterable[Fact], looks: Sequence[Look], silent: Iterable[str], now: float) -> tuple[Fact, ...]:
    """Merge a look into what is known.

    A fact ends only when a look that was answered shows that it ended, and not on a node that does not report.
    """
    facts = {fact.key: fact for fact in known}
    seen = {fact.key: fact for look in looks for fact in look.facts}
    answered = frozenset[str]().union(*(look.kinds for look in looks)) if looks else frozenset[str]()
    quiet = set(silent)
    for key, fact in facts.items():
        gone = fact.ended is None and now - fact.seen_at > GONE_SECONDS and fact.kind in answered
        if key not in seen and gone and fact.labels.get("node") not in quiet:
            facts[key] = replace(fact, ended=fact.seen_at)
    for key, fact in seen.items():
        facts[key] = _continued(facts[key], fact, now) if key in facts else replace(fact, first_at=now, seen_at=now)
    kept = [fact for fact in facts.values() if fact.ended is None or now - fact.ended <= fact.expires]
    return tuple(sorted(kept, key=lambda fact: (fact.first_at, -fact.strength))[:MOST_FACTS])


def _continued(old: Fact, new: Fact, now: float) -> Fact:
    """Return the fact with its first onset, unless it paused for long: then it began again."""
    pause = KINDS[new.kind].pause
    last = old.seen_at if old.ended is None else old.ended  # nobody looked between two episodes of an incident
    began_again = new.began is not None and new.began - last > pause
    moments = tuple(sorted({**dict(old.moments), **dict(new.moments)}.items()))[-MOST_MOMENTS:]
    if began_again:
        return replace(new, first_at=now, seen_at=now, moments=moments, before=old.before)
    earlier = old if old.began is None or new.began is None or old.began <= new.began else new
    return replace(
        new,
        began=earlier.began,
        precision=earlier.precision,
        chronic=old.chronic,
        strength=max(old.strength, new.strength),
        value=_measured(old, new),
        base=old.base if old.base is not None else new.base,
        before=old.before if old.before is not None else new.before,
        moments=moments,
        first_at=old.first_at,
        seen_at=now,
    )


def _measured(old: Fact, new: Fact) -> float | None:
    """Return what was measured: seconds since the onset, lowest clock, highest temperature, else the newest."""
    if old.value is None or new.value is None:
        return old.value if new.value is None else new.value
    if old.base is not None and new.base is not None:
        return max(old.value, new.value + new.base - old.base)  # a counter that was reset says less
    extreme = {"clock_low": min, "celsius": max}.get(new.kind)
    return new.value if extreme is None else extreme(old.value, new.value)


def increments(points: Points) -> list[tuple[float, float, float]]:
    """Return (time of the sample before, time, increment) where a counter rose; a reset counts from zero."""
    rises = []
    for (earlier, low), (later, high) in pairwise(points):
        rise = high - low if high >= low else high
        if rise > 0:
            rises.append((earlier, later, rise))
    return rises


def slopes(points: Points) -> Points:
    """Return a counter's rate between its samples, at the later of each two; without resets."""
    return tuple(
        (later, (high - low) / (later - earlier))
        for (earlier, low), (later, high) in pairwise(points)
        if later > earlier and high >= low
    )


@dataclass(frozen=True)
class Crossing:
    """When a gauge last crossed a level and stayed beyond: the first sample beyond it, and the time since the last."""

    at: float
    precision: float
    chronic: bool = False


def crossing(points: Points, level: float, *, above: bool = True) -> Crossing | None:
    """Return when the newest stretch beyond the level began; None where the newest sample is not beyond it."""
    beyond = [(value > level) if above else (value < level) for _at, value in points]
    if not beyond or not beyond[-1]:
        return None
    first = len(beyond) - 1
    while first > 0 and beyond[first - 1]:
        first -= 1
    at = points[first][0]
    return Crossing(at, 0.0, chronic=True) if first == 0 else Crossing(at, at - points[first - 1][0])


def middle(values: Iterable[float]) -> float | None:
    """Return the median; None without values."""
    known = list(values)
    return median(known) if known else None
