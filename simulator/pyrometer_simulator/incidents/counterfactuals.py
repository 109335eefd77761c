"""What must not convince: causes of generated incidents, with what made them the cause taken away.

Generated incidents show few causes that look right and are not: a trouble that began minutes after the drop and that
nobody waits for is rare among them, and a fit to them alone would let priors grow until it convinces. Each right
candidate therefore gets twins that are wrong, one for each principle that it can break.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyrometer_alerting.diagnosis.weights import KINDS
from pyrometer_simulator.incidents.examples import Example

TIMES = frozenset({"began_with_drop", "began_before_drop", "began_long_before_drop", "since_drop", "time_unknown"})
# The run's own evidence that it is this part which slows it down.
RUN_SAYS = frozenset({"waited_for", "run_stands", "symptom_names_it"})
TOUCHABLE = frozenset({"throttle", "pcie", "host", "gpu"})  # families that waits elsewhere speak against


@dataclass(frozen=True)
class Principle:
    """What is taken from a right candidate and put in its place, so that it is not the cause any more."""

    name: str
    applies: Callable[[Example], bool]
    without: frozenset[str] = frozenset()
    instead: Mapping[str, float] = field(default_factory=dict)


def _family(one: Example) -> str:
    return KINDS[one.kind].family if one.kind else ""


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


def twins(found: Sequence[Example]) -> Iterator[Example]:
    """Yield the wrong twins of all right candidates, each a look of its own."""
    for one in found:
        if one.right:
            for principle in PRINCIPLES:
                if principle.applies(one):
                    yield _twin(one, principle)


def _twin(one: Example, principle: Principle) -> Example:
    left = {name: value for name, value in one.features.items() if name not in principle.without}
    return replace(
        one,
        incident=f"{one.incident}, but: {principle.name}",
        features=left | principle.instead,
        right=False,
    )
