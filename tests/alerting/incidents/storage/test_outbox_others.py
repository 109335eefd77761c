"""The outbox of several outlets, and of two processes: each has its own rows, and a late call harms nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from alerting_fakes import START, alert, training_incident

from pyrometer_alerting.incidents.storage.operation import Operation
from pyrometer_alerting.incidents.storage.outbox import Outbox
from pyrometer_alerting.incidents.storage.store import Store, Transaction

PAGER, MAIL = "pager", "mail"


@pytest.fixture
def tx(store: Store) -> Iterator[Transaction]:
    store.outlets = (PAGER,)
    with store.transaction() as opened:
        yield opened


def root(box: Outbox, name: str = "a") -> Operation:
    found = box.root(name)
    assert found is not None
    return found


# --- what is requested of Slack's message is requested of the others


def test_a_request_is_passed_on_to_the_other_outlets(tx: Transaction) -> None:
    tx.outbox.request("a", 5.0, 7.0, "#gpu")
    pager = root(tx.outbox_of(PAGER))
    assert (pager.outlet, pager.state, pager.not_before, pager.target) == (PAGER, "ready", 7.0, "")
    assert tx.outbox_of(MAIL).root("a") is None
    tx.outbox.request_others("b", 5.0, 8.0)
    assert root(tx.outbox_of(PAGER), "b").not_before == 8.0
    assert tx.outbox.root("b") is None


def test_only_what_another_outlet_was_sent_is_reported_there(tx: Transaction) -> None:
    assert not tx.outbox.is_reported("a")
    tx.outbox.request("a", 5.0, 7.0)
    tx.outbox.start(root(tx.outbox).op_id, 8.0, "#gpu")
    assert not tx.outbox.is_reported("a"), "Slack is not another outlet"
    tx.outbox.start(root(tx.outbox_of(PAGER)).op_id, 9.0, "")
    assert tx.outbox.is_reported("a") is True
    assert tx.outbox.is_reported("b") is False


def test_discarding_removes_one_incidents_message_in_one_outlet(tx: Transaction) -> None:
    for name in ("a", "b"):
        tx.outbox.request(name, 5.0, 7.0)
    tx.outbox.discard("a")
    assert tx.outbox.root("a") is None
    assert tx.outbox.root("b") is not None
    assert tx.outbox_of(PAGER).root("a") is not None


def test_each_outlet_has_its_own_calls(tx: Transaction) -> None:
    for n in range(6):
        tx.outbox_of(PAGER).note_call("a", 100.0 + n)
    assert tx.outbox.free_at("a", 200.0) == 200.0
    assert tx.outbox_of(MAIL).free_at("a", 200.0) == 200.0
    assert tx.outbox_of(PAGER).free_at("a", 200.0) == 100.0 + 605.0, "ten minutes, and five seconds more"
    assert tx.outbox_of(PAGER).free_at("b", 200.0) == 200.0


def test_what_an_outlet_need_not_be_sent_is_done_until_it_changes(tx: Transaction) -> None:
    box = tx.outbox_of(PAGER)
    box.request("a", 5.0, 7.0)
    box.request("other", 5.0, 7.0)
    box.start(root(box).op_id, 8.0, "")
    box.retry_at(root(box).op_id, 9.0, "no answer")
    box.skip(root(box))
    settled = root(box)
    assert (settled.state, settled.sent, settled.wanted, settled.attempts, settled.error) == ("done", 1, 1, 0, None)
    assert root(box, "other").state == "ready"
    box.request("a", 10.0, 11.0)
    before = root(box)
    box.request("a", 12.0, 13.0)
    box.skip(before)
    assert (root(box).state, root(box).sent) == ("ready", 2), "what changed meanwhile is looked at"


# --- outlets that come and go


def test_a_new_outlet_hears_of_all_that_fires_and_a_removed_ones_notices_are_forgotten(tx: Transaction) -> None:
    posted = replace(training_incident(id="posted", key="posted"))
    for one in (
        posted,
        replace(posted, id="told", key="told"),
        replace(posted, id="over", key="over", resolved_at=START),
    ):
        tx.save_incident(one, START)
        tx.outbox.request(one.id, START, START)
    pager = tx.outbox_of(PAGER)
    pager.discard("posted")
    wanted = root(pager, "told").wanted
    tx.outbox_of(MAIL).request("posted", START, START)
    tx.adopt_outlets((PAGER, "phone"), START + 5)
    assert tx.outbox_of(MAIL).root("posted") is None, "it was removed"
    assert root(tx.outbox, "posted").outlet == "", "Slack's stays"
    assert root(pager, "posted").not_before == START + 5
    assert root(pager, "told").wanted == wanted, "it knows"
    assert root(tx.outbox_of("phone"), "told").state == "ready"


def test_an_incident_without_a_message_is_told_to_no_new_outlet(tx: Transaction) -> None:
    quiet = replace(training_incident(id="quiet", key="quiet"), joined_into="")
    tx.save_incident(quiet, START)
    tx.adopt_outlets((PAGER,), START)
    assert (tx.outbox_of(PAGER).root("quiet") is not None) == quiet.is_posted


def test_alerts_are_known_by_their_fingerprints_many_at_a_time(tx: Transaction) -> None:
    names = [f"f{n}" for n in range(1203)]
    for n, name in enumerate(names):
        tx.save_alert(alert(fingerprint=name, firing=n % 2 == 0), None, START + n)
    found = tx.known_alerts([*names, "unknown"])
    assert set(found) == set(names)
    for n, name in enumerate(names):
        known, seen_at = found[name]
        assert known is not None
        assert (known.fingerprint, known.firing, seen_at) == (name, n % 2 == 0, START + n)


def test_an_alert_that_is_saved_again_has_its_new_state_and_is_not_doubted(tx: Transaction) -> None:
    tx.save_incident(training_incident(id="one", key="one"), START)
    tx.save_incident(training_incident(id="two", key="two"), START)
    tx.save_alerts([alert(), alert(fingerprint="f2")], "one", START)
    tx.park_alert(alert())
    tx.save_alerts([replace(alert(firing=False), starts_at=START + 1, ends_at=START + 2)], "two", START + 3)
    assert tx.parked_alerts() == []
    known, seen_at = tx.known_alert("f1")
    assert known is not None
    assert (known.firing, known.starts_at, known.ends_at, seen_at) == (False, START + 1, START + 2, START + 3)
    assert (tx.incident_of_alert("f1"), tx.incident_of_alert("f2")) == ("two", "one")


def test_forgetting_forgets_what_the_policy_did(tx: Transaction, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(tx.actions, "forget", asked.append)
    tx.forget(START)
    assert asked == [START]


# --- a call that came after another process had taken over


def posting(box: Outbox) -> Operation:
    box.request("a", 5.0, 5.0, "#gpu")
    box.start(root(box).op_id, 6.0, "#gpu")
    return root(box)


def test_a_post_that_is_still_looked_up_needs_no_note(tx: Transaction) -> None:
    before = posting(tx.outbox)
    tx.outbox.note_stray(before, "3.0", 30.0)
    tx.outbox.note_stray(replace(before, op_id="gone"), "3.0", 30.0)
    assert tx.outbox.duplicate_checks() == []
    assert root(tx.outbox) == before


def test_a_second_post_is_looked_for(tx: Transaction) -> None:
    before = posting(tx.outbox)
    tx.outbox.finish(before, "C1", "2.0", "shown", 20.0)
    tx.outbox.note_stray(before, "3.0", 30.0)
    (check,) = tx.outbox.duplicate_checks()
    assert (check.op_id, check.channel, check.ts, check.thread) == (before.op_id, "C1", "2.0", None)
    assert (check.oldest, check.due) == (6.0, 30.0)
    assert (root(tx.outbox).state, root(tx.outbox).shown) == ("done", "shown")


def test_the_same_post_is_no_second_one(tx: Transaction) -> None:
    before = posting(tx.outbox)
    tx.outbox.finish(before, "C1", "2.0", "shown", 20.0)
    tx.outbox.note_stray(before, "2.0", 30.0)
    assert tx.outbox.duplicate_checks() == []


def test_a_second_post_of_an_operation_without_a_channel_or_a_time_is_looked_for_from_now_on(tx: Transaction) -> None:
    before = replace(posting(tx.outbox), sent_at=None)
    tx.outbox.finish(before, "C1", "2.0", "shown", 20.0)
    tx.outbox._db.execute("UPDATE outbox SET channel = NULL, sent_at = NULL WHERE op_id = ?", (before.op_id,))
    tx.outbox.note_stray(before, "3.0", 30.0)
    (check,) = tx.outbox.duplicate_checks()
    assert (check.channel, check.oldest) == ("", 30.0)


def test_an_edit_that_came_late_is_made_again(tx: Transaction) -> None:
    tx.outbox.finish(posting(tx.outbox), "C1", "2.0", "shown", 20.0)
    before = root(tx.outbox)
    tx.outbox.note_stray(before, "2.0", 30.0)
    after = root(tx.outbox)
    assert (after.state, after.shown, after.wanted, after.not_before) == ("ready", None, before.wanted + 1, 30.0)
    assert tx.outbox.duplicate_checks() == []


def test_a_reply_is_looked_for_in_its_own_thread(tx: Transaction) -> None:
    tx.outbox.request("earlier", 1.0, 1.0)
    tx.outbox.finish(root(tx.outbox, "earlier"), "C1", "1.0", "shown", 2.0)
    tx.outbox.finish(posting(tx.outbox), "C1", "2.0", "shown", 20.0)
    tx.outbox.reply("a", "text", 21.0)
    pager = tx.outbox_of(PAGER)
    pager.finish(root(pager), "P", "9.9", "shown", 20.0)
    (reply,) = [one for one in tx.outbox.due() if one.kind == "reply"]
    tx.outbox.plan_duplicate_check(reply.op_id, "C1", "2.5", 20.0, 40.0)
    (check,) = tx.outbox.duplicate_checks()
    assert check.thread == "2.0", "not the pager's, nor another incident's"
