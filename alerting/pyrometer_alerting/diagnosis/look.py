"""The words of a file of evidence: the questions it may ask, the look it returns, its kinds of facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

from pyrometer_alerting.diagnosis.run_matchers import matchers as run_matchers
from pyrometer_alerting.incidents.topology import Port
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import Incident
from pyrometer_alerting.model.text import clock_utc, percent
from pyrometer_kit.prometheus import Prometheus, Series
from pyrometer_kit.promql import matching, quoted

LOOK_BACK_SECONDS = 900.0  # before the first known time of the trouble
LEAST_WINDOW, LONGEST_WINDOW = 300.0, 3600.0
BEFORE_SECONDS = 45.0  # "before the drop" is this long before its onset: three scrapes of 15 s
ANOTHER_DROP_SECONDS = 60.0  # after a recovery or a further fall: the onset of one drop is found to within about 10 s
STANDS_SECONDS = 60.0  # without a step of any rank
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
        incident = self.incident
        return "{" + ",".join([*run_matchers(incident.cluster, incident.run, incident.job_id), *matchers]) + "}"

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


@dataclass(frozen=True)
class Kind:
    """One kind of fact: what it does to a step, how much it weighs, what is said of it.

    Attributes:
        family: kinds of one family on one part are one cause.
        name: the cause in a message.
        prior: its weight before any feature, as a logit.
        pause: seconds after which another occurrence is a new one.
        says: the sentence on one fact; without one it is told by its name.
        says_of_several: the same of a fact that stands for several alike, where that reads otherwise.
        title: the name, where it depends on the facts of this kind.
        extreme: which of two measurements is kept; the newest without one.
        by_detail: another detail is another trouble.
        awaited: it names whom the other ranks wait for.
        of_node: the reason lies outside of single GPUs, in their node.
        of_place: or in a place of several nodes.
        runbook: heading in docs/alerts.md whose first step is for it; an alert's is its own name.
    """

    family: str
    name: str
    prior: float
    pause: float = 60.0
    says: Callable[[Fact], str] | None = None
    says_of_several: Callable[[Fact], str] | None = None
    title: Callable[[Sequence[Fact]], str] | None = None
    extreme: Callable[[float, float], float] | None = None
    by_detail: bool = False
    awaited: bool = False
    of_node: bool = False
    of_place: bool = False
    runbook: str = ""


@dataclass(frozen=True)
class Query:
    """A function that looks for facts, once in each look.

    Attributes:
        find: the function; its name is stored with when it was last answered.
        subject: what was looked at, for the message that found nothing; empty where others say it already.
        first_look: its turn in the first look, for which the message waits; 0 if it is not part of that.
    """

    find: Callable[[Questions], Look]
    subject: str = ""
    first_look: int = 0

    @property
    def name(self) -> str:
        """The function's name."""
        return self.find.__name__


@dataclass(frozen=True)
class Subject:
    """All that a file of evidence adds: its place among the subjects, its kinds of facts, its queries.

    Among several kinds on one part the first one names the cause, so the order of the kinds counts.
    """

    place: int
    kinds: Mapping[str, Kind]
    queries: Sequence[Query]


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


def dated(fact: Fact, start: Crossing | None) -> Fact:
    """Return the fact with its onset, where the stored samples show it."""
    return fact if start is None or start.chronic else replace(fact, began=start.at, precision=start.precision)


def middle(values: Iterable[float]) -> float | None:
    """Return the median; None without values."""
    known = list(values)
    return median(known) if known else None


def attempt_of(value: str) -> int:
    """Return the number of an attempt; -1 where it has none."""
    return int(value) if value.isdigit() else -1


def percent_of(share: float) -> str:
    """Return whole per cent: `98 %`; anything above zero is at least `1 %`."""
    return f"{max(round(100 * share), 1 if share > 0 else 0)} %"


def since(fact: Fact) -> str:
    """Return since when, as exactly as is known."""
    if fact.chronic or fact.began is None:
        return "since before the examined period" if fact.chronic else "now"
    return f"since {clock_utc(fact.began)}"


def share_before(fact: Fact) -> str:
    """Return `, 2 % before the drop`; empty where that is not known."""
    return f", {percent(fact.before)} before the drop" if fact.before is not None else ""


def times(fact: Fact) -> str:
    """Return `once, at 03:12:05 UTC` or `3 times since 03:12:05 UTC`."""
    first = clock_utc(fact.moments[0][0])
    return f"once, at {first}" if fact.count < 2 else f"{fact.count} times since {first}"
