"""Deliveries between their answer and the database: in order, durable, and never in each other's way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from alerting_fakes import Bench, body, raw_alert, wait_until

from pyrometer_alerting.incidents import deliveries as module
from pyrometer_alerting.incidents import inbox as inbox_module
from pyrometer_alerting.incidents.alertmanager_payload import BadDelivery
from pyrometer_alerting.incidents.deliveries import Deliveries
from pyrometer_alerting.incidents.inbox import Inbox
from pyrometer_alerting.incidents.storage.store import StoreError


class Post:
    """An inbox with its worker; `start` begins a process again."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench, self.folder = bench, folder
        self.deliveries = self.new()

    def new(self) -> Deliveries:
        bench = self.bench
        return Deliveries(
            Inbox(self.folder), bench.intake, clock=bench.clock, metrics=bench.metrics, changed=lambda _: None
        )

    def start(self) -> None:
        threading.Thread(target=self.deliveries.run, daemon=True).start()

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("inbox/*"))

    def nodes(self) -> list[str]:
        with self.bench.store.snapshot() as tx:
            return sorted(a.labels["node"] for each in tx.incidents() for a in each.members if a.firing)


@pytest.fixture
def post(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.0)
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)
    made = Post(bench, tmp_path)
    yield made
    made.deliveries.stop()


def test_what_was_answered_before_a_crash_is_applied_in_order_after_it(post: Post) -> None:
    for number in range(3):
        post.deliveries.take(body(raw_alert(node=f"n{number}"), groupKey=str(number)))
    post.deliveries.take(body(raw_alert(node="n1", firing=False), groupKey="1"))
    assert len(post.files()) == 4
    assert post.nodes() == []
    post.deliveries = post.new()  # as after a crash
    post.start()
    wait_until(lambda: post.files() == [])
    assert post.nodes() == ["n0", "n2"]


def test_a_delivery_that_was_applied_just_before_a_crash_changes_nothing_the_second_time(post: Post) -> None:
    post.start()
    delivery = body(raw_alert(node="n1"))
    post.deliveries.take(delivery)
    wait_until(lambda: post.files() == [])
    with post.bench.store.snapshot() as tx:
        before = tx.incidents()
    (post.folder / "inbox/000000000001.json").write_bytes(delivery)
    post.deliveries = post.new()
    post.start()
    wait_until(lambda: post.files() == [])
    with post.bench.store.snapshot() as tx:
        assert tx.incidents() == before


def test_half_a_file_of_a_crash_was_never_answered(post: Post) -> None:
    (post.folder / "inbox/000000000007.new").write_bytes(b"{")
    assert Inbox(post.folder).left() == []
    assert post.files() == []


def test_a_malformed_body_is_refused_and_not_kept(post: Post) -> None:
    with pytest.raises(BadDelivery):
        post.deliveries.take(b"{]")
    assert post.files() == []


def test_one_that_cannot_be_applied_is_set_aside_and_counted_and_the_next_is_applied(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = post.bench.intake.apply

    def apply(delivery: object, received_at: float) -> object:
        if "poison" in repr(delivery):
            raise ValueError("a bug")
        return real(delivery, received_at)  # type: ignore[arg-type]

    monkeypatch.setattr(post.bench.intake, "apply", apply)
    post.start()
    post.deliveries.take(body(raw_alert(node="poison"), groupKey="a"))
    post.deliveries.take(body(raw_alert(node="n1"), groupKey="b"))
    wait_until(lambda: post.nodes() == ["n1"])
    assert post.files() == ["000000000001.failed"]
    assert b'webhook_rejected_total{reason="failed"} 1.0' in post.bench.metrics.render()


def test_beyond_the_limit_alertmanager_keeps_its_own(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "MAX_BYTES", 3000)
    post.deliveries.take(body(raw_alert(node="n1"), groupKey="a"))
    with pytest.raises(StoreError, match="1 deliveries wait already"):
        post.deliveries.take(body(raw_alert(node="n2", text="x" * 2500), groupKey="b"))
    post.start()
    wait_until(lambda: post.files() == [])
    post.deliveries.take(body(raw_alert(node="later"), groupKey="later"))
    wait_until(lambda: "later" in post.nodes())


def test_a_page_does_not_wait_for_a_delivery_that_is_being_applied(post: Post) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def change() -> None:
        with post.bench.store.transaction() as tx:
            tx.save_fact("slow", "1")
            inside.set()
            go_on.wait(20)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        assert inside.wait(10)
        assert post.nodes() == []
        post.deliveries.take(body(raw_alert(node="n1")))  # nor does an answer
        assert len(post.files()) == 1
    finally:
        go_on.set()
        thread.join()
