"""The outbox alone: each transition changes exactly its own fields of exactly its own row."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyrometer_alerting.incidents.storage.operation import QUIET, DuplicateCheck, Operation
from pyrometer_alerting.incidents.storage.outbox import Outbox
from pyrometer_alerting.incidents.storage.store import Store


@pytest.fixture
def box(store: Store) -> Iterator[Outbox]:
    """An outbox with a bystander, which nothing of another incident may change."""
    with store.transaction() as tx:
        tx.outbox.request("bystander", 1.0, 1.0, "#other")
        before = root(tx.outbox, "bystander")
        yield tx.outbox
        assert root(tx.outbox, "bystander") == before


def root(box: Outbox, name: str = "a") -> Operation:
    found = box.root(name)
    assert found is not None
    return found


def posted(box: Outbox, name: str = "a", ts: str = "1.0", now: float = 20.0) -> Operation:
    box.request(name, 10.0, 10.0, "#gpu")
    box.finish(root(box, name), "C1", ts, "shown", now)
    return root(box, name)


def replies(box: Outbox, name: str = "a") -> list[Operation]:
    return list(box._select("incident_id = ? AND kind = 'reply' ORDER BY seq", name))


def due(box: Outbox) -> list[str | None]:
    return [one.body or one.incident_id for one in box.due() if one.incident_id != "bystander"]


def test_a_request_is_a_root_that_is_ready(box: Outbox) -> None:
    box.request("a", 5.0, 7.0, "#gpu")
    one = root(box)
    assert (one.kind, one.state, one.wanted, one.sent, one.attempts, one.lookups) == ("root", "ready", 1, 0, 0, 0)
    assert (one.since, one.not_before, one.target, one.degrade, one.body) == (7.0, 7.0, "#gpu", 0, None)
    assert one.metadata == {"op_id": one.op_id, "incident_id": "a"}
    box.request("b", 5.0, 7.0)
    assert root(box, "b").target == ""


@pytest.mark.parametrize(("later", "since"), [(9.0, 7.0), (3.0, 3.0)])
def test_a_second_request_counts_and_never_waits_longer(box: Outbox, later: float, since: float) -> None:
    box.request("a", 5.0, 7.0)
    box.request("a", 6.0, later)
    one = root(box)
    assert (one.state, one.wanted, one.since, one.not_before) == ("ready", 2, since, since)


def test_a_request_while_it_is_retried_keeps_its_wait(box: Outbox) -> None:
    box.request("a", 5.0, 7.0)
    box.start(root(box).op_id, 8.0, "#gpu")
    box.request("a", 6.0, 6.0)
    assert (root(box).state, root(box).since, root(box).not_before, root(box).attempts) == ("sending", 7.0, 7.0, 1)
    box.retry_at(root(box).op_id, 60.0, "ratelimited")
    box.request("a", 6.0, 6.0)
    one = root(box)
    assert (one.state, one.since, one.not_before, one.attempts, one.wanted) == ("ready", 7.0, 60.0, 1, 3)


@pytest.mark.parametrize("over", ["done", "dead"])
def test_a_request_after_the_end_begins_again(box: Outbox, over: str) -> None:
    one = posted(box)
    box.start(one.op_id, 21.0, "#gpu")
    if over == "dead":
        box.give_up(one.op_id, "msg_too_long")
    else:
        box.finish(one, "C1", "1.0", "", 22.0)
    assert root(box).state == over
    box.request("a", 30.0, 33.0)
    again = root(box)
    assert (again.state, again.since, again.not_before, again.attempts, again.wanted) == ("ready", 33.0, 33.0, 0, 2)


def test_a_request_changes_no_reply(box: Outbox) -> None:
    posted(box)
    box.reply("a", "text", 21.0)
    box.request("a", 30.0, 30.0)
    assert [(one.wanted, one.not_before) for one in replies(box)] == [(1, 21.0)]


def test_a_standalone_message_is_posted_once_and_edited_once_it_is_there(box: Outbox) -> None:
    box.post_once("digest", "one", 5.0)
    box.post_once("digest", "two", 6.0)
    one = root(box, "digest")
    assert (one.body, one.state, one.wanted, one.target, one.not_before) == ("one", "ready", 1, "", 5.0)
    box.edit_posted(one.op_id, "early", 7.0)
    assert root(box, "digest").body == "one"
    box.degrade(one.op_id, 2, "too long", 8.0)
    box.finish(root(box, "digest"), "C1", "9.0", "x", 9.0)
    box.edit_posted(one.op_id, "late", 10.0)
    edited = root(box, "digest")
    assert (edited.body, edited.state, edited.wanted, edited.since, edited.not_before, edited.degrade) == (
        "late", "ready", 2, 10.0, 10.0, 0,
    )  # fmt: skip


def test_posted_since_are_standalone_messages_that_the_channel_has(box: Outbox) -> None:
    posted(box)  # an incident's: it has no text of its own
    for name, at in (("old", 9.0), ("edge", 10.0), ("new", 11.0)):
        box.post_once(name, name, 5.0)
        box.finish(root(box, name), "C1", name, "", at)
    box.post_once("waiting", "waiting", 5.0)
    box.post_once("adopted", "adopted", 5.0)
    box.adopt(root(box, "adopted"), "C1", "2.0", 12.0)  # ready for another edit
    box.post_once("lost", "lost", 5.0)
    box.finish(root(box, "lost"), "C1", "3.0", "", 12.0)
    box.abandon("C1-other")
    box._db.execute("UPDATE outbox SET ts = NULL WHERE incident_id = 'lost'")
    assert [one.incident_id for one in box.posted_since(10.0)] == ["edge", "new"]


def test_a_reply_replaces_one_that_nobody_tried_to_send(box: Outbox) -> None:
    posted(box)
    box.reply("a", "one", 21.0)
    box.reply("a", "two", 22.0)
    (one,) = replies(box)
    assert (one.body, one.state, one.target, one.wanted, one.not_before) == ("two", "ready", "#gpu", 1, 22.0)
    box.start(one.op_id, 23.0, "#gpu")
    box.reply("a", "three", 24.0)
    box.retry_at(one.op_id, 30.0, "timeout")
    box.reply("a", "four", 25.0)
    assert [reply.body for reply in replies(box)] == ["two", "four"]
    assert root(box).state == "done"
    box.reply("rootless", "x", 1.0)
    assert replies(box, "rootless")[0].target == ""


def test_due_is_oldest_first_and_one_reply_of_a_thread_at_a_time(box: Outbox) -> None:
    box.reply("a", "too early", 1.0)
    box.request("a", 10.0, 10.0)
    box.request("b", 5.0, 5.0)
    assert due(box) == ["b", "a"]
    box.finish(root(box), "C1", "1.0", "", 11.0)
    (first,) = replies(box)
    assert due(box) == ["too early", "b"]
    box.start(first.op_id, 12.0, "C1")
    box.reply("a", "second", 3.0)
    assert due(box) == ["b"]  # the first is being sent
    box.look_up_at(first.op_id, 20.0, "timeout", 1)
    assert due(box) == ["b", "too early"]
    box.finish(first, "C1", "1.1", "", 13.0)
    assert due(box) == ["second", "b"]
    box.give_up(replies(box)[1].op_id, "refused")
    assert due(box) == ["b"]


def test_due_at_one_time_is_in_order_of_arrival(box: Outbox) -> None:
    for name in ("z", "y", "x"):
        box.request(name, 5.0, 5.0)
    assert due(box) == ["z", "y", "x"]


def test_due_is_at_most_five_hundred(box: Outbox) -> None:
    for number in range(501):
        box.request(f"n{number}", 0.5, 0.5)
    assert len(box.due()) == 500


def test_a_message_is_posted_once_the_channel_may_have_it(box: Outbox) -> None:
    assert not box.is_posted("a")
    box.request("a", 5.0, 5.0)
    assert not box.is_posted("a")
    op_id = root(box).op_id
    box.start(op_id, 6.0, "#gpu")
    assert box.is_posted("a")
    box.look_up_at(op_id, 7.0, "timeout", 1)
    assert box.is_posted("a")
    box.finish(root(box), "C1", "1.0", "", 8.0)
    assert box.is_posted("a")


def test_the_first_start_of_a_post_is_kept_and_the_last_of_an_edit(box: Outbox) -> None:
    box.request("a", 5.0, 5.0)
    op_id = root(box).op_id
    box.start(op_id, 6.0, "#one")
    box.start(op_id, 9.0, "#two")
    assert (root(box).sent_at, root(box).attempts, root(box).target, root(box).state) == (6.0, 2, "#two", "sending")
    box.finish(root(box), "C1", "1.0", "", 10.0)
    box.start(op_id, 30.0, "#two")
    assert root(box).sent_at == 30.0
    assert box.get(op_id) == root(box)
    assert box.get("none") is None


def test_finish_is_done_unless_more_has_changed_meanwhile(box: Outbox) -> None:
    box.request("a", 5.0, 5.0)
    taken = root(box)
    box.start(taken.op_id, 6.0, "#gpu")
    box.look_up_at(taken.op_id, 6.5, "timeout", 3)
    box.finish(taken, "C1", "1.0", "digest", 7.0)
    one = root(box)
    assert (one.state, one.sent, one.channel, one.ts, one.shown, one.posted_at) == (
        "done",
        1,
        "C1",
        "1.0",
        "digest",
        7.0,
    )
    assert (one.attempts, one.lookups, one.error, one.since, one.not_before) == (0, 0, None, 5.0, 7.0)
    box.request("a", 8.0, 8.0)
    taken = root(box)
    box.start(taken.op_id, 9.0, "#gpu")
    box.request("a", 10.0, 10.0)
    box.finish(taken, "C1", "1.0", "newer", 11.0)
    one = root(box)
    assert (one.state, one.sent, one.wanted, one.since, one.posted_at) == ("ready", 2, 3, 11.0, 7.0)


@pytest.mark.parametrize(("kind", "state"), [("root", "ready"), ("reply", "done")])
def test_what_is_found_in_the_channel_is_adopted(box: Outbox, kind: str, state: str) -> None:
    posted(box)
    box.reply("a", "x", 21.0)
    one = root(box) if kind == "root" else replies(box)[0]
    box.start(one.op_id, 22.0, "#gpu")
    box.look_up_at(one.op_id, 23.0, "timeout", 2)
    box.adopt(one, "C2", "5.0", 24.0)
    found = box.get(one.op_id)
    assert found is not None
    assert (found.state, found.channel, found.ts, found.shown, found.attempts, found.lookups, found.error) == (
        state, "C2", "5.0", None, 0, 0, None,
    )  # fmt: skip
    assert (found.posted_at, found.not_before) == (20.0 if kind == "root" else 24.0, 24.0)


def test_waiting_has_a_time_and_a_reason(box: Outbox) -> None:
    box.request("a", 5.0, 5.0)
    op_id = root(box).op_id
    box.postpone(op_id, 50.0, QUIET)
    assert (root(box).not_before, root(box).since, root(box).error, root(box).state) == (
        50.0,
        5.0,
        QUIET,
        "ready",
    )
    box.start(op_id, 51.0, "#gpu")
    box.retry_at(op_id, 60.0, "timeout")
    assert (root(box).state, root(box).not_before, root(box).error, root(box).attempts) == ("ready", 60.0, "timeout", 1)
    box.start(op_id, 61.0, "#gpu")
    box.retry_at(op_id, 70.0, "ratelimited", refund=True)
    assert root(box).attempts == 1
    box.look_up_at(op_id, 80.0, "lost", 2)
    assert (root(box).state, root(box).not_before, root(box).error, root(box).lookups) == ("lookup", 80.0, "lost", 2)
    box.degrade(op_id, 3, "too long", 81.0)
    assert (root(box).state, root(box).degrade, root(box).error, root(box).not_before) == ("ready", 3, "too long", 81.0)
    box.restore(op_id)
    assert root(box).degrade == 0


def test_what_is_given_up_is_dead_until_it_is_replayed(box: Outbox) -> None:
    for name in ("a", "b"):
        box.request(name, 5.0, 5.0)
        op_id = root(box, name).op_id
        box.start(op_id, 6.0, "#gpu")
        box.look_up_at(op_id, 6.5, "timeout", 2)
        box.degrade(op_id, 2, "too long", 7.0)
        assert not box.replay(op_id, 8.0)
        box.give_up(op_id, "refused")
    assert [one.incident_id for one in box.dead()] == ["a", "b"]
    assert (root(box).state, root(box).error, root(box).degrade) == ("dead", "refused", 0)
    assert box.depth() == (1, 1.0, 2)
    box._db.execute("UPDATE outbox SET degrade = 2 WHERE incident_id = 'a'")
    assert box.replay(root(box).op_id, 9.0)
    one = root(box)
    assert (one.state, one.not_before, one.since, one.attempts, one.degrade, one.lookups) == (
        "ready",
        9.0,
        9.0,
        0,
        0,
        0,
    )
    assert [dead.incident_id for dead in box.dead()] == ["b"]


def test_a_deleted_message_is_posted_again_under_a_new_id(box: Outbox) -> None:
    before = posted(box)
    box.look_up_at(before.op_id, 21.0, "gone", 2)
    box.renew(before, 30.0)
    one = root(box)
    assert one.op_id != before.op_id
    assert (one.state, one.ts, one.shown, one.not_before, one.lookups) == ("ready", None, None, 30.0, 0)


def test_dropped_replies_are_those_that_wait(box: Outbox) -> None:
    posted(box)
    box.reply("a", "sent", 21.0)
    box.start(replies(box)[0].op_id, 22.0, "C1")
    box.reply("a", "waits", 23.0)
    box.request("a", 24.0, 24.0)
    box.drop_replies("a")
    assert [(one.body, one.state) for one in replies(box)] == [("sent", "sending"), ("waits", "done")]
    assert root(box).state == "ready"


def test_hasten_only_shortens_the_first_wait_of_a_message(box: Outbox) -> None:
    box.request("a", 5.0, 30.0)
    box.hasten("a", 40.0)
    assert root(box).not_before == 30.0
    box.hasten("a", 10.0)
    assert root(box).not_before == 10.0
    box.start(root(box).op_id, 11.0, "#gpu")
    box.hasten("a", 2.0)
    assert root(box).not_before == 10.0
    box.retry_at(root(box).op_id, 50.0, "timeout")
    box.hasten("a", 2.0)
    assert root(box).not_before == 50.0
    box.reply("a", "x", 60.0)
    box.hasten("a", 2.0)
    assert replies(box)[0].not_before == 60.0


def test_waits_are_capped_where_something_waits(box: Outbox) -> None:
    for name in ("ready", "lookup", "sending"):
        box.request(name, 5.0, 500.0)
    box.look_up_at(root(box, "lookup").op_id, 500.0, "timeout", 1)
    box.start(root(box, "sending").op_id, 6.0, "#gpu")
    box.request("edge", 5.0, 100.0)
    box.cap_waits(50.0, 100.0)
    found = {name: root(box, name).not_before for name in ("ready", "lookup", "sending", "edge")}
    assert found == {"ready": 50.0, "lookup": 50.0, "sending": 500.0, "edge": 100.0}


def test_messages_of_a_channel_out_of_reach_are_posted_elsewhere(box: Outbox) -> None:
    posted(box, "a")
    posted(box, "b")
    box._db.execute("UPDATE outbox SET channel = 'C9' WHERE incident_id = 'b'")
    box.abandon("C1")
    assert (root(box).channel, root(box).ts, root(box).shown) == (None, None, None)
    assert (root(box, "b").channel, root(box, "b").ts, root(box, "b").shown) == ("C9", "1.0", "shown")


def test_checks_for_duplicates_are_soonest_first_and_know_the_thread(box: Outbox) -> None:
    posted(box, "earlier", ts="0.5")  # another thread of the same outlet
    one = posted(box)
    box.reply("a", "x", 21.0)
    (reply,) = replies(box)
    box.plan_duplicate_check(reply.op_id, "C1", "1.1", 15.0, 90.0)
    box.plan_duplicate_check(one.op_id, "C1", "1.0", 10.0, 80.0)
    box.plan_duplicate_check(one.op_id, "C1", "1.0", 11.0, 81.0)
    assert box.duplicate_checks() == [
        DuplicateCheck(one.op_id, "C1", "1.0", None, 11.0, 81.0),
        DuplicateCheck(reply.op_id, "C1", "1.1", "1.0", 15.0, 90.0),
    ]
    box.repeat_duplicate_check(one.op_id, 99.0)
    assert [check.due for check in box.duplicate_checks()] == [90.0, 99.0]
    box.finish_duplicate_check(reply.op_id)
    assert [check.op_id for check in box.duplicate_checks()] == [one.op_id]


def test_a_reply_whose_own_root_is_gone_has_no_thread_of_another(box: Outbox) -> None:
    posted(box, "earlier", ts="0.5")
    posted(box)
    box.reply("a", "x", 21.0)
    (reply,) = replies(box)
    box._db.execute("DELETE FROM outbox WHERE incident_id = 'a' AND kind = 'root'")
    box.plan_duplicate_check(reply.op_id, "C1", "1.1", 15.0, 90.0)
    assert [check.thread for check in box.duplicate_checks()] == [None]


def test_the_interrupted_are_those_being_sent(box: Outbox) -> None:
    box.request("a", 5.0, 5.0)
    box.request("b", 5.0, 5.0)
    box.start(root(box).op_id, 6.0, "#gpu")
    box.look_up_at(root(box, "b").op_id, 6.0, "timeout", 1)
    assert [one.incident_id for one in box.interrupted()] == ["a"]


def test_the_depth_is_what_is_not_over(box: Outbox) -> None:
    posted(box, "done")
    for number, name in enumerate(("ready", "sending", "lookup", "dead")):
        box.request(name, 0.0, number / 10)
    box.start(root(box, "sending").op_id, 6.0, "#gpu")
    box.look_up_at(root(box, "lookup").op_id, 6.0, "timeout", 1)
    box.give_up(root(box, "dead").op_id, "refused")
    assert box.depth() == (4, 0.0, 1)  # with the bystander
