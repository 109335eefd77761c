"""The webhook against a real HTTP server: whatever goes wrong, a node is told once in effect, by its id."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alerting_fakes import FakeClock
from alerting_policy_fakes import CLUSTER, FileScheduler, Findings, policy, worker_of

from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.policy.executor import HOUR_SECONDS, SETTLE_SECONDS
from pyrometer_alerting.policy.rules import Policy, WebhookSettings
from pyrometer_alerting.policy.worker import PolicyWorker
from pyrometer_simulator.http_server import HttpServer, Request, Response
from pyrometer_simulator.ports import free_port

# A full machine answers within WAITS; a late answer comes after it, and ends with the test at the latest.
ANSWERS_LATE_BY = 10.0
WAITS = 2.0


class Desk:
    """A receiver that keeps the ids; `faults` say how the next requests go wrong."""

    def __init__(self, port: int) -> None:
        self.faults: list[str] = []
        self.requests: list[tuple[str, str | None]] = []
        self.taken: dict[str, str] = {}
        """The node by the id of the action: whoever has the id has it once."""
        self.late = threading.Event()
        self.server = HttpServer(self.respond, port=port).start()

    @property
    def url(self) -> str:
        return f"{self.server.url}/nodes"

    def respond(self, request: Request) -> Response | None:
        document = json.loads(request.body)
        key = request.headers["Idempotency-Key"]
        assert key == document["id"]
        self.requests.append((key, request.headers.get("Authorization")))
        fault = self.faults.pop(0) if self.faults else ""
        if fault.isdigit():
            return Response(b"", int(fault))
        self.taken.setdefault(key, document["node"])
        if fault == "hangs up":
            return None
        if fault == "answers late":
            self.late.wait(ANSWERS_LATE_BY)
        return Response(b"")


@pytest.fixture
def desk() -> Iterator[Desk]:
    started = Desk(free_port())  # it is reserved, also while the server is down
    yield started
    started.late.set()
    started.server.stop()


@pytest.fixture
def worker(store: Store, scheduler: FileScheduler, clock: FakeClock, desk: Desk) -> PolicyWorker:
    return worker_of(store, scheduler, Findings(["n3"]), clock, told(desk))


def told(desk: Desk, *, mode: str = "on", retry: float = 600.0) -> Policy:
    return replace(policy(mode=mode, do="webhook"), webhook=WebhookSettings(desk.url, None, WAITS, retry))


def ended(store: Store) -> list[tuple[str, str]]:
    with store.snapshot() as tx:
        return [(each.node, each.state) for each in reversed(tx.actions.newest())]


def details(store: Store) -> list[str]:
    with store.snapshot() as tx:
        return [each.detail for each in tx.actions.newest()]


def looks(worker: PolicyWorker, clock: FakeClock, count: int) -> None:
    for _ in range(count):
        worker.step()
        clock.advance(SETTLE_SECONDS / 2)


@pytest.mark.parametrize(
    "faults",
    [
        [],
        ["503", "500", "429"],
        ["hangs up", "hangs up"],
        ["answers late"],
        ["answers late", "502", "hangs up", "408"],
        ["answers late", "409"],
        ["425", "418", "429", "451", "304", "300"],
    ],
    ids=" ".join,
)
def test_a_node_is_told_once_in_effect(
    faults: list[str], worker: PolicyWorker, desk: Desk, store: Store, clock: FakeClock
) -> None:
    desk.faults = list(faults)
    looks(worker, clock, 2 * len(faults) + 6)
    assert list(desk.taken.values()) == ["n3"]
    assert len({key for key, _ in desk.requests}) == 1
    assert len(desk.requests) == len(faults) + 1
    assert ended(store) == [("n3", "done")]


def test_a_receiver_that_is_down_gets_it_when_it_is_up_again(
    worker: PolicyWorker, desk: Desk, store: Store, clock: FakeClock
) -> None:
    port = desk.server.server_port
    desk.server.stop()
    looks(worker, clock, 5)
    assert ended(store) == [("n3", "doing")]
    desk.server = HttpServer(desk.respond, port=port).start()
    looks(worker, clock, 3)
    assert list(desk.taken.values()) == ["n3"]
    assert ended(store) == [("n3", "done")]


@pytest.mark.parametrize("status", ["301", "308", "400", "401", "403", "404", "410", "413", "422"])
def test_a_refusal_is_final_and_said(
    status: str, worker: PolicyWorker, desk: Desk, store: Store, clock: FakeClock
) -> None:
    desk.faults = [status] * 5
    looks(worker, clock, 6)
    assert (len(desk.requests), ended(store)) == (1, [("n3", "refused")])


@pytest.mark.parametrize("status", ["401", "422"])
def test_a_refused_retry_counts_since_the_first_post_may_have_arrived(
    status: str, worker: PolicyWorker, desk: Desk, store: Store, clock: FakeClock
) -> None:
    desk.faults = ["answers late", status]
    looks(worker, clock, 6)
    assert (len(desk.requests), ended(store)) == (2, [("n3", "unknown")])
    with store.snapshot() as tx:
        assert tx.actions.begun_since(CLUSTER, clock.time - HOUR_SECONDS) == ["n3"]


def test_a_node_that_somebody_has_drained_meanwhile_is_told_no_more(
    worker: PolicyWorker, scheduler: FileScheduler, desk: Desk, store: Store, clock: FakeClock
) -> None:
    desk.faults = ["503"]
    looks(worker, clock, 1)
    scheduler.by_hand("n3", held=True, why="RMA 123")
    looks(worker, clock, 6)
    assert (len(desk.requests), ended(store)) == (1, [("n3", "unknown")])
    assert "somebody has drained it: RMA 123" in details(store)


def test_nothing_is_repeated_while_the_scheduler_does_not_answer(
    worker: PolicyWorker, scheduler: FileScheduler, desk: Desk, store: Store, clock: FakeClock
) -> None:
    desk.faults = ["503"]
    looks(worker, clock, 1)
    scheduler.silent = True
    looks(worker, clock, 6)
    assert (len(desk.requests), ended(store)) == (1, [("n3", "doing")])
    scheduler.silent = False
    looks(worker, clock, 3)
    assert (len(desk.requests), ended(store)) == (2, [("n3", "done")])


@pytest.mark.parametrize("change", [{"rules": ()}, {"mode": "dry-run"}])
def test_a_policy_that_was_changed_meanwhile_posts_no_more(
    worker: PolicyWorker, desk: Desk, store: Store, clock: FakeClock, change: dict[str, Any]
) -> None:
    desk.faults = ["503"] * 100
    looks(worker, clock, 1)
    worker.executor.policy = replace(told(desk), **change)
    looks(worker, clock, 6)
    assert (len(desk.requests), ended(store)) == (1, [("n3", "unknown")])
    assert details(store) == ["the policy no longer posts"]


def test_without_an_answer_for_ten_minutes_it_is_unknown_and_over(
    worker: PolicyWorker, desk: Desk, store: Store, clock: FakeClock
) -> None:
    desk.faults = ["503"] * 100
    looks(worker, clock, 60)
    assert ended(store) == [("n3", "unknown")]
    assert len(desk.requests) == pytest.approx(600 / SETTLE_SECONDS, abs=1)


def test_a_receiver_without_ids_is_told_once_and_no_more(
    worker: PolicyWorker, desk: Desk, store: Store, clock: FakeClock
) -> None:
    worker.executor.policy = told(desk, retry=0.0)
    desk.faults = ["hangs up"]
    looks(worker, clock, 6)
    assert (len(desk.requests), ended(store)) == (1, [("n3", "unknown")])


def test_the_token_is_in_the_header_and_nowhere_else(
    worker: PolicyWorker, desk: Desk, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    worker.executor.policy = replace(told(desk), webhook=WebhookSettings(desk.url, token, WAITS))
    worker.step()
    assert [sent for _, sent in desk.requests] == ["Bearer s3cret"]
    with store.snapshot() as tx:
        written = repr([tx.actions.newest(), tx.audits(), [each.body for each in tx.outbox.due()]])
    assert "s3cret" not in written + caplog.text
