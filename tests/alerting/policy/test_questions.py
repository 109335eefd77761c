"""The questions of a policy: asked once, decided on today's facts, closed when their ground goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from alerting_fakes import FakeClock
from alerting_policy_fakes import CLUSTER, RULE, FileScheduler, Findings, policy, posted, states, worker_of

from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.policy.policy_page import policy_page
from pyrometer_alerting.policy.returns import AGAIN_SECONDS
from pyrometer_alerting.policy.rules import Back, Limits, Rule
from pyrometer_alerting.policy.worker import PolicyWorker
from pyrometer_kit.prometheus import PrometheusError


def test_a_question_is_answered_once(
    worker: PolicyWorker, scheduler: FileScheduler, store: Store, clock: FakeClock
) -> None:
    worker.executor.policy = policy(do="ask")
    worker.step()
    worker.step()
    with store.snapshot() as tx:
        (asked,) = tx.actions.in_state("asked")
    assert scheduler.calls() == []
    assert "pyrometer_policy_drain" in posted(store)
    assert worker.confirm(asked.id, "alice (U0ALICE)") == ""
    assert "already answered" in worker.confirm(asked.id, "bob (U0BOB)")
    assert scheduler.calls() == ["n3"]
    with store.snapshot() as tx:
        assert ("alice (U0ALICE)", "drain_done") in [row[1:3] for row in tx.audits()]


def test_the_link_of_an_incident_is_not_looked_for_in_the_middle_of_a_reason(
    worker: PolicyWorker, scheduler: FileScheduler, store: Store, clock: FakeClock
) -> None:
    what = "check hca_links failed: see http://wiki/hca for it"
    action, without = (
        worker.executor.new(
            CLUSTER, node, "ask", rule="r", what=what, incident_id=link, by="policy", topic="check hca_links"
        )
        for node, link in (("n3", "i7"), ("n4", ""))
    )
    with store.transaction() as tx:
        for each in (action, without):
            tx.actions.add(replace(each, state="asked"))
        page = policy_page(worker, tx.actions.newest(), clock.time)
    assert f"{what} <a href=" in page
    assert f"{what}<small>" in page
    assert worker.confirm(action.id, "alice") == ""
    assert scheduler.nodes()["n3"].why.startswith(f"pyrometer: {what} http://p/#i7 [")


def ask_and_press(worker: PolicyWorker, store: Store, change: Callable[[], None]) -> str:
    """Let a question be asked, change something, press the button; return what that person is told."""
    worker.step()
    with store.snapshot() as tx:
        (asked,) = tx.actions.in_state("asked")
    change()
    return worker.confirm(asked.id, "alice")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda found, _scheduler: found.failing.clear(), ("check hca_links is over", "ended")),
        (
            lambda _found, scheduler: scheduler.by_hand("n3", held=True, why="RMA"),
            ("somebody has drained it: RMA", "ended"),
        ),
        (lambda _found, scheduler: scheduler.stop("n9", on=True), ("drains are stopped", "asked")),
        (lambda found, _scheduler: setattr(found, "failure", PrometheusError("partial")), ("partial", "asked")),
    ],
)
def test_a_press_decides_again_on_todays_facts(
    store: Store, scheduler: FileScheduler, clock: FakeClock, change: Callable[..., None], told: tuple[str, str]
) -> None:
    found, (said, left) = Findings(["n3"]), told
    worker = worker_of(store, scheduler, found, clock, policy(do="ask"))
    answer = ask_and_press(worker, store, lambda: change(found, scheduler))
    assert answer.startswith(f"Nothing was done: {said}")
    assert scheduler.calls() == []
    assert states(store) == [("ask", "n3", left)]


@pytest.mark.parametrize("why", ["RMA 123", "{} RMA 123"])
def test_put_back_leaves_a_node_with_another_reason_alone(
    why: str, scheduler: FileScheduler, store: Store, clock: FakeClock
) -> None:
    found = Findings(["n3"])
    worker = worker_of(store, scheduler, found, clock, policy(back=Back(("nccl",))))
    worker.step()
    clock.advance(3600)
    found.passed["n3"], found.failing = clock.time, []
    said = ask_and_press(
        worker, store, lambda: scheduler.by_hand("n3", held=True, why=why.format(scheduler.nodes()["n3"].why))
    )
    assert said.startswith("Nothing was done: somebody set another reason: ")
    assert scheduler.nodes()["n3"].held


def test_healed_questions_close_themselves_say_so_and_leave_room(
    worker: PolicyWorker, found: Findings, store: Store, clock: FakeClock
) -> None:
    worker.executor.policy = policy(do="ask")
    for round_ in range(3):
        found.failing = [f"n{2 * round_}", f"n{2 * round_ + 1}"]
        worker.step()
        clock.advance(60)
    assert sum(state == "asked" for _kind, _node, state in states(store)) == 2
    assert posted(store).count("no longer needs an answer") == 2 * 4  # each as text and as a block
    found.failing = ["n0"]  # it fails again: asked again
    worker.step()
    assert states(store)[-1] == ("ask", "n0", "asked")


def test_a_worse_finding_replaces_an_open_question(
    worker: PolicyWorker, scheduler: FileScheduler, found: Findings, store: Store
) -> None:
    found.since["n3"] = found.now() - 3600
    later = Rule("check", "hca_.*", 0.0, "ask")
    worker.executor.policy = replace(policy(), rules=(Rule("check", "hca_links", 7200.0, "drain"), later))
    worker.step()
    assert states(store) == [("ask", "n3", "asked")]
    worker.executor.policy = replace(policy(), rules=(RULE, later))  # by now it has lasted
    worker.step()
    assert states(store) == [("ask", "n3", "ended"), ("drain", "n3", "done")]
    assert scheduler.calls() == ["n3"]


def test_an_old_question_is_closed_and_asked_anew(worker: PolicyWorker, store: Store, clock: FakeClock) -> None:
    worker.executor.policy = policy(do="ask")
    worker.step()
    clock.advance(AGAIN_SECONDS + 1)
    worker.step()
    assert states(store) == [("ask", "n3", "ended"), ("ask", "n3", "asked")]


def test_a_person_is_held_by_the_limits_too(
    worker: PolicyWorker, scheduler: FileScheduler, store: Store, found: Findings
) -> None:
    worker.executor.policy = policy(do="ask", limits=Limits(per_hour=1, percent=100))
    found.failing = ["n3", "n4"]
    worker.step()
    with store.snapshot() as tx:
        one, two = tx.actions.in_state("asked")
    assert worker.confirm(one.id, "alice") == ""
    assert worker.confirm(two.id, "alice") == "Nothing was done: the limit of nodes per hour is reached."
    assert scheduler.calls() == ["n3"]
