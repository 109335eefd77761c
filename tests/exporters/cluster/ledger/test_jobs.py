"""A run is its name and its job: two of one name have two books, and jobs that follow each other continue one run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyrometer_exporters.cluster.ledger.facts import RunJob
from pyrometer_exporters.cluster.ledger.history import HOLD_MS, decoded
from pyrometer_kit.prometheus import Series

RUN = "llama-8b"


def test_a_job_that_follows_another_of_its_user_continues_its_run(world: Any, audit: Any) -> None:
    world.user = "ada"
    world.start(10_000, job="4711")
    world.train(300)
    world.part_between_steps("checkpoint", 5_000)
    world.train(100)
    world.close()
    auditor = audit(world)
    auditor.look(world.now + 70_000)
    world.off(100_000)
    world.start(20_000, number=350, job="4712")
    world.train(100)
    auditor.look(world.now)
    first, second = (auditor.ledger.books[RunJob(RUN, job)] for job in ("4711", "4712"))
    assert (second.lineage, second.user, sum(second.lengths.values()), second.restarts) == ("4711", "ada", 0, 0)
    auditor.restart()
    world.train(HOLD_MS // 1000)
    auditor.finish()
    first, second = (auditor.ledger.books[RunJob(RUN, job)] for job in ("4711", "4712"))
    assert (first.restarts, second.restarts, first.continued) == (0, 1, True)
    assert (first.steps["useful"], second.steps) == (400, {"useful": 170, "rework": 50})
    assert second.lengths["down"] == pytest.approx(100_000, abs=5_400)
    assert (second.unsaved, second.high) == (100_000 + 220_000, 569)
    auditor.look(world.now + 1_000_000)
    assert set(auditor.ledger.books) == {(RUN, "4712")}


class Both:
    """One Prometheus with the runs of two worlds."""

    def __init__(self, *one: Any) -> None:
        self.recorded = one

    def instant(self, query: str, at: float) -> list[Series]:
        found = [series for each in self.recorded for series in each.instant(query, at)]
        return found[:1] if query.startswith("max(") else found

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        return [series for each in self.recorded for series in each.range(query, start, end, step)]


@pytest.mark.parametrize("users", [("ada", "bob"), ("ada", "ada"), ("", "")])
def test_two_runs_of_a_name_that_run_beside_each_other_have_two_books(
    users: tuple[str, str], make_world: Any, audit: Any
) -> None:
    worlds = [make_world(), make_world()]
    for world, user, job in zip(worlds, users, ("1", "2"), strict=True):
        world.user = user
        world.off(30_000 * int(job))
        world.start(10_000, node=f"gpu-{job}", job=job)
        world.train(300 * int(job))
    auditors = [audit(world) for world in worlds]
    both, now = Both(*(each.prometheus for each in auditors)), worlds[1].now + 120_000
    for each in auditors:
        each.prometheus.now = now
    ledger = auditors[0].ledger
    ledger.turn(both, now / 1000, "")
    assert {key: (book.steps["useful"], book.restarts, book.lineage) for key, book in ledger.books.items()} == {
        (RUN, "1"): (300, 0, "1"),
        (RUN, "2"): (600, 0, "2"),
    }


def test_a_run_whose_exporter_is_upgraded_keeps_its_book_there_and_back(world: Any, audit: Any) -> None:
    world.start(10_000, job="4711")
    world.train(300)
    world.process.labelled_from = world.now + 7_000
    world.user = ""
    auditor = audit(world)
    auditor.look(world.now)
    assert set(auditor.ledger.books) == {(RUN, "")}
    world.user = "ada"
    world.train(400)
    auditor.finish()
    before, after = (auditor.ledger.books[RunJob(RUN, job)] for job in ("", "4711"))
    assert before.steps["useful"] + after.steps["useful"] == 700
    assert (before.restarts, after.restarts, after.steps["rework"], after.user) == (0, 0, 0, "ada")
    kept = json.loads(json.dumps(auditor.ledger.encoded()))
    assert decoded(kept).books[RunJob(RUN, "4711")] == after
    # 0.2.0 knows the books by the name alone.
    del kept["jobs"]
    assert decoded(kept).books == {(RUN, ""): after}
