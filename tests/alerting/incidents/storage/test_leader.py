"""The lock of PostgreSQL and its holder: who has it, for how long, and what is known of the database meanwhile."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from alerting_fakes import wait_until

from pyrometer_alerting.incidents.storage.store import StoreError
from pyrometer_simulator.postgres import Pair

if TYPE_CHECKING:
    from pyrometer_alerting.incidents.storage.leadership import Leadership


@pytest.fixture
def leaders(postgres: Pair) -> Iterator[list[Leadership]]:
    from pyrometer_alerting.incidents.storage.leadership import Leadership
    from pyrometer_alerting.incidents.storage.postgresql import Server

    made = [Leadership(Server(postgres.url)) for _ in range(2)]
    yield made
    for each in made:
        each._session.disconnect()


def ask(pair: Pair, statement: str) -> str:
    return pair.primary.ask(statement, "alerting")


def take(leader: Leadership) -> None:
    """Take the lock as soon as the server has noticed that its last holder is gone."""
    wait_until(lambda: leader.step() or leader.epoch is not None, seconds=20)


class BootClock:
    """Stands for the clock that goes on while the machine sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from pyrometer_alerting.incidents.storage import leadership

        self.now = 1000.0
        monkeypatch.setattr(leadership, "_now", lambda: self.now)


def test_the_lease_is_four_seconds_from_the_begin_of_the_last_write(
    leaders: list[Leadership], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, leader = BootClock(monkeypatch), leaders[0]
    assert not leader.leads()
    take(leader)
    clock.now += 3.999
    assert leader.leads()
    clock.now += 0.001
    assert not leader.leads(), "a second before the server ends the silent session"
    leader.step()
    assert leader.leads()

    def slow(*_: object) -> None:
        clock.now += 3.0

    monkeypatch.setattr(leader, "_beat", slow)
    leader.step()
    clock.now += 1.0
    assert not leader.leads(), "the server may have heard of it at the begin of those three seconds"


def test_a_take_over_that_takes_long_counts_from_its_begin(
    leaders: list[Leadership], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, leader = BootClock(monkeypatch), leaders[0]

    def slow() -> None:
        clock.now += 4.0

    monkeypatch.setattr(leader, "_compare", slow)
    take(leader)
    assert leader.epoch is not None
    assert not leader.leads()


def test_a_term_has_the_next_number_and_its_start(leaders: list[Leadership], postgres: Pair) -> None:
    first, second = leaders
    take(first)
    assert first.epoch == int(ask(postgres, "SELECT epoch FROM leader"))
    assert abs(time.time() - float(ask(postgres, "SELECT since FROM leader"))) < 60
    second.step()
    assert second.epoch is None
    first._session.disconnect()
    take(second)
    assert second.epoch == (first.epoch or 0) + 1
    assert ask(postgres, "SELECT count(*) FROM leader") == "1"


def test_the_lock_is_ours_alone(leaders: list[Leadership], postgres: Pair) -> None:
    take(leaders[0])
    held = ask(postgres, "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks WHERE locktype = 'advisory'")
    assert int(held) == 0x5079726F0002, "two releases that differ here lead both"


@pytest.mark.parametrize("setting", ["idle_session_timeout", "idle_in_transaction_session_timeout"])
def test_a_silent_session_is_ended_after_five_seconds(leaders: list[Leadership], setting: str) -> None:
    leaders[0]._session.open()
    assert leaders[0]._session.execute(f"SHOW {setting}").fetchone() == ("5s",)


def test_a_session_that_is_open_is_used_again_and_a_lost_one_replaced(leaders: list[Leadership]) -> None:
    session = leaders[0]._session

    def number() -> int:
        return int(session.open().execute("SELECT pg_backend_pid()").fetchone()[0])

    first = number()
    assert number() == first
    assert session._db is not None
    session._db.close()
    assert number() != first


def test_the_beat_is_the_time_and_never_goes_back(
    leaders: list[Leadership], postgres: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyrometer_alerting.incidents.storage import leadership

    now = time.time() + 1000
    monkeypatch.setattr(leadership.time, "time", lambda: now)
    leader = leaders[0]
    take(leader)
    leader.step()
    assert float(ask(postgres, "SELECT at FROM beat")) == now
    now -= 3600
    leader.step()
    assert float(ask(postgres, "SELECT at FROM beat")) == pytest.approx(now + 3600.001, abs=1e-6)
    leader.step()
    assert float(ask(postgres, "SELECT at FROM beat")) == pytest.approx(now + 3600.002, abs=1e-6)
    assert leader.loss is None, "a clock that was set back is no older database"


def test_an_older_database_ends_the_term_and_is_noted_by_the_next(leaders: list[Leadership], postgres: Pair) -> None:
    leader = leaders[0]
    take(leader)
    leader.step()
    before = float(ask(postgres, "SELECT at FROM beat"))
    ask(postgres, "UPDATE beat SET at = at - 3600")  # as after going back to a copy while the service runs
    with pytest.raises(StoreError, match="older than it was"):
        leader.step()
    leader._lost("as run does")
    assert leader.loss is None
    take(leader)
    assert leader.loss is not None
    assert leader.loss.since == pytest.approx(before - 3600, abs=1e-3)
    assert (leader.loss.kept, leader.loss.facts) == ("", {})
    assert "a copy was put back" in leader.loss.why
    leader.step()  # goes on from there


def test_an_older_database_is_known_by_what_the_last_leader_wrote(leaders: list[Leadership], postgres: Pair) -> None:
    first, second = leaders
    take(first)
    first.step()
    second.step()  # is not the leader, and sees that
    first._session.disconnect()
    ask(postgres, "UPDATE beat SET at = at - 0.5")  # as on a standby that lagged half a second
    take(second)
    assert second.loss is not None
    assert second.loss.why.endswith("or a standby that lagged was promoted")


def test_an_older_database_is_noted_by_who_saw_it_before_its_leader_went(
    leaders: list[Leadership], postgres: Pair
) -> None:
    first, second = leaders
    take(first)
    first.step()
    second.step()
    ask(postgres, "UPDATE beat SET at = at - 3600")
    second.step()  # still waits for the lock
    with pytest.raises(StoreError, match="older than it was"):
        first.step()
    first._lost("as run does")
    take(second)
    assert second.loss is not None
    assert "a copy was put back" in second.loss.why


def test_a_database_that_went_on_is_no_older_one(leaders: list[Leadership], postgres: Pair) -> None:
    first, second = leaders
    take(first)
    first.step()
    second.step()
    first.step()
    first._session.disconnect()
    take(second)
    assert second.loss is None
    assert first.loss is None
    second.step()
    assert second.leads()


def test_a_loss_of_a_clock_that_was_ahead_begins_now(leaders: list[Leadership], postgres: Pair) -> None:
    first, second = leaders
    take(first)
    ask(postgres, "UPDATE beat SET at = at + 7200")
    second.step()
    first._session.disconnect()
    ask(postgres, "UPDATE beat SET at = at - 3600")
    take(second)
    assert second.loss is not None
    assert second.loss.since <= time.time()
    second._session.disconnect()
    ask(postgres, "UPDATE beat SET at = 0")


def test_a_standby_waits_for_the_tables(postgres: Pair) -> None:
    from pyrometer_alerting.incidents.storage.leadership import LEADER_LOCK, Leadership
    from pyrometer_alerting.incidents.storage.postgresql import Server, Session

    postgres.primary.ask("CREATE DATABASE empty")
    server = Server(postgres.url.replace("/alerting", "/empty"))
    holder = Session(server)
    holder.open().execute("SELECT pg_advisory_lock(?)", (LEADER_LOCK,))
    leader = Leadership(server)
    leader.step()
    assert leader.epoch is None
    holder.close()
    take(leader)
    assert leader.epoch == 1
    leader._session.disconnect()


def test_a_session_that_hangs_while_it_leads_is_cut(leaders: list[Leadership], monkeypatch: pytest.MonkeyPatch) -> None:
    clock, leader = BootClock(monkeypatch), leaders[0]
    leader.check()  # before there is any session
    take(leader)
    leader.check()
    leader.step()
    clock.now += 4.0
    leader.check()
    import psycopg

    with pytest.raises(psycopg.OperationalError):
        leader.step()


def test_a_standby_cuts_a_call_that_takes_too_long(leaders: list[Leadership], monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    from pyrometer_alerting.incidents.storage import postgresql

    monkeypatch.setattr(postgresql, "STUCK_SECONDS", 0.2)
    session = leaders[0]._session.open()
    failed: list[BaseException] = []

    def hang() -> None:
        try:
            session.execute("SELECT pg_sleep(30)")
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=hang)
    thread.start()
    wait_until(lambda: bool(leaders[0].check() or failed), seconds=20)
    thread.join(20)


def test_the_thread_leads_until_it_is_stopped_and_lets_the_lock_go(
    leaders: list[Leadership], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, second = leaders
    thread = threading.Thread(target=first.run)
    thread.start()
    wait_until(first.leads, seconds=20)
    epoch, confirmed = first.epoch, first._confirmed
    wait_until(lambda: first._confirmed > confirmed, seconds=20)
    assert first.epoch == epoch
    second.step()
    assert second.epoch is None
    first.stop()
    thread.join(20)
    assert not thread.is_alive()
    assert (first.epoch, first.trouble, first.leads()) == (None, "", False)
    take(second)
    assert second.leads()
    assert f"this replica is the leader, term {epoch}" in caplog.text
    assert "no more" not in caplog.text


def test_the_thread_says_once_what_is_wrong_and_goes_on(
    leaders: list[Leadership], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyrometer_alerting.incidents.storage import leadership

    monkeypatch.setattr(leadership, "TRY_SECONDS", 0.01)
    leader, steps, outcomes = leaders[0], [0], ["disk is full", "disk is full", "", "gone", "", "gone"]

    def step() -> None:
        if steps[0] == len(outcomes):
            leader.stop()
            return
        steps[0] += 1
        if outcomes[steps[0] - 1]:
            raise StoreError(outcomes[steps[0] - 1])

    monkeypatch.setattr(leader, "step", step)
    leader.run()
    assert [record.message for record in caplog.records] == ["disk is full", "gone", "gone"], "again after an answer"
    assert steps[0] == len(outcomes)


def test_a_deposed_leader_logs_it_closes_its_session_and_keeps_running(
    leaders: list[Leadership], caplog: pytest.LogCaptureFixture
) -> None:
    leader = leaders[0]
    take(leader)
    db = leader._session._db
    leader._lost("the network")
    assert (leader.epoch, leader.trouble) == (None, "the network")
    assert [record.message for record in caplog.records] == ["this replica is no longer the leader: the network"]
    assert db is not None
    assert db.closed
    take(leader)
    assert leader.leads()


def test_it_looks_twice_a_second_for_the_lock_and_writes_once_a_second(
    leaders: list[Leadership], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    leader = leaders[0]

    def wait(seconds: float) -> Any:
        waits.append(seconds)
        leader.epoch = 1 if leader.epoch is None else None
        return len(waits) > 1 and leader.stop()

    monkeypatch.setattr(leader._stopping, "wait", wait)
    monkeypatch.setattr(leader, "step", lambda: None)
    leader.run()
    assert waits == [0.5, 1.0]
