"""Askers of ``/batches``: none takes anything from another."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.node.train import points
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_exporters.node.train.consumers import INTERVALS, MAX_CONSUMERS, MAX_PER_NETWORK, Consumers
from pyrometer_kit.http_message import Request

Rings = Callable[..., Any]


def ask(collector: TrainCollector, name: str, peer: str) -> int:
    """Return how many steps the answer has, and take them."""
    query = {"consumer": name} if name else {}
    reply = collector.batches(Request("GET", "/batches", query=query, peer=peer))
    assert reply.delivered is not None
    reply.delivered(True)  # noqa: FBT003
    return reply.body.count(b"\npyrometer_train_batch_step{")


@pytest.fixture
def served(context: Context, rings: Rings, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrainCollector]:
    job = rings("job")
    for n in range(5):
        job.step(1000 + n, 1001 + n)
    collector = TrainCollector(context)
    yield collector
    collector.close()


def test_a_stranger_that_uses_a_name_takes_nothing_from_it(served: TrainCollector) -> None:
    assert ask(served, "prom-a", "10.9.9.9") == 5
    assert ask(served, "prom-a", "10.0.0.1") == 5


def test_two_replicas_of_one_name_get_every_batch_each(served: TrainCollector, rings: Rings) -> None:
    other = rings("job2", run="more")
    got = {"10.0.0.1": 0, "10.0.0.2": 0}
    for n in range(20):
        other.step(1010 + n, 1010.5 + n)
        for peer in got:
            reply = served.batches(Request("GET", "/batches", query={"consumer": "prom"}, peer=peer))
            assert reply.delivered is not None
            got[peer] += f" {1010.5 + n + other.clock.offset:.3f}".rstrip("0") in reply.body.decode()
            reply.delivered(True)  # noqa: FBT003
    assert set(got.values()) == {20}


def test_other_names_evict_nobody_who_still_asks(served: TrainCollector, clock: Any) -> None:
    ask(served, "prom-a", "10.0.0.1")
    for n in range(200):
        clock.advance(1)
        ask(served, f"name{n}", f"10.{n}.0.9")
        if n % 15 == 0:
            assert ask(served, "prom-a", "10.0.0.1") == 1, "the newest again"
    assert served._consumers.refused >= 200 - MAX_CONSUMERS


def test_without_a_place_the_newest_are_served_and_nothing_moves(
    served: TrainCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served._consumers, "admit", lambda *_: (None, None))
    for _ in range(3):
        assert ask(served, "late", "10.0.0.1") == 5
    assert ask(served, "", "10.0.0.1") == 5


def test_one_host_cannot_take_all_places() -> None:
    consumers = Consumers([], 0.0)
    for n in range(300):
        consumers.admit(f"127.0.{n // 250}.{n % 250 + 1}", f"n{n}", 1.0)
        consumers.admit(f"2001:db8::{n + 1:x}", f"n{n}", 1.0)
    assert consumers.refused == 2 * (300 - MAX_PER_NETWORK)
    assert consumers.admit("10.0.0.1", "prom", 2.0) == ("10.0.0.1/prom", None)


def test_who_has_stopped_asking_makes_room_after_ten_of_its_intervals() -> None:
    consumers = Consumers([], 0.0)
    for n in range(MAX_PER_NETWORK):
        for at in (0.0, 15.0, 30.0, 45.0, 60.0):
            consumers.admit("10.0.0.1", f"n{n}", at)
    assert consumers.admit("10.0.0.1", "new", 60 + INTERVALS * 15) == (None, None)
    key, evicted = consumers.admit("10.0.0.1", "new", 61 + INTERVALS * 15)
    assert (key, evicted) == ("10.0.0.1/new", "10.0.0.1/n0")


def test_after_0_2_0_the_series_of_a_job_begin_with_the_whole_ring(
    context: Context, rings: Rings, caplog: pytest.LogCaptureFixture
) -> None:
    assert context.state is not None
    saved = (
        '{"consumers": {"10.0.0.1/a": [["llama", "0", 5, {"job.ring": 3}], ["llama", "0", "loss", 5, {}]]},'
        ' "offset_ms": 1790000000000, "owners": [["llama", "0", 1000]], "jobs": [["llama", "0", "77"]], "pids": []}'
    )
    (context.state / "train.json").write_text(saved)
    job = rings("job")
    for n in range(5):
        job.step(1000 + n, 1001 + n)
    collector = TrainCollector(context)
    assert ask(collector, "a", "10.0.0.1") == 5
    collector.close()
    assert not caplog.records
    left = json.loads((context.state / "train.json").read_text())
    assert (left["consumers"], left["offset_ms"]) == ({}, 1790000000000)  # what 0.2.0 reads after a step back


def test_a_long_poll_leaves_no_thread(served: TrainCollector) -> None:
    before = threading.active_count()
    for n in range(50):
        ask(served, f"n{n}" * 5000, "10.0.0.1")
    assert threading.active_count() == before
    assert all(len(key) < 300 for key in served._consumers._askers)


def asked_again(collector: TrainCollector, again: str, *, arrives: bool = True) -> list[int]:
    """The steps that a consumer gets which asks for its latest once more."""
    query = {"consumer": "victoria", "again": again}
    reply = collector.batches(Request("GET", "/batches", query=query, peer="10.0.0.1"))
    assert reply.delivered is not None
    reply.delivered(arrives)
    lines = [line for line in reply.body.decode().splitlines() if line.startswith("pyrometer_train_batch_step{")]
    return [int(float(line.split()[-2])) - 100 for line in lines]


def test_a_consumer_that_may_lose_what_it_took_gets_it_again(context: Context, rings: Rings, clock: Any) -> None:
    job = rings("job")
    collector = TrainCollector(context)
    for n in range(4):
        job.step(1000 + 10 * n, 1001 + 10 * n)
        expected = list(range(max(0, n - 3), n + 1))  # those of the last 30 s, and the new one
        assert asked_again(collector, "30", arrives=False) == expected
        assert asked_again(collector, "30") == expected
        clock.advance(10)
    assert asked_again(collector, "30") == [1, 2, 3]
    clock.advance(60)
    assert asked_again(collector, "30") == [3], "the newest, as everybody gets it"
    job.step(1100, 1101)
    assert asked_again(collector, "30") == [4]
    for nonsense in ("", "-1", "x", "1e9", "999999", "٣", "nan", "inf", "10" * 5000, "0x1e", "1_0", " 30", "30.0"):
        assert asked_again(collector, nonsense) == [4]
    assert asked_again(collector, "90") == [4]
    collector.close()


def test_what_is_kept_to_be_asked_for_again_is_bounded_however_often_somebody_asks(
    context: Context, rings: Rings, clock: Any
) -> None:
    job = rings("job")
    collector = TrainCollector(context)
    for n in range(1000):  # a stranger asks ten times a second, and a batch has come each time
        job.step(1000 + n / 10, 1000 + n / 10 + 0.05)
        assert asked_again(collector, "")[-1:] == [n]
        clock.advance(0.1)
    kept = collector._store._deliveries["10.0.0.1/victoria"]
    assert len(kept) <= points.MAX_REPEAT_SECONDS / points.ONE_DELIVERY_SECONDS + 2
    again = asked_again(collector, "30", arrives=False)
    assert set(range(701, 1000)) <= set(again), "the last 30 s are whole"
    assert len(again) <= 300 + 10 * points.ONE_DELIVERY_SECONDS + 2, "and little more"
    clock.advance(-3600)
    for n in range(1000, 1100):  # as well while a clock is set back
        job.step(1000 + n / 10, 1000 + n / 10 + 0.05)
        asked_again(collector, "")
    assert len(kept) <= points.MAX_REPEAT_SECONDS / points.ONE_DELIVERY_SECONDS + 2
    collector.close()


def test_what_is_asked_for_again_takes_no_place_of_what_is_new(
    context: Context, rings: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "MAX_POINTS_PER_REPLY", 6)
    monkeypatch.setattr(points, "falls_behind", lambda *_: False)
    job = rings("job")
    collector = TrainCollector(context)
    for n in range(5):
        job.step(1000 + n, 1001 + n)
    assert asked_again(collector, "30") == [0, 1, 2, 3, 4]
    for n in range(5, 9):
        job.step(1000 + n, 1001 + n)
    assert asked_again(collector, "30") == [3, 4, 5, 6, 7, 8]
    collector.close()
