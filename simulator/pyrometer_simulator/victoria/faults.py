"""Faults of the cluster version's parts, and their cost beyond batches: alerts, boards, restarts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pyrometer_simulator import failures
from pyrometer_simulator.training_nodes import GPUS
from pyrometer_simulator.victoria.boards import Boards
from pyrometer_simulator.victoria.scene import Scene

# Boards show windows of minutes, in which a gap of records is seen until they have passed it.
BOARDS_SECONDS = 150.0
HEADINGS = (
    *failures.HEADINGS, "s alert later", "boards' queries without answer", "s until boards are alike", "alerts",
)  # fmt: skip


@dataclass
class Outcome(failures.Outcome):
    """One row of the failure matrix.

    Attributes:
        later: how many seconds after Prometheus' Alertmanager ours told of the planted alert.
        unanswered, asked: queries of boards that had no answer while it lasted, and how many were asked.
        alike: how many seconds after it ended all boards showed the same series and the same marks as Prometheus'.
        restarts: services that ended on their own meanwhile, each as often as it did.
        alert: the labels of the planted alert.
        problems: boards that stay different, and alerts that were not told once by both.
    """

    later: float = 0.0
    unanswered: int = 0
    asked: int = 0
    alike: float = 0.0
    restarts: list[str] = field(default_factory=list)
    alert: str = ""
    problems: list[str] = field(default_factory=list)


class Play(failures.Play[Outcome]):
    """Faults of the cluster version, compared with a Prometheus beside it."""

    # vmagent tries again after at most a minute, and has a minute for each try; vminsert waits a minute for an answer.
    complete_seconds = 200.0

    def __init__(self, scene: Scene, seconds: float, expressions: Sequence[tuple[str, str]] = ()) -> None:
        """Prepare; ``expressions`` are those of the boards, each with where it is asked."""
        super().__init__(scene.cluster, scene.training_nodes, scene.batches, seconds)
        self._scene = scene
        self.boards = Boards(scene.victoria.url, scene.prometheus.url, expressions)

    def run(self, faults: Iterable[tuple[str, str]], until: float = float("inf")) -> Iterator[Outcome]:
        """Play (component, fault) one after the other; what rows say of alerts is complete once all are played."""
        self._scene.lose_a_node()
        if self.boards.expressions:
            self._wait_for_marks()
        yield from super().run(faults, until)
        self._compare_alerts()

    def row(self, component: str, fault: str) -> Outcome:
        """Return a new row."""
        return Outcome(component, fault)

    def meanwhile(self, outcome: Outcome, until: float) -> None:
        """Ask what the boards ask, and start again what ends on its own."""
        outcome.unanswered, outcome.asked = self.boards.unanswered(until)
        while True:
            outcome.restarts += self._scene.cluster.revive()
            if time.time() >= until:
                return
            time.sleep(min(1.0, max(0.0, until - time.time())))

    def until_told(self, outcome: Outcome, labels: dict[str, str], ended: float) -> None:
        """Wait until both Alertmanagers have told of the planted alert."""
        outcome.restarts += self._scene.cluster.revive()
        labels = {**labels, "cluster": "simulated"}
        outcome.alert = json.dumps(labels, sort_keys=True)
        while time.time() < ended + 120.0:
            alerts = [told.find(**labels) for told in self._scene.told.values()]
            if all(alerts):
                outcome.alert = alerts[0][0]
                break
            time.sleep(0.5)
        outcome.later = self._later(outcome.alert)

    def afterwards(self, outcome: Outcome, ended: float) -> None:
        """Wait until the boards are like Prometheus'."""
        if not self.boards.expressions:
            return
        outcome.problems += [f"{where} differs" for where in self.boards.until_alike(BOARDS_SECONDS)]
        outcome.alike = time.time() - ended
        if (marks := self.boards.marks()) != GPUS:
            outcome.problems.append(f"{marks} of {GPUS} GPUs of a dead node are marked")

    def _wait_for_marks(self) -> None:
        """Wait until the map marks the dead node's GPUs; find out what is alike without a fault."""
        deadline = time.time() + 400.0
        while self.boards.marks() != GPUS and time.time() < deadline:
            time.sleep(2.0)
        self.boards.exclude_differences(BOARDS_SECONDS)

    def _later(self, alert: str) -> float:
        ours, theirs = (self._scene.told[name].begins.get(alert, [0.0])[0] for name in ("victoria", "prometheus"))
        return ours - theirs if ours and theirs else float("inf")

    def _compare_alerts(self) -> None:
        """Write into each row where its alert was told once by one and not by the other; wait until all have ended."""
        deadline = time.time() + 240.0
        told = self._scene.told
        alerts = [outcome.alert for outcome in self.outcomes]
        while time.time() < deadline and not all(each.ends.get(alert) for each in told.values() for alert in alerts):
            time.sleep(1.0)
        ours, theirs = told["victoria"].begins, told["prometheus"].begins
        for outcome in self.outcomes:
            outcome.later = self._later(outcome.alert)  # it may have been told after the row was shown
            counts = len(ours.get(outcome.alert, ())), len(theirs.get(outcome.alert, ()))
            if counts != (1, 1):
                outcome.problems.append(f"{outcome.alert} told {counts[0]} times, by Prometheus {counts[1]} times")

    def others(self) -> tuple[set[str], set[str]]:
        """Return the names of alerts that only VictoriaMetrics, and only Prometheus, told of."""
        ours, theirs = (
            {_without_severity(each) for each in self._scene.told[name].begins} for name in ("victoria", "prometheus")
        )
        return {json.loads(each)["alertname"] for each in ours - theirs}, {
            json.loads(each)["alertname"] for each in theirs - ours
        }


def _without_severity(alert: str) -> str:
    return json.dumps({name: value for name, value in json.loads(alert).items() if name != "severity"})


def matrix(names: Sequence[str], small: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each kind of fault on one service of each kind, and a full disk for each that has one."""
    yield failures.NO_FAULT
    yield from ((name, fault) for fault in ("killed", "paused") for name in names)
    yield from ((name, "full") for name in small)
    yield from ((name, "cut off") for name in names)


def table(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the lines of the table in docs/scale.md."""
    return [*failures.heading(HEADINGS), *map(row, outcomes)]


def row(outcome: Outcome) -> str:
    """Return the outcome as a row of the table in docs/scale.md."""
    words = [*outcome.problems, *(f"{name} ended and was started again" for name in outcome.restarts)]
    boards = f"{outcome.unanswered} of {outcome.asked}", f"{outcome.alike:.0f}"
    alerts = "; ".join(words) or "once, in both"
    return failures.line([*outcome.cells(), f"{outcome.later:.0f}", *boards, alerts])
