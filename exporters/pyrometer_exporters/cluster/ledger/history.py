"""Read stretches of history from Prometheus and settle the books with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyrometer_exporters.cluster.ledger import book as books
from pyrometer_exporters.cluster.ledger.book import CLOSED, Book
from pyrometer_exporters.cluster.ledger.facts import (
    BATCHES,
    RANK_0,
    Birth,
    Facts,
    Jobs,
    RankStatus,
    RunJob,
    facts_of,
    jobs_of,
    milliseconds,
)
from pyrometer_exporters.cluster.ledger.settle import begin, settle
from pyrometer_exporters.framework.outcome import PartError
from pyrometer_kit.prometheus import Prometheus

# Facts are in Prometheus within a scrape; after an outage batches arrive in portions, within half a minute.
LAG_MS = 60_000
# 4 steps/s are 7,200 batches in half an hour, in 500 kB.
STRETCH_MS = 1_800_000
# A ledger that was away catches up over several turns, so that Prometheus has time for others.
STRETCHES_PER_TURN = 8
# Runs of an earlier month are history; that is in Prometheus.
MAX_RUNS = 64
KEEP_CLOSED_MS = 7 * 86_400_000
KEEP_CONTINUED_MS = 600_000
# The counters of a job that continues another are served at 0 for so long, two scrapes or more: a rate knows nothing of
# what a series has when it begins, such as the restart that this job is.
HOLD_MS = 120_000

NEWEST = 'max(timestamp(pyrometer_exporter_build_info{exporter="pyrometer-node-exporter"MATCH}))'
JOBS = "group by (run, job_id, attempt, user, world_size) (last_over_time(pyrometer_train_run_info{run!=''MATCH}[1h]))"
# 1 if any rank is alive: if all that answer are dead, so is rank 0, whose node may not answer.
ANY_ALIVE = "max by (run, job_id, attempt) (last_over_time(pyrometer_train_rank_up{run!=''MATCH}[1m]))"
ANY_STEP_MS = 15_000
# For this long after a new process began, scrapes may have seen only the old one.
HEARSAY_MS = 90_000


@dataclass
class Ledger:
    """The books of all runs by name and job, and until when new runs were searched. Times in ms."""

    looked: int
    books: dict[RunJob, Book] = field(default_factory=dict)
    behind: bool = False
    """True if the next turn has more history to read."""

    def turn(self, prometheus: Prometheus, now: float, match: str) -> None:
        """Take in the facts that Prometheus has by ``now`` (Unix seconds).

        Raises:
            PartError: Prometheus failed; the books may be half settled.
        """
        present = milliseconds(now)
        if newest_scrape(prometheus, present, match) is None:
            raise PartError("no_data", "Prometheus has no data from any node exporter: nothing is known about any run")
        for _ in range(STRETCHES_PER_TURN):
            since = self._since()
            until = min(present, since + STRETCH_MS)
            self._stretch(prometheus, since, until, match, present)
            # Time that can't be decided yet needs later facts.
            while until < present and self._since() == since:
                until = min(present, until + STRETCH_MS)
                self._stretch(prometheus, since, until, match, present)
            self.behind = until < present
            if not self.behind:
                break
        self._forget(present)

    def _since(self) -> int:
        """Return the earliest time that is not yet settled."""
        return min([self.looked, *(book.settled for book in self.books.values() if book.condition != CLOSED)])

    def _stretch(self, prometheus: Prometheus, since: int, until: int, match: str, present: int) -> None:
        """Settle up to the newest scrape before ``until``: later time may still change."""
        newest = newest_scrape(prometheus, until, match)
        if newest is None or newest - LAG_MS <= since:
            return
        (facts, jobs), settled = read(prometheus, since, until, match), newest - LAG_MS
        for run in sorted(facts.keys() - self.books.keys(), key=lambda run: (facts[run].seen(), run)):
            begun = self._continued(run, facts, jobs, settled) or begin(facts[run], since, settled)
            if begun is not None:
                self.books[run] = begun
                begun.user = jobs.users.get(run, "")
                begun.lineage = begun.lineage or run.job_id
                # A ledger that reads history holds nothing: its counters appear at once anyway.
                begun.held_until = present + HOLD_MS if begun.lineage != run.job_id and until == present else 0
        for run, book in self.books.items():
            if book.held_until <= present:
                settle(book, facts.get(run, Facts()), settled)
        self.looked = max(self.looked, settled)

    def _continued(self, run: RunJob, facts: Mapping[RunJob, Facts], jobs: Jobs, settled: int) -> Book | None:
        """Return the book of a job that continues an earlier one of its user and name; None if it continues none.

        One that is seen alive after the first sign of the new job runs beside it, and is another run.
        """
        first, _ = facts[run].seen()
        starts = [birth.at for birth in facts[run].births] + [step.start for step in facts[run].steps]
        if first > settled or not starts:
            return None
        user = jobs.users.get(run, "")
        earlier = [
            other
            for other, book in self.books.items()
            if other.run == run.run
            and not book.continued
            and (not other.job_id or not book.user or book.user == user)
            and facts.get(other, Facts()).seen()[1] < first
        ]
        if not earlier:
            return None
        latest = max(earlier, key=lambda other: self.books[other].alive)
        book, of_latest = self.books[latest], facts.get(latest, Facts())
        began = min(starts)
        # The same process under another name (an exporter was upgraded) goes on from its first sign.
        until = began if began > max(book.alive, of_latest.seen()[1]) else first
        settle(book, of_latest, min(settled, until))
        successor = book.successor()
        successor.lineage = book.lineage or latest.job_id
        book.condition, book.continued = CLOSED, True
        return successor

    def _forget(self, present: int) -> None:
        old = [
            run
            for run, book in self.books.items()
            if book.condition == CLOSED
            and present - book.settled > (KEEP_CONTINUED_MS if book.continued else KEEP_CLOSED_MS)
        ]
        by_age = sorted(self.books, key=lambda run: self.books[run].settled)
        for run in {*old, *by_age[: max(0, len(by_age) - MAX_RUNS)]}:
            del self.books[run]

    def encoded(self) -> dict[str, Any]:
        """Return the ledger as JSON, for :func:`decoded`."""
        newest = {run.run: book for run, book in sorted(self.books.items(), key=lambda item: item[1].alive)}
        return {
            "looked": self.looked,
            # As 0.2.0 reads it.
            "books": {run: book.encoded() for run, book in newest.items()},
            "jobs": [[*run, book.encoded()] for run, book in self.books.items()],
        }


def decoded(data: Mapping[str, Any]) -> Ledger:
    """Return the ledger that :meth:`Ledger.encoded` gave.

    Raises:
        ValueError, KeyError, TypeError: The data is not such a ledger.
    """
    jobs = data["jobs"] if "jobs" in data else [(run, "", book) for run, book in data["books"].items()]
    return Ledger(int(data["looked"]), {RunJob(str(run), str(job)): books.decoded(book) for run, job, book in jobs})


def newest_scrape(prometheus: Prometheus, at: int, match: str) -> int | None:
    """Return when a node exporter was last scraped up to ``at``, in ms; None if none was for five minutes.

    Raises:
        PartError: Prometheus failed.
    """
    series = prometheus.instant(NEWEST.replace("MATCH", match), at / 1000)
    return milliseconds(series[0].points[0][1]) if series else None


def read(prometheus: Prometheus, since: int, until: int, match: str) -> tuple[dict[RunJob, Facts], Jobs]:
    """Return the facts about all runs between two times in ms, and the details of their jobs.

    Raises:
        PartError: Prometheus failed.
    """
    window = f"[{until - since}ms]"
    series = []
    for selector in (BATCHES, RANK_0):
        series += prometheus.instant(selector.replace("MATCH", match) + window, until / 1000)
    jobs = jobs_of(prometheus.instant(JOBS.replace("MATCH", match), until / 1000))
    facts = facts_of(series, jobs)
    silent: dict[RunJob, set[int]] = {}
    living: dict[RunJob, set[int]] = {}
    for item in prometheus.range(ANY_ALIVE.replace("MATCH", match), since / 1000, until / 1000, ANY_STEP_MS / 1000):
        for at, value in item.points:
            (living if value else silent).setdefault(jobs.key(item.labels), set()).add(milliseconds(at))
    for run, facts_of_run in facts.items():
        _add_hearsay(facts_of_run, sorted(silent.get(run, set()) - living.get(run, set())))
    return facts, jobs


def _add_hearsay(facts: Facts, all_dead: list[int]) -> None:
    def new(at: int, birth: Birth) -> bool:
        return birth.at <= at < birth.at + HEARSAY_MS

    said = [RankStatus(at, "dead", None) for at in all_dead if not any(new(at, birth) for birth in facts.births)]
    facts.statuses = sorted([*facts.statuses, *said], key=lambda seen: seen.at)
