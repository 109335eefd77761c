"""Facts: what was observed about one part, from when until when, how strongly, and by which query.

Facts are stored with the incident and merged between evaluations: the onset of each is determined once, and a
conclusion never depends on a window that has moved past it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# Labels of places that hold several nodes, from the narrowest to the widest; the scrape configuration sets them.
DOMAINS = ("chassis", "rack", "pdu", "cooling_zone", "row")
KEPT_SECONDS = 3600.0  # for which a fact is kept after its end
MOST_MOMENTS = 60


@dataclass(frozen=True)
class Fact:
    """One observation about one part; times are Unix seconds.

    `kind` is one of `diagnosis/evidence`, `detail` tells two facts of one kind apart (an Xid, a resource). `began` may
    be too late by `precision`; a `chronic` fact already existed at the start of the examined period. `value` is
    what was measured, `peers` the same on the run's other parts (their median) and `before` on this part before the
    drop. `moments` are the single events with their numbers. `first_at` and `seen_at` are the first and the last
    evaluation that found it.
    """

    kind: str
    labels: Mapping[str, str]
    detail: str = ""
    began: float | None = None
    precision: float = 0.0
    chronic: bool = False
    ended: float | None = None
    strength: float = 1.0
    value: float | None = None
    peers: float | None = None
    before: float | None = None
    base: float | None = None  # of a counter of seconds: its reading before the onset
    read_at: float | None = None  # the time of its newest sample, which is old on a node that does not report
    moments: tuple[tuple[float, float], ...] = ()
    source: str = ""
    first_at: float = 0.0
    seen_at: float = 0.0
    expires: float = KEPT_SECONDS  # seconds after its end

    @property
    def key(self) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """Identify the fact across evaluations."""
        return self.kind, self.detail, tuple(sorted(self.labels.items()))

    @property
    def count(self) -> int:
        """The number of events."""
        return round(sum(amount for _at, amount in self.moments))


@dataclass(frozen=True)
class Roster:
    """The parts of a run: GPUs by node, and the places of each node; kept from before the drop."""

    attempt: str = ""
    gpus: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # node -> {"rack": "r07"}
    silent: Mapping[str, float] = field(default_factory=dict)  # node -> time of its last sample
    # part -> {"switch": "leaf-12", "rail": "3"}, of the run's ports at switches and rails in question
    ports: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that have a GPU of the run."""
        return tuple(sorted(self.gpus))

    @property
    def size(self) -> int:
        """The number of the run's GPUs."""
        return sum(map(len, self.gpus.values()))

    @property
    def reporting(self) -> int:
        """The number of the run's GPUs on nodes that report."""
        return sum(len(gpus) for node, gpus in self.gpus.items() if node not in self.silent)


def fact_from(raw: Mapping[str, Any]) -> Fact:
    """Parse one fact of a stored document."""
    return Fact(**{**raw, "moments": tuple((at, amount) for at, amount in raw.get("moments", ()))})


def facts_to(facts: tuple[Fact, ...]) -> list[dict[str, Any]]:
    """Serialize facts without the fields that have their default, which are most."""
    plain = asdict(Fact("", {}))
    return [
        {name: value for name, value in vars(fact).items() if name in ("kind", "labels") or value != plain[name]}
        for fact in facts
    ]


def roster_from(raw: Mapping[str, Any] | None) -> Roster | None:
    """Parse the roster of a stored document."""
    if raw is None:
        return None
    gpus = {node: tuple(names) for node, names in raw["gpus"].items()}
    return Roster(raw["attempt"], gpus, raw["places"], raw.get("silent", {}), raw.get("ports", {}))
