"""The pings that an incident gets: a post and two replies in ten minutes, and never an edit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from alerting_fakes import START

from pyrometer_alerting.incidents.storage.outbox import CALLS_SECONDS, Outbox
from pyrometer_alerting.incidents.storage.store import Store, Transaction


@pytest.fixture
def outbox(store: Store) -> Iterator[Outbox]:
    with store.transaction() as tx:
        yield tx.outbox


def posted(outbox: Outbox, name: str = "i", at: float = START) -> None:
    """A message that is in the channel since then."""
    outbox.request(name, at, at)
    root = outbox.root(name)
    assert root is not None
    outbox.start(root.op_id, at, "C1")
    outbox.finish(root, "C1", "1.0", "", at)


def called(outbox: Outbox, *times: float, name: str = "i") -> None:
    for at in times:
        outbox.note_call(name, at)


def test_the_fourth_ping_waits_until_the_first_is_ten_minutes_old(outbox: Outbox) -> None:
    called(outbox, START + 1, START + 2)
    assert outbox.free_at("i", START + 10) == START + 10
    called(outbox, START + 3)
    assert outbox.free_at("i", START + 10) == START + 1 + CALLS_SECONDS


def test_more_than_the_limit_are_counted_from_the_newest(outbox: Outbox) -> None:
    called(outbox, *(START + second for second in range(1, 10)))
    assert outbox.free_at("i", START + 10) == START + 7 + CALLS_SECONDS


def test_pings_of_others_of_long_ago_and_of_a_clock_that_was_ahead_do_not_count(outbox: Outbox) -> None:
    now = START + 1000
    called(outbox, *(START + second for second in range(300, 306)))
    called(outbox, *(now - second for second in range(1, 4)), name="other")
    called(outbox, *(now + second for second in range(1, 7)))
    assert outbox.free_at("i", now) == now
    assert outbox.free_at("other", now) == now - 3 + CALLS_SECONDS


def test_a_ping_as_old_as_the_window_is_over_and_one_of_now_counts(outbox: Outbox) -> None:
    now = START + CALLS_SECONDS
    called(outbox, START, now - 4, now)
    assert outbox.free_at("i", now) == now
    called(outbox, now - 2)
    assert outbox.free_at("i", now) == now - 4 + CALLS_SECONDS


def test_calls_of_long_ago_are_removed(outbox: Outbox) -> None:
    called(outbox, START, START + 1, START + 1 + CALLS_SECONDS)
    assert outbox._db.execute("SELECT at FROM slack_call ORDER BY at").fetchall() == [(START + 1 + CALLS_SECONDS,)]


def not_before(outbox: Outbox, name: str = "i") -> float:
    root = outbox.root(name)
    assert root is not None
    return root.not_before


def test_an_edit_that_nobody_waits_for_comes_so_long_after_the_last_call(outbox: Outbox) -> None:
    posted(outbox)
    outbox.refresh("i", START + 10, 300.0)
    assert not_before(outbox) == START + 300


def test_of_a_message_that_was_never_sent_it_is_at_once(outbox: Outbox) -> None:
    outbox.refresh("i", START, 300.0)
    assert not_before(outbox) == START


def test_pings_delay_no_edit(outbox: Outbox) -> None:
    posted(outbox)
    called(outbox, *(START + 290 + second for second in range(6)))
    outbox.refresh("i", START + 295, 300.0)
    assert not_before(outbox) == START + 300


def test_calls_before_a_message_was_posted_delay_nothing(outbox: Outbox) -> None:
    """The tries to post it were calls too."""
    outbox.request("i", START, START)
    called(outbox, *(START + second for second in range(6)))
    outbox.refresh("i", START + 10, 5.0)
    assert not_before(outbox) == START


def test_a_reply_that_waits_is_replaced_unless_it_must_be_told(outbox: Outbox) -> None:
    posted(outbox)
    outbox.reply("i", '{"text": "resolved", "kept": false}', START, START + 300)
    outbox.reply("i", '{"text": "died", "broadcast": true, "kept": true}', START)
    outbox.reply("i", '{"text": "joined", "kept": false}', START, START + 300)
    assert outbox.drop_waiting("i")
    assert not outbox.drop_waiting("i")
    (waiting,) = outbox._select("kind = 'reply'")
    assert "died" in str(waiting.body)


def test_a_reply_waits_no_longer_than_it_was_told(store: Store) -> None:
    def due(tx: Transaction, name: str) -> float:
        return next(one.not_before for one in tx.outbox.due() if one.incident_id == name and one.kind == "reply")

    with store.transaction() as tx:
        for name in ("now", "later"):
            posted(tx.outbox, name)
        tx.outbox.reply("now", "text", 0.5)
        tx.outbox.reply("later", "text", START, START + 7)
        assert (due(tx, "now"), due(tx, "later")) == (0.5, START + 7)


@pytest.mark.parametrize(("not_before", "waits_since"), [(600.0, 600.0), (0.0, 21.0)])
def test_a_reply_that_our_own_limit_holds_is_not_waiting_for_slack(
    outbox: Outbox, not_before: float, waits_since: float
) -> None:
    """Count a held reply from its not_before: AlertingNotDelivering must not fire because of our own limit."""
    posted(outbox)
    outbox.reply("i", "text", 21.0, not_before)
    (reply,) = outbox._select("kind = 'reply'")
    assert (reply.since, reply.not_before) == (21.0, waits_since), "the page shows since when it is wished for"
    assert outbox.depth()[1] == waits_since
    outbox.start(reply.op_id, waits_since, "#gpu")
    assert outbox.depth()[1] == waits_since


def test_an_edit_that_we_space_is_not_waiting_for_slack_and_one_that_slack_refused_is(outbox: Outbox) -> None:
    posted(outbox)
    outbox.follow("i", 21.0)
    (evidence,) = outbox._select("kind = 'reply'")
    outbox.start(evidence.op_id, 21.0, "C1")
    outbox.finish(evidence, "C1", "2.0", "", 21.0)
    outbox.follow("i", 30.0)
    (edit,) = outbox._select("kind = 'reply'")
    assert edit.not_before > 30.0
    assert outbox.depth()[1] == edit.not_before
    outbox.retry_at(edit.op_id, 500.0, "ratelimited", refund=True)
    assert outbox.depth()[1] == 30.0
