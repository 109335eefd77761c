"""Pauses of the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from client_ring_reader import ReadRing

import pyrometer
from pyrometer import _gc_pauses, ring

GC = ring.PARTS.index("gc")


@pytest.fixture
def quiet() -> Iterator[None]:
    """Only collections that the test asks for, and no counter of a run that another test left open."""
    gc.collect()
    gc.disable()
    others = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = others
    gc.enable()


class Times:
    """Nanoseconds, as told."""

    def __init__(self, *times: int) -> None:
        self.times = list(times)

    def __call__(self) -> int:
        return self.times.pop(0)


def test_a_collection_is_time_of_part_gc(rings: str, seen: ReadRing, quiet: None) -> None:
    run = pyrometer.start("r", rings=rings)
    with run.step():
        gc.collect()
    header = seen(run.path).header
    assert 0 < header.part_totals[GC] <= header.step_total
    run.close()


def test_only_long_pauses_are_counted_apart_with_the_step_they_fell_into(
    rings: str, seen: ReadRing, quiet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = pyrometer.start("r", rings=rings)
    for took in (ring.LONG_PAUSE_NS - 1, ring.LONG_PAUSE_NS, 3 * ring.LONG_PAUSE_NS):
        with run.step():
            monkeypatch.setattr(_gc_pauses, "_now", Times(1000, 1000 + took))
            gc.collect()
    header = seen(run.path).header
    assert (header.gc_pauses, header.gc_pause_total, header.gc_step) == (2, 4 * ring.LONG_PAUSE_NS, 3)
    assert header.part_totals[GC] == 5 * ring.LONG_PAUSE_NS - 1
    run.close()


def test_a_collection_that_the_job_asks_for_is_counted_once(rings: str, seen: ReadRing, quiet: None) -> None:
    run = pyrometer.start("r", rings=rings)
    with run.step(), run.part("gc"):
        inside = seen(run.path).header
        gc.collect()
    header = seen(run.path).header
    assert ring.PARTS[inside.part - 1] == "gc"
    assert 0 < header.part_totals[GC] <= header.step_total
    run.close()


def test_nothing_is_left_in_the_collector_after_the_end(rings: str) -> None:
    before = len(gc.callbacks)
    closed, dropped, disabled = (pyrometer.start("r", rings=rings) for _ in range(3))
    closed.close()
    disabled.abandon("forked child")
    del dropped
    gc.collect()
    assert len(gc.callbacks) == before


def test_a_million_steps_do_not_grow(rings: str, quiet: None) -> None:
    """No object stays behind, whatever the number of steps; memory is measured in benchmarks/."""
    run = pyrometer.start("r", rings=rings)

    def steps(count: int) -> None:
        for _ in range(count):
            with run.step():
                with run.part("data"), run.part("wait"):
                    pass
                run.record(loss=1.0, global_batch_size=8)

    steps(10)
    before = len(gc.get_objects())
    steps(10_000)
    assert len(gc.get_objects()) - before < 10
    run.close()
