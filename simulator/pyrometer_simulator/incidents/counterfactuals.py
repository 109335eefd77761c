"""Incidents that generated ones have too few of: causes that look right and are not, and runs that name no parts.

A trouble that began minutes after the drop and that nobody waits for is rare among generated incidents, and a fit to
them alone would let priors grow until it convinces. Each right candidate therefore gets twins that are wrong, one for
each principle that it can break. And all generated runs report how long each rank waits, which many real ones do not:
each look counts once more as such a run would have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyrometer_alerting.diagnosis.catalog import load
from pyrometer_simulator.incidents.examples import Example

TIMES = frozenset({"began_with_drop", "began_before_drop", "began_long_before_drop", "since_drop", "time_unknown"})
# The least of 0.1, 0.3 and 1 with which no twin convinces.
TWINS_WEIGHT = 0.3
# The most of 0.05, 0.1, 0.3 and 1 with which a link that flaps every few minutes is still told at its first flap.
RIVALS_WEIGHT = 0.1
# The run's own evidence that it is this part which slows it down.
RUN_SAYS = frozenset({"waited_for", "run_stands", "symptom_names_it"})
OVER = frozenset({"quiet_since_drop", "ended_before_drop", "ended_while_slow"})
WAITS = frozenset({"waited_for", "others_waited_for"})
TOUCHABLE = frozenset({"throttle", "pcie", "host", "gpu"})  # families that waits elsewhere speak against


@dataclass(frozen=True)
class Principle:
    """Exchange features of a right candidate, so that it is not the cause any more."""

    name: str
    applies: Callable[[Example], bool]
    without: frozenset[str] = frozenset()
    instead: Mapping[str, float] = field(default_factory=dict)


def _family(one: Example) -> str:
    return load().kinds[one.kind].family if one.kind else ""


def _throttles_with_lower_clock(one: Example) -> bool:
    return _family(one) == "throttle" and "clock_unaffected" not in one.features


PRINCIPLES = (
    Principle(
        "began minutes after the drop",
        lambda one: bool({"began_with_drop", "began_before_drop"} & one.features.keys()),
        TIMES | RUN_SAYS,
        {"began_after_drop": 1.0},
    ),
    Principle(
        "was over before the drop",
        lambda one: bool(TIMES & one.features.keys()),
        TIMES | RUN_SAYS,
        {"began_before_drop": 1.0, "ended_before_drop": 1.0},
    ),
    Principle(
        "throttles with clocks and temperature as its peers'",
        _throttles_with_lower_clock,
        RUN_SAYS | {"another_kind"},
        {"clock_unaffected": 1.0, "temperature_normal": 1.0},
    ),
    Principle(
        "the run waits for a part elsewhere",
        lambda one: _family(one) in TOUCHABLE,
        RUN_SAYS,
        {"others_waited_for": 1.0},
    ),
    Principle("fell silent while the run goes on", lambda one: one.kind == "node_silent", RUN_SAYS),
    Principle(
        "an alert on a switch or rail where no port of the run lost its link",
        lambda one: not one.kind,
        RUN_SAYS,
        {"untouched": 1.0},
    ),
)


def rivals(found: Sequence[Example]) -> Iterator[Example]:
    """Yield the looks once more with a rival of each right candidate: a link that flapped alike and is quiet since.

    The trouble that lasts is likelier than one that ended with the drop, of whatever kind both are.
    """
    for one in found:
        beside = replace(one, incident=f"{one.incident}, with a rival", weight=RIVALS_WEIGHT * one.weight)
        yield beside
        if one.right and one.kind and not OVER & one.features.keys():
            left = {name: value for name, value in one.features.items() if name not in RUN_SAYS}
            quiet = left | {"quiet_since_drop": 1.0}
            yield replace(beside, kind="link_flap", features=quiet, right=False)


def twins(found: Sequence[Example]) -> Iterator[Example]:
    """Yield the wrong twins of all right candidates; those of one count together TWINS_WEIGHT of its look."""
    for one in found:
        broken = [principle for principle in PRINCIPLES if one.right and principle.applies(one)]
        for principle in broken:
            yield _twin(one, principle, TWINS_WEIGHT * one.weight / len(broken))


def without_waits(found: Sequence[Example]) -> Iterator[Example]:
    """Yield the looks as they are where the loop names no parts: nobody knows who waits for whom.

    A look whose right candidate is known by the waits alone is left out.
    """
    looks: dict[tuple[str, int, int], list[Example]] = {}
    for one in found:
        if _family(one) != "rank":
            looks.setdefault((one.incident, one.seed, one.look), []).append(one)
    for candidates in looks.values():
        if any(one.right for one in candidates):
            for one in candidates:
                left = {name: value for name, value in one.features.items() if name not in WAITS}
                yield replace(one, incident=f"{one.incident}, no parts named", features=left)


def _twin(one: Example, principle: Principle, weight: float) -> Example:
    left = {name: value for name, value in one.features.items() if name not in principle.without}
    return replace(
        one,
        incident=f"{one.incident}, but: {principle.name}",
        features={**left, **principle.instead},
        right=False,
        weight=weight,
    )
