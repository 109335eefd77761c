"""A run as it really went, and what a Prometheus that scrapes it every few seconds would have of it."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import pytest

from pyrometer_exporters.cluster.ledger.book import STATES, Book
from pyrometer_exporters.cluster.ledger.facts import RunJob
from pyrometer_exporters.cluster.ledger.history import Ledger, decoded
from pyrometer_exporters.framework.outcome import PartError
from pyrometer_kit.prometheus import Series

EPOCH = 1_800_000_000_000
RUN = "llama-8b"
WORLD = 8
TOKENS_PER_STEP = 4096.0
# As the node exporter: how long a rank that ended is still served.
KEEP_DEAD_MS, KEEP_CLOSED_MS = 600_000, 300_000


@dataclass
class Process:
    """The actions of rank 0 in one attempt; all times in ms since the epoch."""

    attempt: int
    born: int
    node: str = "gpu-001"
    ended: int | None = None
    closed: bool = False
    steps: list[tuple[int, int, int, tuple[str, ...]]] = field(default_factory=list)  # end, length, number, tags
    parts: list[tuple[int, str, int]] = field(default_factory=list)  # end, part, length
    doing: list[tuple[int, int, str]] = field(default_factory=list)
    job: str = ""
    labelled_from: int = 0
    """Before, its exporter is one of 0.2.0 that doesn't know the job."""

    def labels(self, at: int) -> dict[str, str]:
        job = {"job_id": self.job} if self.job and at >= self.labelled_from else {}
        return {"run": RUN, **job, "attempt": str(self.attempt), "node": self.node}

    def gone(self) -> float:
        if self.ended is None:
            return float("inf")
        return self.ended + (KEEP_CLOSED_MS if self.closed else KEEP_DEAD_MS)


class World:
    """Moves a run forward in time, and notes what truly happened."""

    def __init__(self, scrape_ms: int = 5000, phase_ms: int = 1700) -> None:
        self.now = EPOCH
        self.scrape_ms, self.phase_ms = scrape_ms, phase_ms
        self.processes: list[Process] = []
        self.outages: list[tuple[int, int]] = []  # of Prometheus
        self.lost: list[tuple[int, int]] = []  # batches that end in here never arrive
        self.number = 0
        self.high = -1
        self.truth: Counter[str] = Counter()
        self.first_of_process = True
        self.user = ""

    @property
    def process(self) -> Process:
        return self.processes[-1]

    def start(self, init_ms: int, number: int | None = None, node: str = "gpu-001", job: str = "") -> None:
        """Begin a process that needs so long before its first step."""
        self.processes.append(Process(0 if job else len(self.processes), self.now, node, job=job))
        if number is not None:
            self.number = number
        self._pass("init", init_ms)

    def train(self, steps: int, length_ms: int = 1000) -> None:
        for _ in range(steps):
            self.step(length_ms)

    def step(self, length_ms: int, *tags: str) -> None:
        self._pass("rework" if self.number <= self.high else "useful", length_ms)
        self._note(length_ms, tags)

    def part_in_step(self, part: str, part_ms: int, rest_ms: int, *tags: str) -> None:
        """Take a step that has a checkpoint or an evaluation in it."""
        self._part(part, part_ms)
        self._pass("rework" if self.number <= self.high else "useful", rest_ms)
        self._note(part_ms + rest_ms, tags)

    def part_between_steps(self, part: str, length_ms: int) -> None:
        self._part(part, length_ms)

    def pause(self, length_ms: int, state: str = "other") -> None:
        """Pause between steps without a measured part."""
        self._pass(state, length_ms)

    def crash(self, after_ms: int, down_ms: int) -> None:
        """Kill the process after so long without finishing another step."""
        last = self._last_event()
        self.now += after_ms
        self.process.ended = self.now
        seen = max(last, self._scrape_before(self.now))
        self.truth["other" if self.process.steps else "init"] += seen - last
        self.now += down_ms
        self.truth["down"] += self.now - seen

    def close(self, after_ms: int = 0) -> None:
        self.now += after_ms
        self.process.ended, self.process.closed = self.now, True

    def off(self, length_ms: int) -> None:
        """After a process has ended."""
        self.now += length_ms

    def outage(self, length_ms: int) -> None:
        """From now on Prometheus is away for so long; time goes on with whatever is called next."""
        self.outages.append((self.now, self.now + length_ms))

    def _part(self, part: str, length_ms: int) -> None:
        self.process.doing.append((self.now, self.now + length_ms, part))
        self._pass(part, length_ms)
        self.process.parts.append((self.now, part, length_ms))

    def _note(self, length_ms: int, tags: tuple[str, ...]) -> None:
        self.process.steps.append((self.now, length_ms, self.number, tags))
        self.high = max(self.high, self.number)
        self.number += 1

    def _pass(self, state: str, length_ms: int) -> None:
        self.now += length_ms
        self.truth[state] += length_ms

    def _last_event(self) -> int:
        ends = [end for end, *_ in self.process.steps + self.process.parts]
        return max([self.process.born, *ends])

    def _scrape_before(self, at: int) -> int:
        return at - (at - self.phase_ms) % self.scrape_ms

    def scraped(self, at: int) -> bool:
        for begin, end in self.outages:  # noqa: SIM110  asked millions of times: a generator would be half of the time
            if begin <= at < end:
                return False
        return True


class Recorded:
    """The Prometheus of a world, at any of its moments."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = world.now
        self.error: PartError | None = None
        self.asked = 0

    def instant(self, query: str, at: float) -> list[Series]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        until = round(at * 1000)
        if query.startswith("max(timestamp("):
            times = filter(self.world.scraped, reversed(self._scrapes(until - 300_000, until)))
            return [Series({}, ((at, newest / 1000),)) for newest in itertools.islice(times, 1)]
        if "world_size" in query:
            of_jobs = {tuple(process.labels(until).items()) for process in self.world.processes}
            more = {"world_size": str(WORLD)} | ({"user": self.world.user} if self.world.user else {})
            return [Series(dict(labels) | more, ((at, 1.0),)) for labels in of_jobs]
        found = re.fullmatch(r'\{__name__=~"([^"]+)".*\}\[(\d+)ms\]', query)
        assert found is not None, query
        since = until - int(found[2])
        samples = self._batches(since, until) if "batch" in found[1] else self._ranks(since, until)
        by_labels: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
        for labels, time, value in samples:
            if _matches(found[1], labels["__name__"]):
                by_labels.setdefault(tuple(labels.items()), []).append((time / 1000, value))  # always in the same order
        return [Series(dict(labels), tuple(sorted(points))) for labels, points in by_labels.items()]

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        if self.error is not None:
            raise self.error
        assert "rank_up" in query
        ends = [round((start + index * step) * 1000) for index in range(int((end - start) / step) + 1)]
        by_job: dict[str, list[tuple[int, float]]] = {}
        for at, value, job in self._ups(ends[0] - 60_000, ends[-1]) if ends else ():
            by_job.setdefault(job, []).append((at, value))
        found = []
        for job, ups in by_job.items():
            points, scrapes = [], [at for at, _ in ups]
            for at in ends:
                values = [value for _, value in ups[bisect_right(scrapes, at - 60_000) : bisect_right(scrapes, at)]]
                if values:
                    points.append((at / 1000, max(values)))
            if points:
                found.append(Series({"run": RUN} | ({"job_id": job} if job else {}), tuple(points)))
        return found

    def _scrapes(self, since: int, until: int) -> list[int]:
        until = min(until, self.now)
        first = since + 1 + (self.world.phase_ms - since - 1) % self.world.scrape_ms
        return list(range(first, until + 1, self.world.scrape_ms))

    def _batches(self, since: int, until: int) -> list[tuple[dict[str, str], int, float]]:
        found = []
        for process in self.world.processes:
            first = bisect_right(process.steps, since, key=lambda step: step[0])
            last = bisect_right(process.steps, until, key=lambda step: step[0])
            for end, length, number, tags in process.steps[first:last]:
                labels = process.labels(end)
                if self._arrived(end) and not _within(self.world.lost, end):
                    found.append(({**labels, "__name__": "pyrometer_train_batch_step"}, end, float(number)))
                    found.append(({**labels, "__name__": "pyrometer_train_batch_step_seconds"}, end, length / 1000))
                    found += [
                        ({**labels, "__name__": "pyrometer_train_batch_tag", "tag": tag}, end, 1.0) for tag in tags
                    ]
        return found

    def _arrived(self, end: int) -> bool:
        """Store a batch by the first scrape after its end."""
        at = end + self.world.scrape_ms - (end - self.world.phase_ms) % self.world.scrape_ms
        while not self.world.scraped(at):
            at += self.world.scrape_ms
        return at <= self.now

    def _ranks(self, since: int, until: int) -> list[tuple[dict[str, str], int, float]]:
        return [sample for at, process in self._served(since, until) for sample in _rank_samples(process, at)]

    def _ups(self, since: int, until: int) -> Iterator[tuple[int, float, str]]:
        """Yield the scrapes of each rank with its pyrometer_train_rank_up and its job."""
        for at, process in self._served(since, until):
            value = _rank_up(process, at)
            if value is not None:
                yield at, value, process.labels(at).get("job_id", "")

    def _served(self, since: int, until: int) -> Iterator[tuple[int, Process]]:
        for at in self._scrapes(since, until):
            if self.world.scraped(at):
                for process in self.world.processes:
                    if process.born <= at < process.gone():
                        yield at, process


@cache
def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(pattern, name) is not None


def _rank_up(process: Process, at: int) -> float | None:
    ended = process.ended is not None and process.ended <= at
    return None if ended and process.closed else 0.0 if ended else 1.0


def _rank_samples(process: Process, at: int) -> list[tuple[dict[str, str], int, float]]:
    labels = {**process.labels(at), "rank": "0", "instance": process.node}
    done = bisect_right(process.steps, at, key=lambda step: step[0])
    up = _rank_up(process, at)
    values = {
        "pyrometer_train_rank_start_timestamp_seconds": process.born / 1000 + (at % 3) * 1e-4,
        "pyrometer_train_steps_total": float(done),
        "pyrometer_train_tokens_total": done * TOKENS_PER_STEP / WORLD,
    }
    if up is not None:
        values["pyrometer_train_rank_up"] = up
    found = [({**labels, "__name__": name}, at, value) for name, value in values.items()]
    for part in ("checkpoint", "eval"):
        total = sum(length for end, name, length in process.parts if name == part and end <= at)
        if total:
            name = "pyrometer_train_step_part_seconds_total"
            found.append(({**labels, "__name__": name, "part": part}, at, total / 1000))
    part = next((name for begin, end, name in process.doing if begin <= at < end), "step")
    found.append(({**labels, "__name__": "pyrometer_train_current_part_seconds", "part": part}, at, 1.0))
    return found


def _within(spans: list[tuple[int, int]], at: int) -> bool:
    return any(begin <= at < end for begin, end in spans)


class Auditor:
    """A ledger over a world; every look checks what must always hold."""

    def __init__(self, world: World, since: int = EPOCH - 3_600_000) -> None:
        self.world = world
        self.prometheus = Recorded(world)
        self.ledger = Ledger(since)
        self.served: dict[tuple[RunJob, str], int] = {}

    def look(self, now: int) -> None:
        self.prometheus.now = now
        with contextlib.suppress(PartError):  # nothing was scraped for long: nothing may change
            self.ledger.turn(self.prometheus, now / 1000, "")
            while self.ledger.behind:
                self.ledger.turn(self.prometheus, now / 1000, "")
        self.check()

    def restart(self) -> None:
        self.ledger = decoded(json.loads(json.dumps(self.ledger.encoded())))

    def check(self) -> None:
        for run, book in self.ledger.books.items():
            assert sum(book.lengths.values()) == book.settled - book.started
            assert set(book.lengths) == set(STATES)
            counters = {(run, state): length for state, length in book.lengths.items()}
            assert all(length >= self.served.get(key, 0) for key, length in counters.items()), "a counter fell"
            self.served |= counters

    @property
    def book(self) -> Book:
        return self.ledger.books[RunJob(RUN, "")]

    def seconds(self) -> dict[str, float]:
        """Return the values that aren't 0."""
        return {state: length / 1000 for state, length in self.book.lengths.items() if length}

    def finish(self) -> Auditor:
        """Look once more when all is known."""
        self.look(self.world.now + 120_000)
        return self


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def audit() -> type[Auditor]:
    return Auditor


@pytest.fixture
def make_world() -> type[World]:
    return World
