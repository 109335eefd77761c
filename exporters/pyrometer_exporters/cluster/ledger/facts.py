"""Facts about a run in a stretch of time, from Prometheus: batches, processes, and the counters of rank 0.

All times and lengths are whole milliseconds, as the samples' timestamps are: sums of them are exact.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from pyrometer_kit.prometheus import Series

BATCHES = '{__name__=~"pyrometer_train_batch_(step|step_seconds|tag)"MATCH}'
RANK_0 = (
    '{__name__=~"pyrometer_train_(rank_start_timestamp_seconds|rank_up|steps_total|tokens_total'
    '|step_part_seconds_total|current_part_seconds)",rank="0"MATCH}'
)
# A process's start is computed at each scrape from two clocks; two processes of a run lie further apart.
SAME_MS = 500

ENDLESS = 1 << 60

Status = Literal["alive", "dead", "closed"]


class RunJob(NamedTuple):
    """A run's name and job; the job is empty where exporters until 0.2.0 alone report it."""

    run: str
    job_id: str


class Step(NamedTuple):
    """A batch; ``start`` may lie before the previous batch's end if a clock was set."""

    end: int
    length: int
    number: int
    attempt: str
    tags: frozenset[str]

    @property
    def start(self) -> int:
        """The time at which it began."""
        return self.end - self.length


class Birth(NamedTuple):
    """The start of a process of rank 0."""

    at: int
    attempt: str


class RankStatus(NamedTuple):
    """The status of rank 0's process at a scrape; ``life`` is when the process began, None if unknown."""

    at: int
    status: Status
    life: int | None


class PartSample(NamedTuple):
    """A counter of milliseconds spent in checkpoints or evaluations; ``key`` names the series."""

    at: int
    key: str
    part: str
    value: int


@dataclass
class Facts:
    """Facts about a run in a stretch of time, each list in order of time."""

    steps: list[Step] = field(default_factory=list)
    births: list[Birth] = field(default_factory=list)
    statuses: list[RankStatus] = field(default_factory=list)
    parts: list[PartSample] = field(default_factory=list)
    doing: list[tuple[int, str]] = field(default_factory=list)
    """The part that rank 0 was in, at each scrape."""
    tokens: list[tuple[int, float]] = field(default_factory=list)
    """Tokens per step of the whole run, as of each scrape that saw new steps."""

    def seen(self) -> tuple[int, int]:
        """Return when the run was first seen, and last seen alive; ENDLESS and 0 if it was not."""
        alive = [seen.at for seen in self.statuses if seen.status == "alive"]
        ends = [step.end for step in self.steps]
        return min([*alive, *ends], default=ENDLESS), max([*alive, *ends], default=0)

    def last_alive(self, is_present: Callable[[int | None], bool], before: int) -> int | None:
        """Return the last scrape up to ``before`` that saw a process alive whose start ``is_present`` accepts."""
        for seen in reversed(self.statuses[: bisect_right(self.statuses, before, key=lambda seen: seen.at)]):
            if seen.status == "alive" and is_present(seen.life):
                return seen.at
        return None

    def scrape_from(self, at: int) -> int:
        """Return the first scrape of rank 0 at or after ``at``, when counters include it; ``at`` if there is none."""
        index = bisect_left(self.statuses, at, key=lambda seen: seen.at)
        return self.statuses[index].at if index < len(self.statuses) else at

    def scrape_until(self, at: int) -> int:
        """Return the last scrape of rank 0 up to ``at``; 0 if there is none."""
        index = bisect_right(self.statuses, at, key=lambda seen: seen.at)
        return self.statuses[index - 1].at if index else 0

    def room_between_steps(self, after: Step, until: int) -> int:
        """Return the length of the pauses between later steps that begin before ``until``.

        ENDLESS if the attempt's steps end before.
        """
        room, since = 0, after.end
        for step in self.steps[bisect_right(self.steps, since, key=lambda step: step.end) :]:
            if since >= until:
                return room
            if step.attempt != after.attempt:
                return ENDLESS
            room += max(0, step.start - since)
            since = step.end
        return room if since >= until else ENDLESS

    def doing_at(self, at: int) -> str:
        """Return the part that rank 0 was in at the first scrape from ``at`` on; empty if unknown."""
        index = bisect_left(self.doing, at, key=lambda item: item[0])
        return self.doing[index][1] if index < len(self.doing) else ""

    def tokens_at(self, at: int) -> float | None:
        """Return the tokens per step around a time, None if unknown."""
        index = bisect_left(self.tokens, at, key=lambda item: item[0])
        if index == len(self.tokens):
            return self.tokens[-1][1] if self.tokens else None
        return self.tokens[index][1]


@dataclass
class Jobs:
    """Details of runs: number of ranks and user by job, and the only job of an attempt that 0.2.0 reports."""

    worlds: dict[RunJob, float] = field(default_factory=dict)
    users: dict[RunJob, str] = field(default_factory=dict)
    of_attempts: dict[tuple[str, str], str] = field(default_factory=dict)

    def key(self, labels: Mapping[str, str]) -> RunJob:
        """Return whose series this is; one of an exporter until 0.2.0 has no job."""
        run = labels.get("run", "")
        return RunJob(run, labels.get("job_id") or self.of_attempts.get((run, labels.get("attempt", "")), ""))


def jobs_of(series: Iterable[Series]) -> Jobs:
    """Return the details of runs from labels of ``pyrometer_train_run_info``."""
    jobs = Jobs()
    several: set[tuple[str, str]] = set()
    for item in series:
        labels = item.labels
        key, attempt = RunJob(labels.get("run", ""), labels.get("job_id", "")), labels.get("attempt", "")
        jobs.worlds[key] = float(labels.get("world_size") or 0)
        if labels.get("user"):
            jobs.users[key] = labels["user"]
        elif jobs.of_attempts.setdefault((key.run, attempt), key.job_id) != key.job_id:
            several.add((key.run, attempt))
    for ambiguous in several:
        del jobs.of_attempts[ambiguous]
    return jobs


def facts_of(series: Iterable[Series], jobs: Jobs) -> dict[RunJob, Facts]:
    """Return facts by run and job.

    Args:
        series: the answers to BATCHES and RANK_0.
        jobs: of these runs; rank 0's tokens are multiplied with the number of ranks.
    """
    batches: dict[RunJob, list[Series]] = {}
    ranks: dict[RunJob, list[Series]] = {}
    for item in series:
        kind = batches if item.labels.get("__name__", "").startswith("pyrometer_train_batch_") else ranks
        kind.setdefault(jobs.key(item.labels), []).append(item)
    by_run = {}
    for run in batches.keys() | ranks.keys():
        facts = by_run[run] = Facts(steps=sorted(_steps(batches.get(run, []))))
        for process in _by_process(ranks.get(run, [])).values():
            _add_process(facts, process, jobs.worlds.get(run))
        facts.births.sort()
        facts.statuses.sort(key=lambda seen: seen.at)
        facts.parts.sort()
        facts.doing.sort()
        facts.tokens.sort()
    return by_run


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds."""
    return round(seconds * 1000)


def _steps(series: Iterable[Series]) -> Iterator[Step]:
    lengths: dict[tuple[str, int], int] = {}
    tags: dict[tuple[str, int], set[str]] = {}
    numbers: dict[tuple[str, int], int] = {}
    for item in series:
        attempt, name = item.labels.get("attempt", ""), item.labels["__name__"]
        for at, value in item.points:
            key = (attempt, milliseconds(at))
            if not 0 <= value < 1e15:  # also refuses NaN, which a sick rank may report
                continue
            if name == "pyrometer_train_batch_step":
                numbers[key] = int(value)
            elif name == "pyrometer_train_batch_step_seconds":
                lengths[key] = milliseconds(value)
            else:
                tags.setdefault(key, set()).add(item.labels.get("tag", ""))
    for (attempt, end), number in numbers.items():
        if (attempt, end) in lengths:
            marks = frozenset(tags.get((attempt, end), ()))
            yield Step(end, max(1, lengths[attempt, end]), number, attempt, marks)


Process = dict[str, list[Series]]
"""The series of rank 0 of an attempt on a node, by name."""


def _by_process(series: Iterable[Series]) -> dict[tuple[str, str, str], Process]:
    processes: dict[tuple[str, str, str], Process] = {}
    for item in series:
        labels = item.labels
        where = (labels.get("attempt", ""), labels.get("node", ""), labels.get("instance", ""))
        processes.setdefault(where, {}).setdefault(labels["__name__"], []).append(item)
    return processes


def _add_process(facts: Facts, process: Process, world: float | None) -> None:
    starts = _values(process, "pyrometer_train_rank_start_timestamp_seconds")
    up = _values(process, "pyrometer_train_rank_up")
    steps = _values(process, "pyrometer_train_steps_total")
    attempt = next((item.labels.get("attempt", "") for items in process.values() for item in items), "")
    latest: int | None = None
    for at in sorted(starts):
        life = milliseconds(starts[at])
        if latest is None or life - latest >= SAME_MS:
            facts.births.append(Birth(life, attempt))
            latest = life
    for at in sorted(steps):
        life_then = milliseconds(starts[at]) if at in starts else None
        facts.statuses.append(RankStatus(at, _status(up.get(at), known=life_then is not None), life_then))
    for part in process.get("pyrometer_train_step_part_seconds_total", []):
        if part.labels.get("part") in ("checkpoint", "eval"):
            key = "/".join(part.labels.get(name, "") for name in ("attempt", "node", "instance", "part"))
            samples = ((milliseconds(at), milliseconds(value)) for at, value in part.points)
            facts.parts += [PartSample(at, key, part.labels["part"], value) for at, value in samples]
    for doing in process.get("pyrometer_train_current_part_seconds", []):
        facts.doing += [(milliseconds(at), doing.labels.get("part", "")) for at, _ in doing.points]
    if world is not None:
        facts.tokens += _tokens_per_step(steps, _values(process, "pyrometer_train_tokens_total"), world)


def _status(up: float | None, *, known: bool) -> Status:
    if up is None:  # an exporter that reports the rank's start would also report that it lives
        return "closed" if known else "alive"
    return "alive" if up else "dead"


def _values(process: Process, name: str) -> dict[int, float]:
    return {milliseconds(at): value for item in process.get(name, []) for at, value in item.points}


def _tokens_per_step(
    steps: Mapping[int, float], tokens: Mapping[int, float], world: float
) -> Iterator[tuple[int, float]]:
    """Return tokens per step at each scrape with new steps; without any, the process's average."""
    scrapes = [(at, steps[at], tokens[at]) for at in sorted(steps.keys() & tokens.keys())]
    rising = [(b, a) for a, b in pairwise(scrapes) if b[1] > a[1] and b[2] >= a[2]]
    for (at, count, sum_), (_, count_before, sum_before) in rising:
        yield at, (sum_ - sum_before) / (count - count_before) * world
    if not rising and scrapes and scrapes[-1][1] > 0:
        yield scrapes[-1][0], scrapes[-1][2] / scrapes[-1][1] * world
