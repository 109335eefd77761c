"""Random runs, checked against what truly happened."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest


class Chronicle:
    """A random run: what happens next, with lengths of whole milliseconds."""

    def __init__(self, world: Any, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)  # noqa: S311  a test's history
        self.step_ms = self.random.choice([250, 1000, 7_001, 31_337])
        self.saved = 0
        self.in_step = self.random.random() < 0.5
        self._start()

    def next(self) -> None:
        weights = {"train": 10, "checkpoint": 3, "eval": 2, "pause": 0 if self.in_step else 2, "crash": 2, "hang": 0.5}
        getattr(self, self.random.choices(list(weights), list(weights.values()))[0])()

    def train(self) -> None:
        for _ in range(self.random.randrange(1, 60)):
            self.world.step(self._about(self.step_ms))

    def checkpoint(self) -> None:
        if not self.in_step and self.random.random() < 0.2:
            self.world.part_between_steps("checkpoint", self.random.randrange(1, 60_000))
            self.crash()
            return
        self._part("checkpoint", self.random.randrange(1, 60_000))
        self.saved = self.world.number

    def eval(self) -> None:
        self._part("eval", self.random.randrange(1, 90_000))

    def pause(self) -> None:
        self.world.pause(self.random.randrange(1, 20_000))
        self.world.step(self._about(self.step_ms))

    def crash(self) -> None:
        self._die(self.random.randrange(0, self.step_ms))

    def hang(self) -> None:
        self._die(self.random.randrange(600_000, 1_800_000))

    def _die(self, after_ms: int) -> None:
        self.world.crash(after_ms, self.random.choice([0, 500, 20_000, 400_000, 2_000_000]))
        self._start()

    def _start(self) -> None:
        self.world.start(self.random.randrange(600, 120_000), self.saved, self.random.choice(["gpu-001", "gpu-002"]))
        self.world.step(self._about(3 * self.step_ms), "warmup")

    def _part(self, part: str, length_ms: int) -> None:
        if self.in_step:
            self.world.part_in_step(part, length_ms, self._about(self.step_ms))
        else:
            self.world.part_between_steps(part, length_ms)
            self.world.step(self._about(self.step_ms))

    def _about(self, length_ms: int) -> int:
        return round(length_ms * self.random.uniform(0.9, 1.1))


@pytest.mark.parametrize("seed", range(50))
def test_any_history_is_booked_to_the_millisecond(make_world: Any, audit: Any, seed: int) -> None:
    """Checkpoints, evaluations, pauses, crashes, hangs, rework; a ledger that looks and restarts when it likes."""
    world = make_world(5000 if seed % 3 else 15_000)
    chronicle = Chronicle(world, seed)
    for _ in range(40):
        chronicle.next()
    chronicle.train()
    auditor = audit(world)
    now = world.processes[0].born
    while now < world.now:
        now += chronicle.random.choice([15_000, 15_000, 60_000, 1_000_000])
        auditor.look(min(now, world.now))
        if chronicle.random.random() < 0.1:
            auditor.restart()
    auditor.finish()
    expected = {**dict.fromkeys(auditor.book.lengths, 0), **world.truth}
    # Two parts within two steps within one scrape interval, and then a crash: only their sum can be known.
    assert auditor.book.lengths == pytest.approx(expected, abs=5_000 if chronicle.in_step else 0)
    assert auditor.book.started == world.processes[0].born
    assert auditor.book.restarts == len(world.processes) - 1


@pytest.mark.parametrize("seed", range(24))
def test_outages_of_prometheus_invent_nothing(make_world: Any, audit: Any, seed: int) -> None:
    """Read often or once afterwards: trained time is known, and no live process is booked as down."""
    world = make_world()
    chronicle = Chronicle(world, 1000 + seed)
    for _ in range(20):
        if chronicle.random.random() < 0.15:
            world.outage(chronicle.random.randrange(10_000, 1_500_000))
        chronicle.next()
    world.outages = [(begin, min(end, world.now)) for begin, end in world.outages]
    chronicle.train()
    often, afterwards = audit(world), audit(world)
    for now in range(world.processes[0].born, world.now, 90_000):
        often.look(now)
    often.finish()
    afterwards.finish()
    dead = sum(later.born - sooner.ended for sooner, later in itertools.pairwise(world.processes))
    for auditor in (often, afterwards):
        # A part in the step of a process that nobody ever scraped stays in the step.
        lengths, exact = auditor.book.lengths, 0 if chronicle.in_step else 1
        assert exact * lengths["useful"] == pytest.approx(exact * world.truth["useful"], abs=2_000)
        assert exact * lengths["rework"] == pytest.approx(exact * world.truth["rework"], abs=2_000)
        # The last sign of life and the next beginning up to 90 s apart count as a death that was seen.
        assert lengths["down"] <= dead + 90_000 * (len(world.processes) - 1)
        assert lengths["init"] <= world.truth["init"]
        assert lengths["checkpoint"] <= world.truth["checkpoint"]
        assert lengths["eval"] <= world.truth["eval"]
