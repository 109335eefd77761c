"""Faults of the cluster version's parts, and their cost: batches lost, twice or wrong, alerts, boards, time."""

from __future__ import annotations

import json
import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.demo.scenario import HOT_CELSIUS, HOT_CLOCK_MHZ
from pyrometer_simulator.training_nodes import GPUS, STEPS
from pyrometer_simulator.victoria.boards import Boards
from pyrometer_simulator.victoria.scene import NODES, Scene

PLANTED = "GpuThrottledThermal"
# The newest batches are on their way: an interval, a second in vmagent's block, and what a busy machine adds.
ON_THEIR_WAY_SECONDS = 15.0
# vmagent tries again after at most a minute, and has a minute for each try; vminsert waits a minute for an answer.
COMPLETE_SECONDS = 200.0
# Boards show windows of minutes, in which a gap of records is seen until they have passed it.
BOARDS_SECONDS = 150.0
HEADINGS = (
    "component", "fault", "s", "lost", "twice", "wrong", "s blind", "s until complete", "s alert later",
    "boards' queries without answer", "s until boards are alike", "alerts",
)  # fmt: skip


@dataclass
class Outcome:
    """One row of the failure matrix.

    Attributes:
        component: the service.
        fault: what was done to it.
        seconds: how long it lasted.
        lost, twice, wrong: batches, against what the training loop counted and Prometheus has.
        blind: how many seconds older than at rest the newest batch was, at worst, of the node with the oldest.
        later: how many seconds after Prometheus' Alertmanager ours told of the planted alert.
        complete: how many seconds after the fault ended everything of its time was stored.
        unanswered, asked: queries of boards that had no answer while it lasted, and how many were asked.
        alike: how many seconds after it ended all boards showed the same series and the same marks as Prometheus'.
        restarts: services that ended on their own meanwhile, each as often as it did.
    """

    component: str
    fault: str
    seconds: float
    lost: int = 0
    twice: int = 0
    wrong: int = 0
    blind: float = 0.0
    later: float = 0.0
    complete: float = 0.0
    unanswered: int = 0
    asked: int = 0
    alike: float = 0.0
    restarts: list[str] = field(default_factory=list)
    alert: str = ""
    problems: list[str] = field(default_factory=list)


class Watch(threading.Thread):
    """Asks every half second how old the newest batch is, of the run where it is oldest."""

    def __init__(self, asked: Prometheus, runs: int) -> None:
        super().__init__(daemon=True)
        self._asked = asked
        self._runs = runs
        self._newest = time.time()
        self._stopped = threading.Event()
        self.ages: list[float] = []

    def run(self) -> None:
        """Ask until stopped."""
        while not self._stopped.wait(0.5):
            newest = self._asked.values(f"timestamp({STEPS})")
            if len(newest) == self._runs:
                self._newest = max(self._newest, min(newest.values()))
            self.ages.append(time.time() - self._newest)

    def stop(self) -> None:
        """End it."""
        self._stopped.set()
        self.join()


class Play:
    """Faults one after the other on a scene; each with a GPU that gets too hot while it lasts."""

    def __init__(
        self,
        scene: Scene,
        seconds: float,
        expressions: Sequence[tuple[str, str]] = (),
        progress: Callable[[str], object] = print,
    ) -> None:
        """Prepare; nothing happens before ``run``.

        Args:
            scene: what the faults fall on.
            seconds: how long a pause, a cut and a full disk last; a killed service is started again after 5 s.
            expressions: of the boards, each with where it is asked.
            progress: called with a row of the table after each fault.
        """
        self._scene = scene
        self._seconds = seconds
        self._progress = progress
        self._places = ((node, gpu) for gpu in range(GPUS) for node in NODES)
        self._watch = Watch(scene.victoria, len(NODES))
        self.boards = Boards(scene.victoria.url, scene.prometheus.url, expressions)
        self._rest = 0.0
        self.outcomes: list[Outcome] = []

    def run(self, faults: list[tuple[str, str]], until: float = math.inf) -> list[Outcome]:
        """Play (component, fault) one after the other; return a row for each that began before a Unix time."""
        self._scene.lose_a_node()
        self._until_marked()
        self._watch.start()
        time.sleep(25.0)
        self._rest = max(self._watch.ages[-30:])
        for component, fault in faults:
            if time.time() > until:
                break
            self.outcomes.append(self._one(component, fault))
            self._progress(row(self.outcomes[-1]))
        self._compare_alerts()
        self._watch.stop()
        return self.outcomes

    def _one(self, component: str, fault: str) -> Outcome:
        node, gpu = next(self._places)
        # Everything has just been stored: without this no fault would ever fall between a scrape and its storing.
        time.sleep(secrets.randbelow(5000) / 1000)
        before = len(self._watch.ages)
        begin = time.time()
        seconds = 5.0 if fault == "killed" else self._seconds
        outcome = Outcome(component, fault, seconds)
        undo = self._do(component, fault)
        time.sleep(min(2.0, seconds / 2))
        hot = self._scene.nodes[node].gpus[gpu]
        hot.throttle("hw_thermal", sm_clock=HOT_CLOCK_MHZ, temperature=HOT_CELSIUS)
        outcome.unanswered, outcome.asked = self.boards.unanswered(begin + seconds)
        self._revive_until(begin + seconds, outcome)
        undo()
        ended = time.time()
        outcome.seconds = ended - begin
        outcome.restarts += self._scene.cluster.revive()
        self._until_complete(outcome, ended)
        # Hot for as long as whoever was blind needs to see it.
        outcome.alert = self._told(node, gpu, ended)
        hot.recover()
        outcome.later = self._later(outcome.alert)
        outcome.blind = max(0.0, max(self._watch.ages[before:]) - self._rest)
        self._until_alike(outcome, ended)
        return outcome

    def _until_marked(self) -> None:
        """Wait until the map marks the dead node's GPUs; find out what is alike without a fault."""
        if not self.boards.expressions:
            return
        deadline = time.time() + 400.0
        while self.boards.marks() != GPUS and time.time() < deadline:
            time.sleep(2.0)
        self.boards.settle(BOARDS_SECONDS)

    def _revive_until(self, until: float, outcome: Outcome) -> None:
        while True:
            outcome.restarts += self._scene.cluster.revive()
            if time.time() >= until:
                return
            time.sleep(min(1.0, max(0.0, until - time.time())))

    def _until_alike(self, outcome: Outcome, ended: float) -> None:
        if not self.boards.expressions:
            return
        for where in self.boards.until_alike(BOARDS_SECONDS):
            outcome.problems.append(f"{where} differs")
        outcome.alike = time.time() - ended
        if self.boards.marks() != GPUS:
            outcome.problems.append(f"{self.boards.marks()} of {GPUS} GPUs of a dead node are marked")

    def _do(self, component: str, fault: str) -> Callable[[], None]:
        cluster = self._scene.cluster
        if fault == "none":
            return lambda: None
        if fault == "full":
            cluster.fill(component)
            return lambda: cluster.empty(component)
        undo = {"killed": cluster.start, "paused": cluster.resume, "cut off": cluster.heal}[fault]
        {"killed": cluster.kill, "paused": cluster.pause, "cut off": cluster.cut}[fault](component)
        return lambda: undo(component)

    def _until_complete(self, outcome: Outcome, ended: float) -> None:
        while True:
            time.sleep(2.0)
            lost, twice, wrong = self._differences(ended)
            outcome.complete = time.time() - ended
            if not (lost or twice or wrong) or outcome.complete > COMPLETE_SECONDS:
                break
        past = [sum(getattr(row, name) for row in self.outcomes) for name in ("lost", "twice", "wrong")]
        outcome.lost, outcome.twice, outcome.wrong = (
            now - then for now, then in zip((lost, twice, wrong), past, strict=True)
        )

    def _differences(self, until: float) -> tuple[int, int, int]:
        """Batches lost, twice and wrong in VictoriaMetrics so far, against those that Prometheus has."""
        scene, lost, twice, wrong = self._scene, 0, 0, 0
        for run in scene.training.runs:
            expected = scene.kept(scene.prometheus, run, until)
            have = scene.kept(scene.victoria, run, until)
            if not expected or [step for _, step in expected] != list(range(len(expected))):
                return 1, 0, 0  # Prometheus itself is late
            numbers = Counter(step for _, step in have)
            lost += len({step for _, step in expected} - numbers.keys())
            twice += sum(count - 1 for count in numbers.values())
            wrong += len(set(have) - set(expected))
        return lost, twice, wrong

    def _told(self, node: str, gpu: int, ended: float) -> str:
        """Wait until both Alertmanagers have told of the planted alert; its labels."""
        # Whoever was not blind may have seen the warning before.
        labels = {"alertname": PLANTED, "cluster": "simulated", "gpu": str(gpu), "node": node, "severity": "critical"}
        while time.time() < ended + 120.0:
            known = [told.find(**labels) for told in self._scene.told.values()]
            if all(known):
                return known[0][0]
            time.sleep(0.5)
        return json.dumps(labels)

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


def every(names: Sequence[str], small: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each kind of fault on one service of each kind, and a full disk for each that has one."""
    yield "-", "none"
    for fault in ("killed", "paused"):
        yield from ((name, fault) for name in names)
    yield from ((name, "full") for name in small)
    yield from ((name, "cut off") for name in names)


def table(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Yield the lines of the table in docs/scale.md."""
    yield f"| {' | '.join(HEADINGS)} |"
    yield "|---" * len(HEADINGS) + "|"
    yield from map(row, outcomes)


def row(outcome: Outcome) -> str:
    """Return the outcome as a row of the table in docs/scale.md."""
    words = [*outcome.problems, *(f"{name} ended and was started again" for name in outcome.restarts)]
    cells = (
        outcome.component, outcome.fault, f"{outcome.seconds:.0f}", outcome.lost, outcome.twice, outcome.wrong,
        f"{outcome.blind:.0f}", f"{outcome.complete:.0f}", f"{outcome.later:.0f}",
        f"{outcome.unanswered} of {outcome.asked}", f"{outcome.alike:.0f}", "; ".join(words) or "once, in both",
    )  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |"
