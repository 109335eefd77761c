"""The calls that a message and its thread get: six in ten minutes, counted for each incident alone."""

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


@pytest.mark.parametrize(("calls", "oldest"), [(1, 1), (2, 2), (3, 3), (6, 6)])
def test_one_more_call_is_free_when_the_seventh_last_is_ten_minutes_old(
    outbox: Outbox, calls: int, oldest: int
) -> None:
    called(outbox, *(START + second for second in (1, 2, 3, 4, 5, 6)))
    assert outbox.free_at("i", START + 10, calls) == START + oldest + CALLS_SECONDS


def test_only_what_goes_beyond_six_waits(outbox: Outbox) -> None:
    called(outbox, START + 1, START + 2, START + 3, START + 4)
    assert [outbox.free_at("i", START + 10, calls) for calls in (1, 2, 3)] == [
        START + 10,
        START + 10,
        START + 1 + CALLS_SECONDS,
    ]


def test_more_than_six_are_counted_from_the_newest(outbox: Outbox) -> None:
    called(outbox, *(START + second for second in range(1, 10)))
    assert outbox.free_at("i", START + 10, 1) == START + 4 + CALLS_SECONDS


def test_calls_of_others_of_long_ago_and_of_a_clock_that_was_ahead_do_not_count(outbox: Outbox) -> None:
    now = START + 1000
    called(outbox, *(START + second for second in range(300, 306)))
    called(outbox, *(now - second for second in range(1, 7)), name="other")
    called(outbox, *(now + second for second in range(1, 7)))
    assert outbox.free_at("i", now, 1) == now
    assert outbox.free_at("other", now, 1) == now - 6 + CALLS_SECONDS


def test_a_call_as_old_as_the_window_is_over_and_one_of_now_counts(outbox: Outbox) -> None:
    now = START + CALLS_SECONDS
    called(outbox, START, *(now - second for second in (4, 3, 2, 1)), now)
    assert outbox.free_at("i", now, 1) == now
    assert outbox.free_at("i", now, 2) == now - 4 + CALLS_SECONDS


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


def test_an_edit_that_nobody_waits_for_leaves_calls_for_the_end(outbox: Outbox) -> None:
    posted(outbox)
    called(outbox, START + 290, START + 291, START + 292)
    outbox.refresh("i", START + 295, 300.0)
    assert not_before(outbox) == START + 300, "three calls, this one, and two for the end"
    posted(outbox, "j")
    called(outbox, START + 290, START + 291, START + 292, START + 293, name="j")
    outbox.refresh("j", START + 295, 300.0)
    assert not_before(outbox, "j") == START + 290 + CALLS_SECONDS


def test_calls_before_a_message_was_posted_delay_nothing(outbox: Outbox) -> None:
    """The tries to post it were calls too."""
    outbox.request("i", START, START)
    called(outbox, *(START + second for second in range(6)))
    outbox.refresh("i", START + 10, 5.0)
    assert not_before(outbox) == START


def test_a_message_is_held_while_its_edit_waits(outbox: Outbox) -> None:
    assert not outbox.is_held("nobody", START)
    outbox.request("new", START, START + 10)
    assert not outbox.is_held("new", START), "it is not in the channel"
    posted(outbox)
    assert not outbox.is_held("i", START), "nothing waits"
    outbox.request("i", START, START + 10)
    assert outbox.is_held("i", START)
    assert not outbox.is_held("i", START + 10), "its time has come"
    root = outbox.root("i")
    assert root is not None
    outbox.start(root.op_id, START, "C1")
    assert not outbox.is_held("i", START), "it is being sent"


def test_a_reply_waits_no_longer_than_it_was_told(store: Store) -> None:
    def due(tx: Transaction, name: str) -> float:
        return next(one.not_before for one in tx.outbox.due() if one.incident_id == name and one.kind == "reply")

    with store.transaction() as tx:
        for name in ("now", "later"):
            posted(tx.outbox, name)
        tx.outbox.reply("now", "text", 0.5)
        tx.outbox.reply("later", "text", START, START + 7)
        assert (due(tx, "now"), due(tx, "later")) == (0.5, START + 7)
