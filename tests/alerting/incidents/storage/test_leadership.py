"""Who leads on PostgreSQL, and what one that was deposed can still do: nothing."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from alerting_fakes import START, training_incident, wait_until

from pyrometer_alerting.incidents.inbox import SharedInbox
from pyrometer_alerting.incidents.storage.operation import Operation
from pyrometer_alerting.incidents.storage.store import NotLeadingError, Store, StoreError
from pyrometer_simulator.postgres import Pair

if TYPE_CHECKING:
    from pyrometer_alerting.incidents.storage.leadership import Leadership


class Replica:
    """One that may lead, with a store."""

    def __init__(self, pair: Pair) -> None:
        from pyrometer_alerting.incidents.storage.leadership import Leadership
        from pyrometer_alerting.incidents.storage.postgresql import PostgreSQL, Server

        server = Server(pair.url)
        self.leadership: Leadership = Leadership(server)
        self.engine = PostgreSQL(server, leads=self.leadership.leads)
        self.store = Store(self.engine)

    def step(self) -> bool:
        self.leadership.step()
        self.engine.epoch = self.leadership.epoch
        return self.leadership.leads()

    def close(self) -> None:
        self.leadership._session.disconnect()
        self.store.close()


def takes_over(replica: Replica) -> bool:
    """Try once; the server may still be about to end the other one's session."""
    with contextlib.suppress(StoreError):
        return replica.step()
    return False


@pytest.fixture
def replicas(postgres: Pair) -> Iterator[tuple[Replica, Replica]]:
    made = Replica(postgres), Replica(postgres)
    yield made
    for each in made:
        each.close()


def post_of(operation: Operation | None) -> Operation:
    assert operation is not None
    return operation


def test_a_database_that_is_being_restored_does_not_end_the_wait_for_the_lead(
    replicas: tuple[Replica, Replica],
) -> None:
    """While a copy is restored, table by table, the tables exist and are empty for a moment."""
    first, second = replicas
    assert first.step()
    first.leadership._session.execute("DELETE FROM beat")
    with pytest.raises(StoreError, match="is it being restored"):
        second.step()
    first.leadership._session.disconnect()
    wait_until(lambda: takes_over(second))  # and writes what is missing


def test_one_leads_and_the_other_writes_nothing_but_letters(replicas: tuple[Replica, Replica]) -> None:
    first, second = replicas
    assert first.step()
    assert not second.step()
    with first.store.transaction() as tx:
        tx.save_fact("a", "1")
    with pytest.raises(NotLeadingError, match="another replica is the leader"), second.store.transaction():
        pass
    with pytest.raises(NotLeadingError):
        second.store.check_leading()
    with second.store.snapshot() as tx:
        assert tx.fact("a") == "1"
    letter = SharedInbox(second.store, "inbox").put(b"body", START)
    inbox = SharedInbox(first.store, "inbox")
    assert inbox.next() == letter
    assert inbox.read(letter) == b"body"
    inbox.remove(letter)
    assert list(inbox.left()) == []
    second.store.probe(START)


def test_the_other_leads_at_once_after_the_first_is_gone(replicas: tuple[Replica, Replica]) -> None:
    first, second = replicas
    first.step()
    epoch = first.leadership.epoch
    first.close()
    assert second.step()
    assert second.leadership.epoch == (epoch or 0) + 1


def test_a_change_of_a_deposed_leader_is_refused_though_it_believes_to_lead(
    replicas: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = replicas
    first.step()
    monkeypatch.setattr(first.engine, "leads", lambda: True)
    first.leadership._session.disconnect()
    wait_until(lambda: takes_over(second))
    with pytest.raises(NotLeadingError), first.store.transaction() as tx:
        tx.save_fact("late", "1")
    with second.store.snapshot() as tx:
        assert tx.fact("late") is None


def test_a_leader_that_is_silent_loses_its_lock_and_its_open_change(replicas: tuple[Replica, Replica]) -> None:
    first, second = replicas
    first.step()
    began = time.monotonic()
    with pytest.raises(StoreError), first.store.transaction() as tx:  # noqa: PT012 - the change is open all the time
        tx.save_fact("half", "1")
        while not second.leadership.leads():  # as in a process that is paused here
            second.step()
            time.sleep(0.1)
        took = time.monotonic() - began
        assert not first.leadership.leads(), "it stops by itself before another begins"
        tx.save_fact("half", "2")
    assert 4.0 < took < 10.0, "the takeover takes ten seconds at most"
    with second.store.snapshot() as tx:
        assert tx.fact("half") is None


def test_one_that_is_paused_while_it_takes_over_keeps_the_lock_from_nobody(replicas: tuple[Replica, Replica]) -> None:
    first, second = replicas
    first.leadership._session.open()
    from pyrometer_alerting.incidents.storage.leadership import LEADER_LOCK

    first.leadership._session.execute("SELECT pg_advisory_lock(?)", (LEADER_LOCK,))
    first.leadership._session.script("BEGIN; UPDATE leader SET epoch = epoch + 1")  # and is silent from here on
    began = time.monotonic()
    while not second.step():
        assert time.monotonic() - began < 10.0
        time.sleep(0.1)


def test_a_change_that_stays_open_past_its_time_keeps_nobody_from_leading(
    replicas: tuple[Replica, Replica], postgres: Pair
) -> None:
    """Seen twice in some fifty pauses: the server had not ended the open transaction of a paused leader after 180 s."""
    import psycopg

    from pyrometer_alerting.incidents.storage.postgresql import SERVER_SECONDS

    first, second = replicas
    assert first.step()
    first.leadership._session.disconnect()
    with (
        contextlib.closing(psycopg.connect(postgres.url, application_name="pyrometer-alerting")) as forgotten,
        contextlib.closing(psycopg.connect(postgres.url, application_name="psql", autocommit=True)) as others,
    ):
        others.execute("SELECT 1")
        forgotten.execute("SET idle_in_transaction_session_timeout = 0")
        began = time.monotonic()
        forgotten.execute("UPDATE leader SET since = 0")
        running = threading.Thread(target=second.leadership.run)
        running.start()
        wait_until(second.leadership.leads, seconds=30)
        assert SERVER_SECONDS <= time.monotonic() - began < 10, "not before its time: it may only be slow"
        second.leadership.stop()
        running.join(10)
        others.execute("SELECT 1")  # another program's session is silent for as long, and not ours to end


def test_a_killed_standby_holds_no_lock(replicas: tuple[Replica, Replica], postgres: Pair) -> None:
    """Its session waits for a change that is open, holds the lock, and nobody is there to hear its answer."""
    import psycopg

    from pyrometer_alerting.incidents.storage.leadership import LEADER_LOCK

    first, second = replicas
    assert first.step()
    first.leadership._session.disconnect()
    with psycopg.connect(postgres.url) as open_change, psycopg.connect(postgres.url, autocommit=True) as other:
        open_change.execute("SELECT epoch FROM leader WHERE id = 1 FOR UPDATE")
        waiting = threading.Thread(target=failing, args=(second.leadership.step,))
        waiting.start()
        waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        wait_until(lambda: other.execute(waits).fetchone() == (1,))
        time.sleep(0.5)
        second.leadership._session.sever()
        waiting.join(10)
        wait_until(lambda: _is_free(other, LEADER_LOCK), seconds=5)


def _is_free(db: Any, lock: int) -> bool:
    """Take the lock for a moment."""
    ((free,),) = db.execute("SELECT pg_try_advisory_lock(%s)", (lock,)).fetchall()
    if free:
        db.execute("SELECT pg_advisory_unlock(%s)", (lock,))
    return bool(free)


def failing(step: Callable[[], None]) -> None:
    """Let a step fail."""
    with contextlib.suppress(Exception):
        step()


def test_a_post_that_a_deposed_leader_made_anyway_is_found_and_its_old_edit_overwritten(
    replicas: tuple[Replica, Replica],
) -> None:
    first, second = replicas
    first.step()
    with first.store.transaction() as tx:
        tx.save_incident(training_incident(id="stray", key="stray"), START)
        tx.outbox.request("stray", START, START)
        posting = post_of(tx.outbox.root("stray"))
        tx.outbox.start(posting.op_id, START, "C1")
    first.leadership._session.disconnect()
    wait_until(lambda: takes_over(second))
    with second.store.transaction() as tx:
        tx.outbox.finish(posting, "C1", "2.0", "shown", START + 20)
    with first.store.transaction(aside=True) as tx:
        tx.outbox.note_stray(posting, "3.0", START + 30)
    with second.store.transaction() as tx:
        (check,) = [each for each in tx.outbox.duplicate_checks() if each.op_id == posting.op_id]
        assert (check.channel, check.ts, check.due) == ("C1", "2.0", START + 30)
        shown = post_of(tx.outbox.root("stray"))
        assert shown.state == "done"
        tx.outbox.note_stray(shown, "2.0", START + 40)
        again = post_of(tx.outbox.root("stray"))
        assert (again.state, again.shown) == ("ready", None)


def test_a_server_that_is_away_is_one_line_without_the_password() -> None:
    pytest.importorskip("psycopg")
    from pyrometer_alerting.incidents.storage.postgresql import PostgreSQL, Server

    engine = PostgreSQL(Server("postgresql://me:s3cr3t@127.0.0.1:1/alerting?connect_timeout=1", "s3cr3t"), epoch=1)
    with pytest.raises(StoreError) as raised, Store(engine).transaction():
        pass
    assert "\n" not in str(raised.value)
    assert "s3cr3t" not in str(raised.value)
    assert engine.name == "postgresql://127.0.0.1/alerting"


@pytest.mark.parametrize("url", ["postgresql://me:s3cr3t@host/db?nonsense=s3cr3t", "postgresql://me:s3cr3t@[host/db"])
def test_an_address_that_is_none_is_not_repeated(url: str) -> None:
    pytest.importorskip("psycopg")
    from pyrometer_alerting.incidents.storage.postgresql import Server

    with pytest.raises(ValueError, match="expected an address") as raised:
        Server(url)
    assert "s3cr3t" not in str(raised.value)


def test_text_that_the_server_cannot_hold_is_kept_without_it(replicas: tuple[Replica, Replica]) -> None:
    first, _ = replicas
    first.step()
    with first.store.transaction() as tx:
        tx.save_fact("nul", "a\0b % ?")
        assert tx.fact("nul") == "a\ufffdb % ?"


def test_without_psycopg_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyrometer_alerting.app import shared
    from pyrometer_kit.errors import UsageError

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(shared.importlib, "import_module", missing)
    with pytest.raises(UsageError, match=r"pip install 'pyrometer-alerting\[postgresql\]'"):
        shared.server_of("postgresql://me@host/db", "")
