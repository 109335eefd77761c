"""Faults of a pair and of the store above it, and their cost: batches lost, twice or wrong, time, alerts."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.demo.scenario import HOT_CELSIUS, HOT_CLOCK_MHZ
from pyrometer_simulator.pair.pair import NODES, Pair, until_complete, wrong
from pyrometer_simulator.training_nodes import GPUS
from pyrometer_simulator.victoria.faults import Watch

PLANTED = "GpuThrottledThermal"
KILLED_SECONDS = 5.0
COMPLETE_SECONDS = 120.0
ALERT_SECONDS = 120.0
HEADINGS = ("above", "component", "fault", "s", "lost", "twice", "wrong", "s blind", "s until complete", "alert told")


@dataclass
class Outcome:
    """One row of the failure matrix.

    Attributes:
        component: what the fault fell on.
        fault: what was done to it.
        seconds: how long it lasted.
        lost, twice, wrong: batches in the store above, against what both replicas have.
        blind: how many seconds older than at rest the newest batch was, at worst.
        complete: how many seconds after the fault ended everything of its time was there.
        told: how often the pair's Alertmanager told of the GPU that became too hot meanwhile.
    """

    component: str
    fault: str
    seconds: float = 0.0
    lost: int = 0
    twice: int = 0
    wrong: int = 0
    blind: float = 0.0
    complete: float = 0.0
    told: int = 0

    @property
    def good(self) -> bool:
        """True if nothing was lost, twice or wrong, and the alert came once."""
        return (self.lost, self.twice, self.wrong, self.told) == (0, 0, 0, 1)


class Play:
    """Faults one after the other, each with a GPU that gets too hot while it lasts."""

    def __init__(self, pair: Pair, query: Prometheus, seconds: float) -> None:
        """Prepare; nothing happens before ``run``.

        Args:
            pair: what the faults fall on.
            query: what boards ask.
            seconds: how long a pause lasts; what is killed is started again after 5 s.
        """
        self._pair = pair
        self._query = query
        self._seconds = seconds
        self._places = ((node, gpu) for gpu in range(GPUS) for node in NODES)

    def run(self, faults: Iterable[tuple[str, str]]) -> Iterator[Outcome]:
        """Play (component, fault) one after the other; yield a row for each."""
        watch = Watch(self._query, len(NODES))
        watch.start()
        time.sleep(25.0)
        rest = max(watch.ages[-30:])
        for component, fault in faults:
            before = len(watch.ages)
            outcome = self._one(component, fault)
            outcome.blind = max(0.0, max(watch.ages[before:]) - rest)
            yield outcome
        watch.stop()

    def _one(self, component: str, fault: str) -> Outcome:
        node, gpu = next(self._places)
        # Everything has just been stored: without this no fault would ever fall between a scrape and its storing.
        time.sleep(secrets.randbelow(5000) / 1000)
        begin, outcome = time.time(), Outcome(component, fault)
        undo = self._do(component, fault)
        hot = self._pair.nodes.nodes[node].gpus[gpu]
        hot.throttle("hw_thermal", sm_clock=HOT_CLOCK_MHZ, temperature=HOT_CELSIUS)
        time.sleep(KILLED_SECONDS if fault == "killed" else self._seconds)
        undo()
        ended = time.time()
        outcome.seconds = ended - begin
        outcome.lost, outcome.twice = until_complete(self._query, self._pair, ended, COMPLETE_SECONDS)
        outcome.wrong = wrong(self._query, self._pair, ended)
        outcome.complete = time.time() - ended
        outcome.told = self._told(node, gpu, ended)
        hot.recover()
        return outcome

    def _do(self, component: str, fault: str) -> Callable[[], None]:
        pair = self._pair
        if fault == "none":
            return lambda: None
        {"killed": pair.kill, "paused": pair.pause}[fault](component)
        undo = {"killed": pair.start, "paused": pair.resume}[fault]
        return lambda: undo(component)

    def _told(self, node: str, gpu: int, ended: float) -> int:
        """Wait until the pair's Alertmanager has told of the hot GPU, and a second word of it would have come."""
        told = self._pair.told
        # Whoever was not blind may have seen the warning before.
        labels = {"alertname": PLANTED, "node": node, "gpu": str(gpu), "severity": "critical"}
        while not told.find(**labels) and time.time() < ended + ALERT_SECONDS:
            time.sleep(0.5)
        time.sleep(5.0)
        return sum(len(told.begins[each]) for each in told.find(**labels))


def every(services: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each kind of fault on each service."""
    yield "-", "none"
    for name in services:
        yield from ((name, fault) for fault in ("killed", "paused"))


def heading() -> Iterator[str]:
    """Yield the first lines of the table."""
    yield f"| {' | '.join(HEADINGS)} |"
    yield "|---" * len(HEADINGS) + "|"


def row(above: str, outcome: Outcome) -> str:
    """Return the outcome as a row of the table in docs/scale.md."""
    named = f"Prometheus {outcome.component}" if len(outcome.component) == 1 and outcome.component != "-" else ""
    told = {1: "once"}.get(outcome.told, f"{outcome.told} times")
    cells = (
        above, named or outcome.component, outcome.fault, f"{outcome.seconds:.0f}", outcome.lost, outcome.twice,
        outcome.wrong, f"{outcome.blind:.0f}", f"{outcome.complete:.0f}", told,
    )  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |"
