"""Define a situation: the hardware, the steps on it, and the alerts that have to come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyrometer_simulator.situations.exported_node import Hardware
from pyrometer_simulator.situations.host import NICS
from pyrometer_simulator.situations.site import Site

Action = Callable[[Site], object]
SCRAPE_INTERVALS = (5, 15, 30)
MINUTE = 60.0
HOUR = 3600.0


class Step(NamedTuple):
    """One thing that happens, so many seconds after the first scrape."""

    seconds: float
    action: Action


class Within(NamedTuple):
    """The expectation that an alert fires so many seconds after the fault at the latest.

    Attributes:
        seconds: the longest delay.
        not_before: the shortest delay.
        ends_within: the alert is over so many seconds after the fault; None: it may last to the end.
        series: how many alerts of this name there are in all: one for each part, or one for many.
        times: how often each of them may begin to fire: one fault is told once.
        named: values of labels that each alert of this name has: the node, the rank.
        severity: that each of them has; None for any.
    """

    seconds: float
    not_before: float = 0.0
    ends_within: float | None = None
    series: int | None = None
    times: int = 1
    named: Sequence[str] = ()
    severity: str | None = None


# As a situation's row reads.
at, within = Step, Within


@dataclass(frozen=True)
class Situation:
    """Steps, and what the rules have to make of them.

    Attributes:
        name: what happens, in a few words: the row of the generated table.
        steps: what happens and when; delays count from the first unless ``fault_at`` says otherwise.
        lasts: how long it is watched, in seconds.
        fires: the alerts that have to fire, each with its latest delay. Empty: nobody is told anything (silent).
        beside: alerts that are right as well and may fire or not, such as NodeExporterDown of a node that is away.
        hardware: of each real node.
        nodes: how many nodes are simulated, ``site.nodes``; steps act on any of them.
        copies: how many nodes show what the node of that index shows, under names of their own.
        racks: the rack of the node of that index, and of its copies.
        fault_at: when the fault happens, in seconds; the first step by default.
        interval_of_rules: how often rules are evaluated, in seconds; the scrape interval by default.
    """

    name: str
    steps: Sequence[Step]
    lasts: float = 30 * MINUTE
    fires: Mapping[str, Within] = field(default_factory=dict)
    beside: frozenset[str] = frozenset()
    hardware: Hardware = NICS
    nodes: int = 1
    copies: Mapping[int, int] = field(default_factory=dict)
    racks: Mapping[int, str] = field(default_factory=dict)
    fault_at: float | None = None
    interval_of_rules: int | None = None

    @property
    def silent(self) -> bool:
        """Return whether nobody is to be told anything."""
        return not self.fires

    @property
    def fault(self) -> float:
        """When the fault happens, in seconds after the first scrape."""
        if self.fault_at is not None:
            return self.fault_at
        return self.steps[0].seconds if self.steps else 0.0
