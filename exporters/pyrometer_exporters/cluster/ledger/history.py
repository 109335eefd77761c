"""Read stretches of history from Prometheus and settle the books with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyrometer_exporters.cluster.ledger import book as books
from pyrometer_exporters.cluster.ledger.book import CLOSED, Book
from pyrometer_exporters.cluster.ledger.facts import BATCHES, RANK_0, Birth, Facts, RankStatus, facts_of, milliseconds
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

NEWEST = 'max(timestamp(pyrometer_exporter_build_info{exporter="pyrometer-node-exporter"MATCH}))'
WORLDS = "max by (run, world_size) (last_over_time(pyrometer_train_run_info{run!=''MATCH}[1h]))"
# 1 if any rank is alive: if all that answer are dead, so is rank 0, whose node may not answer.
ANY_ALIVE = "max by (run) (last_over_time(pyrometer_train_rank_up{run!=''MATCH}[1m]))"
ANY_STEP_MS = 15_000
# For this long after a new process began, scrapes may have seen only the old one.
HEARSAY_MS = 90_000


@dataclass
class Ledger:
    """The books of all runs, and until when new runs were searched. Times in ms."""

    looked: int
    books: dict[str, Book] = field(default_factory=dict)
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
            self._stretch(prometheus, since, until, match)
            # Time that can't be decided yet needs later facts.
            while until < present and self._since() == since:
                until = min(present, until + STRETCH_MS)
                self._stretch(prometheus, since, until, match)
            self.behind = until < present
            if not self.behind:
                break
        self._forget(present)

    def _since(self) -> int:
        """Return the earliest time that is not yet settled."""
        return min([self.looked, *(book.settled for book in self.books.values() if book.condition != CLOSED)])

    def _stretch(self, prometheus: Prometheus, since: int, until: int, match: str) -> None:
        """Settle up to the newest scrape before ``until``: later time may still change."""
        newest = newest_scrape(prometheus, until, match)
        if newest is None or newest - LAG_MS <= since:
            return
        facts, settled = read(prometheus, since, until, match), newest - LAG_MS
        for run, facts_of_run in facts.items():
            if run not in self.books and (begun := begin(facts_of_run, since, settled)) is not None:
                self.books[run] = begun
        for run, book in self.books.items():
            settle(book, facts.get(run, Facts()), settled)
        self.looked = max(self.looked, settled)

    def _forget(self, present: int) -> None:
        old = [run for run, book in self.books.items() if book.condition == CLOSED]
        old = [run for run in old if present - self.books[run].settled > KEEP_CLOSED_MS]
        by_age = sorted(self.books, key=lambda run: self.books[run].settled)
        for run in {*old, *by_age[: max(0, len(by_age) - MAX_RUNS)]}:
            del self.books[run]

    def encoded(self) -> dict[str, Any]:
        """Return the ledger as JSON, for :func:`decoded`."""
        return {"looked": self.looked, "books": {run: book.encoded() for run, book in self.books.items()}}


def decoded(data: Mapping[str, Any]) -> Ledger:
    """Return the ledger that :meth:`Ledger.encoded` gave.

    Raises:
        ValueError, KeyError, TypeError: The data is not such a ledger.
    """
    return Ledger(int(data["looked"]), {str(run): books.decoded(book) for run, book in data["books"].items()})


def newest_scrape(prometheus: Prometheus, at: int, match: str) -> int | None:
    """Return when a node exporter was last scraped up to ``at``, in ms; None if none was for five minutes.

    Raises:
        PartError: Prometheus failed.
    """
    series = prometheus.instant(NEWEST.replace("MATCH", match), at / 1000)
    return milliseconds(series[0].points[0][1]) if series else None


def read(prometheus: Prometheus, since: int, until: int, match: str) -> dict[str, Facts]:
    """Return the facts about all runs between two times in ms.

    Raises:
        PartError: Prometheus failed.
    """
    window = f"[{until - since}ms]"
    series = []
    for selector in (BATCHES, RANK_0):
        series += prometheus.instant(selector.replace("MATCH", match) + window, until / 1000)
    worlds: dict[str, float] = {}
    for item in prometheus.instant(WORLDS.replace("MATCH", match), until / 1000):
        worlds[item.labels.get("run", "")] = float(item.labels.get("world_size") or 0)
    facts = facts_of(series, worlds)
    for item in prometheus.range(ANY_ALIVE.replace("MATCH", match), since / 1000, until / 1000, ANY_STEP_MS / 1000):
        facts_of_run = facts.get(item.labels.get("run", ""))
        if facts_of_run is not None:
            _add_hearsay(facts_of_run, [milliseconds(at) for at, value in item.points if value == 0])
    return facts


def _add_hearsay(facts: Facts, all_dead: list[int]) -> None:
    def new(at: int, birth: Birth) -> bool:
        return birth.at <= at < birth.at + HEARSAY_MS

    said = [RankStatus(at, "dead", None) for at in all_dead if not any(new(at, birth) for birth in facts.births)]
    facts.statuses = sorted([*facts.statuses, *said], key=lambda seen: seen.at)
