"""The policy's look: what it does, what it holds back, what it leaves alone, and what brings a node back."""

from __future__ import annotations

from pathlib import Path

import pytest
from alerting_fakes import FakeClock
from alerting_policy_fakes import CLUSTER, FileScheduler, Findings, policy, posted, states, worker_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyrometer_alerting.app.gauges import policy_gauges
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.model.routing import Routing, Rules
from pyrometer_alerting.policy.executor import SETTLE_SECONDS, holding
from pyrometer_alerting.policy.policy_page import policy_page
from pyrometer_alerting.policy.returns import AGAIN_SECONDS
from pyrometer_alerting.policy.rules import Back, Limits
from pyrometer_alerting.policy.schedulers import NodeState
from pyrometer_alerting.policy.worker import PolicyWorker
from pyrometer_kit.prometheus import PrometheusError


def test_a_dry_run_says_what_it_would_do_once_and_does_nothing(
    worker: PolicyWorker, scheduler: FileScheduler, store: Store
) -> None:
    worker.executor.policy = policy(mode="dry-run")
    for _ in range(3):
        worker.step()
    assert scheduler.calls() == []
    assert states(store) == [("drain", "n3", "would")]
    assert "would be drained (dry run)" in posted(store)
    worker.executor.policy = policy()
    worker.step()
    assert scheduler.calls() == ["n3"]


def test_a_failing_node_is_drained_once_with_the_reason_and_the_audit_trail(
    worker: PolicyWorker, scheduler: FileScheduler, store: Store
) -> None:
    for _ in range(3):
        worker.step()
    assert scheduler.calls() == ["n3"]
    assert scheduler.nodes()["n3"].why.startswith("pyrometer: check hca_links failed [pyrometer:")
    assert states(store) == [("drain", "n3", "done")]
    with store.snapshot() as tx:
        assert [row[1:3] for row in tx.audits()] == [("policy", "drain_done")]
    assert "is drained" in posted(store)


@pytest.mark.parametrize("who", ["prometheus", "scheduler", "no prometheus"])
def test_nothing_is_done_while_somebody_does_not_answer(
    who: str, store: Store, scheduler: FileScheduler, found: Findings, clock: FakeClock
) -> None:
    worker = worker_of(store, scheduler, None if who == "no prometheus" else found, clock, policy())
    found.failure = PrometheusError("Prometheus did not answer") if who == "prometheus" else None
    scheduler.silent = who == "scheduler"
    worker.step()
    scheduler.silent = False
    assert scheduler.calls() == []
    assert states(store) == []
    assert len(worker.trouble) == 1
    assert worker.looked_at == 0.0


def test_a_node_that_a_person_put_back_is_left_alone(
    worker: PolicyWorker, scheduler: FileScheduler, store: Store, clock: FakeClock
) -> None:
    worker.step()
    scheduler.by_hand("n3", held=False)
    for _ in range(4):
        clock.advance(600)
        worker.step()
    assert scheduler.calls() == ["n3"]
    assert states(store) == [("drain", "n3", "ended")]
    clock.advance(AGAIN_SECONDS)
    worker.step()
    assert scheduler.calls() == ["n3", "n3"]


def test_a_node_that_a_person_drained_keeps_their_reason(
    worker: PolicyWorker, scheduler: FileScheduler, store: Store
) -> None:
    scheduler.by_hand("n3", held=True, why="RMA 123")
    worker.step()
    assert scheduler.calls() == []
    assert states(store) == []


def test_a_refusal_is_said_once_and_not_repeated(worker: PolicyWorker, scheduler: FileScheduler, store: Store) -> None:
    scheduler.refuses = True
    worker.step()
    worker.step()
    assert states(store) == [("drain", "n3", "refused")]
    assert "not permitted" in posted(store)


def test_a_call_without_an_answer_is_settled_by_what_is_true(
    worker: PolicyWorker, scheduler: FileScheduler, store: Store, clock: FakeClock
) -> None:
    asked = scheduler.nodes

    def away() -> dict[str, NodeState]:
        scheduler.silent = bool(scheduler.calls())  # it took the drain, and is away afterwards
        return dict(asked())

    scheduler.nodes = away  # type: ignore[method-assign]
    worker.step()
    assert states(store) == [("drain", "n3", "doing")]
    scheduler.nodes, scheduler.silent = asked, False  # type: ignore[method-assign]
    clock.advance(SETTLE_SECONDS)
    worker.step()
    assert states(store) == [("drain", "n3", "done")]
    assert scheduler.calls() == ["n3"]


BACK = policy(back=Back(("nccl",), "return"))


def test_only_tests_that_passed_since_the_drain_bring_a_node_back(
    worker: PolicyWorker, scheduler: FileScheduler, found: Findings, store: Store, clock: FakeClock
) -> None:
    worker.executor.policy = BACK
    found.passed["n3"] = clock.time - 60
    worker.step()
    found.failing.clear()
    worker.step()
    assert scheduler.calls("resume") == []
    clock.advance(3600)
    found.passed["n3"], found.failing = clock.time - 60, ["n3"]
    worker.step()
    assert scheduler.calls("resume") == []  # passed, and a check still fails
    found.failing.clear()
    worker.step()
    worker.step()
    assert scheduler.calls("resume") == ["n3"]
    assert states(store) == [("drain", "n3", "ended"), ("return", "n3", "done")]


@pytest.mark.parametrize("jump", [5 * 3600.0, -5 * 3600.0])
@pytest.mark.parametrize("whose", ["ours", "prometheus"])
def test_a_clock_that_is_set_by_hours_drains_nothing_and_returns_nothing(
    worker: PolicyWorker, scheduler: FileScheduler, found: Findings, clock: FakeClock, *, whose: str, jump: float
) -> None:
    worker.executor.policy = BACK
    worker.step()
    assert scheduler.calls() == ["n3"]
    clock.advance(600)
    found.passed["n3"], found.failing = clock.time - 900, []  # passed before the drain
    theirs = FakeClock(clock.time)
    found.clock = theirs
    (clock if whose == "ours" else theirs).ahead = jump
    for _ in range(4):
        worker.step()
    assert (scheduler.calls(), scheduler.calls("resume")) == (["n3"], [])
    assert ("its clock was set by 5 h" in " ".join(worker.trouble)) is (whose == "prometheus")
    theirs.ahead = 0.0
    found.failing = ["n5"]
    worker.step()
    assert scheduler.calls() == ["n3", "n5"]


def test_who_wrote_a_reason_of_their_own_keeps_the_node(
    worker: PolicyWorker, scheduler: FileScheduler, found: Findings, clock: FakeClock
) -> None:
    worker.executor.policy = BACK
    worker.step()
    clock.advance(3600)
    scheduler.by_hand("n3", held=True, why="RMA 123")
    found.passed["n3"], found.failing = clock.time, []
    worker.step()
    assert scheduler.calls("resume") == []
    assert scheduler.nodes()["n3"].held


def test_the_second_return_in_a_week_is_asked_for(
    worker: PolicyWorker, scheduler: FileScheduler, found: Findings, store: Store, clock: FakeClock
) -> None:
    worker.executor.policy = BACK
    for _ in range(2):
        found.failing = ["n3"]
        worker.step()
        clock.advance(3600)
        found.passed["n3"], found.failing = clock.time, []
        worker.step()
        clock.advance(AGAIN_SECONDS + 1)
    assert scheduler.calls("resume") == ["n3"]
    assert states(store)[-1] == ("ask_return", "n3", "asked")


def test_a_scheduler_that_says_yes_and_does_nothing_is_told_once(
    worker: PolicyWorker, scheduler: FileScheduler, store: Store, clock: FakeClock
) -> None:
    scheduler.does_nothing = True
    for _ in range(8):
        worker.step()
        clock.advance(SETTLE_SECONDS)
    assert (scheduler.calls(), states(store)) == (["n3"], [("drain", "n3", "refused")])
    assert "the scheduler accepted it, and the node is as it was" in posted(store)


def test_a_node_that_somebody_drains_in_the_last_moment_keeps_their_reason(
    worker: PolicyWorker, scheduler: FileScheduler, store: Store
) -> None:
    scheduler.point = lambda: scheduler.by_hand("n3", held=True, why="RMA 123")
    worker.step()
    assert scheduler.nodes()["n3"].why == "RMA 123"
    assert states(store) == [("drain", "n3", "refused")]


@pytest.mark.parametrize(
    ("limits", "most"),
    [(Limits(4, 10), 4), (Limits(1000, 1), 5), (Limits(1000, 100, 505), 6), (Limits(0), 0)],
)
def test_no_more_nodes_are_drained_than_the_limits_let(
    limits: Limits, most: int, tmp_path: Path, store: Store, clock: FakeClock
) -> None:
    scheduler = FileScheduler(tmp_path / "storm", count=511)
    worker = worker_of(store, scheduler, Findings([f"n{n}" for n in range(9)]), clock, policy(limits=limits))
    for _ in range(3):
        worker.step()
        clock.advance(15)
    assert len(scheduler.calls()) == len(set(scheduler.calls())) == most
    assert sum(worker.held.values()) == 9 - most


def test_drains_go_on_in_the_next_hour_within_the_percentage(tmp_path: Path, store: Store, clock: FakeClock) -> None:
    scheduler = FileScheduler(tmp_path / "storm", count=511)
    found = Findings([f"n{n}" for n in range(9)])
    worker = worker_of(store, scheduler, found, clock, policy(limits=Limits(4, 1)))
    for _ in range(6):
        worker.step()
        clock.advance(3601)
    assert len(scheduler.calls()) == 5  # 1 % of 511
    assert worker.held == {(CLUSTER, "percent"): 4}


def test_a_lost_database_adopts_what_it_drained_and_counts_it(
    tmp_path: Path, scheduler: FileScheduler, found: Findings, clock: FakeClock, store: Store
) -> None:
    found.failing = ["n3", "n4", "n5"]
    limited = policy(limits=Limits(2, 100))
    worker_of(store, scheduler, found, clock, limited).step()
    assert len(scheduler.calls()) == 2
    fresh = Store(tmp_path / "fresh")
    worker_of(fresh, scheduler, found, clock, limited).step()
    assert len(scheduler.calls()) == 2
    assert [state for _kind, _node, state in states(fresh)] == ["done", "done"]
    fresh.close()


def test_a_channel_that_may_not_show_nodes_is_told_of_none(worker: PolicyWorker, store: Store) -> None:
    worker.executor.routing = Routing("#x", channels={"#x": Rules(labels=frozenset({"gpu"}))})
    worker.step()
    assert "n3" not in posted(store)
    assert "A node is drained" in posted(store)


def test_metrics_and_page_say_what_was_done_and_held(
    worker: PolicyWorker, found: Findings, store: Store, clock: FakeClock
) -> None:
    found.failing = ["n3", "<n4>", "n5"]
    worker.executor.policy = policy(limits=Limits(percent=5), back=Back(("nccl",)))
    worker.step()
    worker.step()
    with store.snapshot() as tx:
        gauges = policy_gauges(worker, tx.actions)
        page = policy_page(worker, tx.actions.newest(), clock.time)
    totals = gauges["pyrometer_policy_actions_total"]
    assert totals == {(("action", "drain"), ("result", result)): 1.0 for result in ("doing", "done")}
    assert gauges["pyrometer_policy_nodes_held_back"] == {
        (("cluster", CLUSTER), ("limit", limit)): 1.0 for limit in ("unknown_node", "percent")
    }
    assert gauges["pyrometer_policy_mode_info"] == {(("mode", "on"),): 1.0}
    assert "n3" in page
    assert "mode on" in page
    assert "It waits for: test not run since: nccl; check failed: hca_links" in page


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.booleans(), st.sets(st.sampled_from("abc"), max_size=2)), min_size=1, max_size=30),
    st.floats(0, 100),
    st.integers(1, 5),
)
def test_whatever_the_partitions_no_limit_is_passed(
    nodes: list[tuple[bool, set[str]]], percent: float, keep: int
) -> None:
    limits = Limits(1000, percent, keep)
    known = {f"n{n}": NodeState(f"n{n}", is_up, not is_up, tuple(pools)) for n, (is_up, pools) in enumerate(nodes)}
    for name in list(known):
        if not holding(limits, known, name, set(), 0):
            known[name] = NodeState(name, in_service=False, held=True, pools=known[name].pools)
            for pool in known[name].pools or ("",):
                members = [each for each in known.values() if pool in each.pools or not pool]
                out = sum(not each.in_service for each in members)
                assert len(members) - out >= keep
                assert out <= max(1, len(members) * percent / 100)
