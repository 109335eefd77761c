"""More batches than a reply holds are folded into means that count them: a consumer never falls behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.node.train.batches import Point, fold
from pyrometer_exporters.node.train.points import MAX_POINTS_PER_REPLY, PointStore

KEY = ("run", "0")


def point(
    n: int, at: int | None = None, *, seconds: float = 1.0, mfu: float | None = 0.5, tagged: bool = False
) -> Point:
    tags = ("eval",) if tagged else ()
    return Point(
        n if at is None else at, n, n, seconds, mfu, None, float(n), None, tags, "r", metrics=(("lr", float(n)),)
    )


def test_a_group_is_the_mean_of_its_steps() -> None:
    (found,) = fold([point(0, seconds=1.0, mfu=0.6), point(1, seconds=3.0, mfu=0.2)], 1)
    assert (found.seconds, found.steps, found.step, found.timestamp) == (2.0, 2, 1, 1)
    assert found.mfu == pytest.approx((0.6 + 3 * 0.2) / 4)
    assert found.loss == 0.5
    assert found.metrics == (("lr", 1.0),)


def test_steps_whose_own_mfu_cannot_be_true_count_in_that_of_all() -> None:
    peak = 1e15
    steps = [replace(point(n, seconds=0.01, mfu=None), flops_per_second=40 * peak) for n in range(9)]
    steps.append(replace(point(9, seconds=9.91, mfu=4 / 99.1), flops_per_second=4 / 99.1 * peak))
    (found,) = fold(steps, 1)
    assert found.flops_per_second == pytest.approx(0.4 * peak)
    assert found.mfu == pytest.approx(0.4)


def test_an_mfu_of_all_that_cannot_be_true_is_left_out() -> None:
    steps = [replace(point(0, mfu=None), flops_per_second=9e15), replace(point(1, mfu=0.5), flops_per_second=5e14)]
    (found,) = fold(steps, 1)
    assert found.mfu is None


def test_what_is_not_known_stays_unknown() -> None:
    (found,) = fold([point(0, mfu=None), point(1, mfu=None)], 1)
    assert (found.mfu, found.grad_norm) == (None, None)


def test_tagged_batches_stay_apart() -> None:
    found = fold([point(n, tagged=n == 5) for n in range(16)], 8)
    assert [(p.tags, p.steps or 1) for p in found if p.tags] == [(("eval",), 1)]


@given(st.integers(0, 100), st.integers(1, 500), st.integers(1, 64))
def test_every_step_is_in_one_point(first: int, count: int, limit: int) -> None:
    points = [point(n) for n in range(first, first + count)]
    found = fold(points, limit)
    assert len(found) <= limit
    covered = sum(p.steps or 1 for p in found)
    assert covered == found[-1].step - first + 1  # the rest follows later
    if len(found) < limit:
        assert covered == count
    assert [p.timestamp for p in found] == sorted({p.timestamp for p in found})


def test_a_consumer_of_a_fast_run_keeps_up_and_gets_every_step() -> None:
    store, covered, now = PointStore(), 0, 0.0
    for scrape in range(12):
        now = 5.0 * (scrape + 1)
        first = scrape * 4000
        for n in range(first, first + 4000):  # 800 steps a second
            store.add(KEY, point(n, int(1000 * 5 * n / 4000)))
        pending = store.pending("a", now)
        store.confirm("a", pending)
        points = pending[KEY].points
        assert len(points) <= MAX_POINTS_PER_REPLY
        covered += sum(p.steps or 1 for p in points)
        if scrape:
            assert points[-1].step >= first + 3990
    assert covered == points[-1].step + 1


def test_an_outage_costs_a_slow_run_no_batch() -> None:
    store, got = PointStore(), []
    for n in range(9000):
        store.add(KEY, point(n, 250 * n))
    now = 2250.0
    store._asked["a"] = (10.0, 15.0)
    for _ in range(6):
        pending = store.pending("a", now)
        store.confirm("a", pending)
        got += [(p.step, p.steps) for p in pending[KEY].points]
        now += 15
    assert got == [(n, None) for n in range(9000)]
