"""Faults of a pair and of the store above it, and notifications of a hot GPU by the pair's Alertmanager meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyrometer_simulator import failures
from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.pair.pair import Pair

ALERT_SECONDS = 120.0
HEADINGS = ("above", *failures.HEADINGS, "alert told")


@dataclass
class Outcome(failures.Outcome):
    """One row; ``told`` is how often the pair's Alertmanager told of the GPU that became too hot meanwhile."""

    told: int = 0

    @property
    def good(self) -> bool:
        """True if nothing was lost, twice or wrong, and the alert came once."""
        return (self.lost, self.twice, self.wrong, self.told) == (0, 0, 0, 1)


class Play(failures.Play[Outcome]):
    """Faults of a pair, compared with what both replicas have together."""

    complete_seconds = 120.0

    def __init__(self, pair: Pair, query: Prometheus, seconds: float) -> None:
        super().__init__(pair, pair.nodes.nodes, pair.batches(query), seconds)
        self._pair = pair

    def row(self, component: str, fault: str) -> Outcome:
        """Return a new row."""
        return Outcome(component, fault)

    def until_told(self, outcome: Outcome, labels: dict[str, str], ended: float) -> None:
        """Wait until the pair's Alertmanager has told of the hot GPU, and a second word of it would have come."""
        told = self._pair.told
        while not told.find(**labels) and time.time() < ended + ALERT_SECONDS:
            time.sleep(0.5)
        time.sleep(5.0)
        outcome.told = sum(len(told.begins[alert]) for alert in told.find(**labels))


def matrix(services: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each kind of fault on each service."""
    yield failures.NO_FAULT
    yield from ((name, fault) for name in services for fault in ("killed", "paused"))


def row(above: str, outcome: Outcome) -> str:
    """Return the outcome as a row of the table in docs/scale.md."""
    component, *rest = outcome.cells()
    named = f"Prometheus {component}" if component in ("a", "b") else component
    return failures.line([above, named, *rest, {1: "once"}.get(outcome.told, f"{outcome.told} times")])
