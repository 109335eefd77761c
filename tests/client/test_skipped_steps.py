"""Steps that the optimizer left out are counted and marked; the reporting rank can be chosen."""

from __future__ import annotations

import types

import pytest
from client_ring_reader import ReadRing

import pyrometer
from pyrometer import ring

SKIPPED = ring.TAG_BITS["skipped"]


def test_a_skipped_step_is_counted_and_marked(run: pyrometer.Run, seen: ReadRing) -> None:
    for skipped in (True, False, 1, object(), "", None):
        with run.step():
            run.record(skipped=skipped)  # type: ignore[arg-type]
    found = seen(run.path)
    assert found.header.skipped == 3
    assert [bool(record.flags & SKIPPED) for record in found.records] == [True, False, True, True, False, False]


@pytest.mark.parametrize("counter", ["", "global_steps"])
def test_deepspeeds_own_count_is_watched(counter: str, rings: str, seen: ReadRing) -> None:
    engine = types.SimpleNamespace(global_steps=0, skipped_steps=0)

    def step(overflow: bool) -> None:
        engine.global_steps += 1
        engine.skipped_steps += overflow

    engine.step = step
    run = pyrometer.watch(engine, "step", "r", counter=counter, rings=rings)
    for overflow in (False, True, False, False):
        engine.step(overflow)
    assert seen(run.path).header.skipped == 1


def test_the_reporting_rank_can_be_chosen(rings: str, seen: ReadRing) -> None:
    for rank, reporting in ((0, False), (7, True)):
        run = pyrometer.start("r", rings=rings, rank=rank, world_size=8, reporting_rank=7)
        assert seen(run.path).meta.reporting is reporting
        run.close()
