"""Faults played on services that store batches, each while a GPU overheats: the rows of a failure matrix."""

from __future__ import annotations

import math
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pyrometer_simulator.demo.hardware import Node
from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.demo.scenario import HOT_CELSIUS, HOT_CLOCK_MHZ
from pyrometer_simulator.training_nodes import GPUS, STEPS

PLANTED = "GpuThrottledThermal"
KILLED_SECONDS = 5.0
NO_FAULT = "-", "none"


class Services:
    """Programs that can be killed and paused; a subclass starts them into ``running``."""

    def __init__(self) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start one and wait until it answers. Raises DemoError."""
        raise NotImplementedError

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.running[name].kill()
        self.running[name].wait()

    def pause(self, name: str) -> None:
        """SIGSTOP: nothing is answered, nothing is closed."""
        self.running[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self.running[name].send_signal(signal.SIGCONT)

    @property
    def faults(self) -> dict[str, tuple[Callable[[str], None], Callable[[str], None]]]:
        """The faults of a service by name, each with what ends it."""
        return {"killed": (self.kill, self.start), "paused": (self.pause, self.resume)}


@dataclass
class Outcome:
    """One row of a failure matrix.

    Attributes:
        component: the service that the fault fell on.
        fault: what was done to it.
        seconds: how long it lasted.
        lost, twice, wrong: batches in the store, against those that the reference Prometheis have.
        blind: how many seconds older than at rest the newest batch was, at worst, of the node with the oldest.
        complete: how many seconds after the fault ended everything of its time was stored.
    """

    component: str
    fault: str
    seconds: float = 0.0
    lost: int = 0
    twice: int = 0
    wrong: int = 0
    blind: float = 0.0
    complete: float = 0.0

    def cells(self) -> list[str]:
        """Return the first cells of its row in docs/scale.md."""
        losses = f"{self.lost}", f"{self.twice}", f"{self.wrong}"
        return [self.component, self.fault, f"{self.seconds:.0f}", *losses, f"{self.blind:.0f}", f"{self.complete:.0f}"]


HEADINGS = ("component", "fault", "s", "lost", "twice", "wrong", "s blind", "s until complete")
Row = TypeVar("Row", bound=Outcome)


def line(cells: Iterable[str]) -> str:
    """Return a line of a table of docs/scale.md."""
    return f"| {' | '.join(cells)} |"


def heading(names: Sequence[str]) -> list[str]:
    """Return the first lines of a table."""
    return [line(names), "|---" * len(names) + "|"]


class Watch(threading.Thread):
    """Asks every half second how old the newest batch is, of the run where it is oldest."""

    def __init__(self, store: Prometheus, runs: int) -> None:
        super().__init__(daemon=True)
        self._store = store
        self._runs = runs
        self._newest = time.time()
        self._stopped = threading.Event()
        self.ages: list[float] = []

    def run(self) -> None:
        """Ask until stopped."""
        while not self._stopped.wait(0.5):
            newest = self._store.values(f"timestamp({STEPS})")
            if len(newest) == self._runs:
                self._newest = max(self._newest, min(newest.values()))
            self.ages.append(time.time() - self._newest)

    def stop(self) -> None:
        """End it."""
        self._stopped.set()
        self.join()


@dataclass(frozen=True)
class Batches:
    """The batches of some runs in a store, beside those that the reference Prometheis have together."""

    store: Prometheus
    references: Sequence[Prometheus]
    runs: Sequence[str]

    def trained(self, until: float) -> dict[str, int]:
        """Return how many batches of each run began before a Unix time."""
        return {run: max((step for _, step in self._right(run, until)), default=-1) + 1 for run in self.runs}

    def differences(self, until: float, name: str = STEPS) -> tuple[int, int, int]:
        """Return how many batches are lost, twice and wrong (with a time or number that no reference has)."""
        lost = twice = wrong = 0
        for run in self.runs:
            right, have = self._right(run, until), kept(self.store, run, until, name)
            steps = {step for _, step in have}
            # A reference that has nothing is late itself.
            lost += len(set(range(max(step for _, step in right) + 1)) - steps) if right else 1
            twice += len(have) - len(steps)
            wrong += len(set(have) - right)
        return lost, twice, wrong

    def until_complete(self, until: float, seconds: float) -> tuple[int, int, int]:
        """Wait until there are no differences, for so many seconds at most; return those in the end."""
        deadline = time.monotonic() + seconds
        while True:
            time.sleep(2.0)
            found = self.differences(until)
            if found == (0, 0, 0) or time.monotonic() > deadline:
                return found

    def _right(self, run: str, until: float) -> set[tuple[float, int]]:
        return {batch for reference in self.references for batch in kept(reference, run, until)}


def kept(store: Prometheus, run: str, until: float, name: str = STEPS) -> list[tuple[float, int]]:
    """Return time and number of each stored batch of a run, up to a Unix time; empty where none answers."""
    samples = store.samples(f'{name}{{run="{run}"}}[2h]', until)
    # VictoriaMetrics shows where a series ended for a moment; Prometheus has such marks too, and hides them.
    return [(at, int(value)) for at, value in samples if not math.isnan(value)]


class Play(Generic[Row]):
    """Plays faults one after the other on services; a subclass says what a row has beyond batches.

    Attributes:
        outcomes: the rows so far.
    """

    complete_seconds: float

    def __init__(self, services: Services, nodes: Mapping[str, Node], batches: Batches, seconds: float) -> None:
        """Prepare; nothing happens before ``run``.

        Args:
            services: what the faults fall on.
            nodes: those that train; one of their GPUs overheats during each fault.
            batches: what is compared.
            seconds: how long a fault lasts; a killed service is started again after 5 s.
        """
        self._services = services
        self._nodes = nodes
        self._batches = batches
        self._seconds = seconds
        self._places = ((node, gpu) for gpu in range(GPUS) for node in nodes)
        self.outcomes: list[Row] = []

    def run(self, faults: Iterable[tuple[str, str]], until: float = math.inf) -> Iterator[Row]:
        """Play (component, fault) one after the other; yield a row for each that began before a Unix time."""
        watch = Watch(self._batches.store, len(self._batches.runs))
        watch.start()
        time.sleep(25.0)
        rest = max(watch.ages[-30:])
        for component, fault in faults:
            if time.time() > until:
                break
            self._play(outcome := self.row(component, fault), watch, rest)
            self.outcomes.append(outcome)
            yield outcome
        watch.stop()

    def _play(self, outcome: Row, watch: Watch, rest: float) -> None:
        node, gpu = next(self._places)
        # Everything has just been stored: without this no fault would ever fall between a scrape and its storing.
        time.sleep(secrets.randbelow(5000) / 1000)
        before, begin = len(watch.ages), time.time()
        seconds = KILLED_SECONDS if outcome.fault == "killed" else self._seconds
        undo = self._begin(outcome)
        time.sleep(min(2.0, seconds / 2))
        hot = self._nodes[node].gpus[gpu]
        hot.throttle("hw_thermal", sm_clock=HOT_CLOCK_MHZ, temperature=HOT_CELSIUS)
        self.meanwhile(outcome, begin + seconds)
        undo()
        ended = time.time()
        outcome.seconds = ended - begin
        found = self._batches.until_complete(ended, self.complete_seconds)
        outcome.complete = time.time() - ended
        past = [sum(getattr(row, name) for row in self.outcomes) for name in ("lost", "twice", "wrong")]
        outcome.lost, outcome.twice, outcome.wrong = (now - then for now, then in zip(found, past, strict=True))
        # Whoever was not blind may have seen the warning before. Hot for as long as whoever was blind needs to see it.
        labels = {"alertname": PLANTED, "node": node, "gpu": str(gpu), "severity": "critical"}
        self.until_told(outcome, labels, ended)
        hot.recover()
        outcome.blind = max(0.0, max(watch.ages[before:]) - rest)
        self.afterwards(outcome, ended)

    def _begin(self, outcome: Row) -> Callable[[], None]:
        if (outcome.component, outcome.fault) == NO_FAULT:
            return lambda: None
        begin, undo = self._services.faults[outcome.fault]
        begin(outcome.component)
        return lambda: undo(outcome.component)

    def row(self, component: str, fault: str) -> Row:
        """Return a new row."""
        raise NotImplementedError

    def meanwhile(self, outcome: Row, until: float) -> None:  # noqa: ARG002  for subclasses
        """Pass the time until a Unix time, while the fault lasts."""
        time.sleep(max(0.0, until - time.time()))

    def until_told(self, outcome: Row, labels: dict[str, str], ended: float) -> None:
        """Wait until the planted alert has been told."""
        raise NotImplementedError

    def afterwards(self, outcome: Row, ended: float) -> None:
        """Look at what else must come right after a fault that ended at a Unix time."""
