"""Every batch once to each consumer, in order, whatever happens."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pyrometer_exporters.node.train import cursor_file as cursor_file_module
from pyrometer_exporters.node.train import points
from pyrometer_exporters.node.train.batches import PendingPoints, Point
from pyrometer_exporters.node.train.cursor_file import CursorFile, SavedCursors
from pyrometer_exporters.node.train.points import Cursor, PointBuffer, PointStore
from pyrometer_exporters.node.train.run_names import Holder

KEY = ("run", "77", "0")
NUMBERS = st.floats(allow_nan=True)
MAYBE = st.none() | NUMBERS


def point(timestamp: int, sequence: int, ring: str = "r", **values: float) -> Point:
    tags = ("checkpoint",) if values.pop("tagged", 0) else ()
    return Point(timestamp, sequence, 100 + sequence, 1.0, 0.5, 1.0, values.get("loss"), None, tags, ring)


def filled(numbers: Iterable[int], store: PointStore | None = None) -> PointStore:
    store = store or PointStore()
    for n in numbers:
        store.add(KEY, point(1000 * n, n))
    return store


def take(store: PointStore, consumer: str) -> list[int]:
    pending = store.pending(consumer)
    store.confirm(consumer, pending)
    return [p.sequence for p in pending[KEY].points]


def test_each_consumer_gets_each_point_once_and_what_failed_again() -> None:
    store = filled(range(3))
    assert take(store, "a") == [0, 1, 2]
    assert take(store, "a") == []
    assert [p.sequence for p in store.pending("b")[KEY].points] == [0, 1, 2]
    filled([3], store)
    assert take(store, "b") == [0, 1, 2, 3]
    assert take(store, "a") == [3]


def test_the_newest_of_each_series_is_served_again_the_same() -> None:
    store = PointStore()
    store.add(KEY, point(1000, 0, loss=2.0))
    store.add(KEY, point(2000, 1, tagged=1))
    first = store.pending("a")[KEY].series()
    take(store, "a")
    again = store.pending("a")[KEY].series()
    assert again == {name: points[-1:] for name, points in first.items()}


def test_without_a_consumer_nothing_counts_as_taken_and_nothing_is_again() -> None:
    store = filled(range(2))
    assert store.pending("")[KEY].again == {}
    assert [p.sequence for p in store.pending("")[KEY].points] == [0, 1]


def test_a_backlog_comes_in_several_replies_and_no_series_seems_to_end_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(points, "MAX_POINTS_PER_REPLY", 2)
    store = PointStore()
    store.add(KEY, point(1000, 0, tagged=1))
    take(store, "a")
    for n in range(1, 6):
        store.add(KEY, point(1000 * (n + 1), n, tagged=n == 5))
    names = []
    while (pending := store.pending("a"))[KEY].points:
        names.append(pending[KEY].series().keys())
        store.confirm("a", pending)
    assert len(names) == 3
    assert all("tag:checkpoint" in of for of in names)


def test_answers_confirmed_out_of_order_never_move_a_cursor_back() -> None:
    store = filled(range(2))
    early = store.pending("a")
    filled([2, 3], store)
    late = store.pending("a")
    store.confirm("a", late)
    store.confirm("a", early)
    assert take(store, "a") == []


def test_after_a_restart_the_faster_of_two_consumers_gets_nothing_twice() -> None:
    store = filled(range(5))
    take(store, "slow")
    filled(range(5, 10), store)
    take(store, "fast")
    # The clock was set back by an hour meanwhile; the rings are read again.
    again = PointStore(store.cursors())
    for n in range(12):
        again.add(KEY, point(1000 * n - 3_600_000, n))
    slow, fast = again.pending("slow")[KEY], again.pending("fast")[KEY]
    assert [p.sequence for p in slow.points] == [5, 6, 7, 8, 9, 10, 11]
    assert [p.sequence for p in fast.points] == [10, 11]
    assert min(p.timestamp for p in slow.points) > 4000
    assert min(p.timestamp for p in fast.points) > 9000


def test_after_a_restart_the_newest_point_is_served_again_with_its_old_timestamp() -> None:
    store = filled(range(5))
    take(store, "a")
    again = PointStore(store.cursors())
    for n in range(5):
        again.add(KEY, point(1000 * n + 7, n))  # the clock was slewed a little
    pending = again.pending("a")[KEY]
    assert pending.points == ()
    assert {p.timestamp for p in pending.again.values()} == {4000}


def test_points_too_old_for_prometheus_are_dropped_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled([0, int(points.KEEP_SECONDS) + 10])
    assert [p.sequence for p in store.pending("a")[KEY].points] == [int(points.KEEP_SECONDS) + 10]
    for n in range(40):
        store.add(KEY, point(10**9 + n, 0, ring=f"ring{n}"))
        take(store, "consumer39")
    assert len(store.cursors()["consumer39"][KEY].rings) == points.MAX_RINGS_PER_CURSOR


def test_a_run_that_is_gone_takes_its_cursors_along() -> None:
    store = filled(range(2))
    take(store, "a")
    store.forget([])
    store.add(("other", "77", "0"), point(1, 0))
    store.confirm("a", store.pending("a"))
    assert store.cursors()["a"].keys() == {("other", "77", "0")}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "5", '{"consumers": []}', '{"consumers": {"a": [["r"]]}}', '{"consumers": {"a": 5}}',
     '{"consumers": {"a": [["r", "0", "x", {}]]}}', '{"consumers": {"a": [["r", "0", 1e999, {"r": 1}]]}}',
     '{"consumers": {"a": [["r", "0", 5, [1]]]}}', "\x00", "[" * 100_000],
)  # fmt: skip
def test_a_broken_memory_is_an_empty_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.json").write_text(text)
    assert not any(CursorFile(tmp_path).load().cursors.values())


def test_a_timestamp_that_is_none_keeps_no_batch_from_being_served(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(
        '{"runs": {"consumers": {"a": [["run", "77", "0", 1' + 300 * "0" + ', {"r": 1}]]}}}'
    )
    store = filled(range(3), PointStore(CursorFile(tmp_path).load().cursors))
    assert [p.sequence for p in store.pending("b")[KEY].points] == [0, 1, 2]


def test_memory_survives_hostile_names_and_a_folder_that_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cursors = {"\ud800\n": {('"', "77", "0"): Cursor(5, {"\udcff.ring": 7})}}
    CursorFile(tmp_path).save(cursors, 7, {KEY: Holder(1000, {"0": 4711})})
    assert CursorFile(tmp_path).load() == SavedCursors(cursors, 7, {KEY: Holder(1000, {"0": 4711})})
    gone = CursorFile(tmp_path / "gone")
    for _ in range(3):
        gone.save(cursors, None, {})
    assert caplog.text.count("can't write") == 1
    CursorFile(None).save(cursors, None, {})
    assert CursorFile(None).load() == SavedCursors()


def test_a_memory_that_did_not_fit_leaves_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor_file = CursorFile(tmp_path)
    cursor_file.save({"a": {KEY: Cursor(1, {"r": 1})}}, 7, {})
    monkeypatch.setattr(cursor_file_module.os, "write", lambda _fd, data: len(data) - 1)
    cursor_file.save({"a": {KEY: Cursor(2, {"r": 2})}}, 7, {})
    assert "No space left on device" in caplog.text
    assert CursorFile(tmp_path).load() == SavedCursors({"a": {KEY: Cursor(1, {"r": 1})}}, 7, {})


@given(
    st.lists(
        st.builds(
            Point,
            timestamp=st.integers(1, 2**53), sequence=st.integers(0, 2**62), step=st.integers(0, 2**53),
            seconds=NUMBERS, mfu=MAYBE, flops_per_second=MAYBE, loss=MAYBE, grad_norm=MAYBE,
            tags=st.sampled_from([(), ("checkpoint",), ("eval", "warmup")]), ring=st.sampled_from(["a", "b"]),
            steps=st.none() | st.integers(1, 2**53), reported_mfu=MAYBE, reported_flops_per_second=MAYBE,
        )
    )
)  # fmt: skip
def test_points_are_kept_as_they_were(kept: list[Point]) -> None:
    buffer = PointBuffer()
    for one in kept:
        buffer.append(one)
    assert repr([*buffer.after(0)]) == repr(kept)  # NaN is not equal to itself
    assert repr([*buffer.newest_first()]) == repr(kept[::-1])


def test_a_step_of_any_number_can_be_kept() -> None:
    store = PointStore()
    store.add(KEY, Point(1, 2**62, 2**63 + 2**53, 1.0, None, None, None, None, ()))
    assert store.pending("a")[KEY].points[0].step == 2**63 + 2**53


def test_a_kept_point_takes_a_hundred_bytes() -> None:
    store, count = PointStore(), 5000
    tracemalloc.start()
    try:
        for n in range(count):
            store.add(KEY, Point(1_790_000_000_000 + n, n, n, 1.0 + n, 0.5 + n, 1e15 + n, 2.0 + n, 3.0 + n, (), "r"))
        each = tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()
    assert each < 150


class Everyday(RuleBasedStateMachine):
    """Ranks that step and restart, consumers that come, fail and overlap, a clock that is set, an exporter restarted.

    The rings are lists here; the store reads them as the tracker does.
    """

    consumers = st.sampled_from(["prom-a", "prom-b"])

    @initialize()
    def begin(self) -> None:
        self.rings: dict[str, list[int]] = {}
        self.now = 1_000_000
        self.offset = 1_790_000_000_000
        self.store = PointStore()
        self.saved: dict[str, dict[tuple[str, str], Cursor]] = {}
        self.read: dict[str, int] = {}
        self.in_flight: list[tuple[str, dict[tuple[str, str], PendingPoints]]] = []
        self.accepted: dict[str, list[Point]] = {"prom-a": [], "prom-b": []}
        self.new_ring()

    @rule()
    def new_ring(self) -> None:
        self.rings[f"ring{len(self.rings):03d}"] = []

    @rule(steps=st.integers(1, 5), milliseconds=st.integers(0, 3))
    def train(self, steps: int, milliseconds: int) -> None:
        ring = max(self.rings)
        for _ in range(steps):
            self.now += milliseconds
            self.rings[ring].append(self.now)

    @rule(milliseconds=st.integers(-5_000, 5_000))
    def set_clock(self, milliseconds: int) -> None:
        self.offset += milliseconds

    @rule()
    def poll(self) -> None:
        for ring, ends in self.rings.items():
            for n in range(self.read.get(ring, 0), len(ends)):
                self.store.add(KEY, point(ends[n] + self.offset, n, ring))
            self.read[ring] = len(ends)

    @rule()
    def restart_exporter(self) -> None:
        self.store = PointStore({n: {k: Cursor(c.newest, dict(c.rings)) for k, c in of.items()}
                                 for n, of in self.saved.items()})  # fmt: skip
        self.read = {}
        self.in_flight = []
        self.poll()

    @rule(consumer=consumers)
    def request(self, consumer: str) -> None:
        """A consumer has one request at a time: the next is only sent once the one before is settled."""
        self.poll()
        if all(name != consumer for name, _ in self.in_flight):
            self.in_flight.append((consumer, self.store.pending(consumer)))

    @rule(index=st.integers(0, 3), whole=st.booleans())
    def settle(self, index: int, whole: bool) -> None:
        if index >= len(self.in_flight):
            return
        consumer, pending = self.in_flight.pop(index)
        if whole:
            self.store.confirm(consumer, pending)
            self.saved = {n: {k: Cursor(c.newest, dict(c.rings)) for k, c in of.items()}
                          for n, of in self.store.cursors().items()}  # fmt: skip
            self.accepted[consumer].extend(pending[KEY].points if KEY in pending else ())

    @invariant()
    def every_accepted_point_came_once_in_order_and_with_rising_timestamps(self) -> None:
        for accepted in getattr(self, "accepted", {}).values():
            order = [(p.ring, p.sequence) for p in accepted]
            assert order == sorted(set(order))
            stamps = [p.timestamp for p in accepted]
            assert all(a < b for a, b in itertools.pairwise(stamps))

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        self.poll()
        everything = [(ring, n) for ring, ends in self.rings.items() for n in range(len(ends))]
        for consumer, accepted in self.accepted.items():
            last = self.store.pending(consumer)
            found = [*accepted, *(last[KEY].points if KEY in last else ())]
            order = [(p.ring, p.sequence) for p in found]
            assert order == everything
            assert all(a.timestamp < b.timestamp for a, b in itertools.pairwise(found))


TestEveryday = Everyday.TestCase
TestEveryday.settings = settings(max_examples=150, stateful_step_count=40)
