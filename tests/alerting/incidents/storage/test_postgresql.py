"""PostgreSQL's connections, sessions and changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from alerting_fakes import wait_until

from pyrometer_alerting.incidents.storage.engine import NotLeadingError, StoreError
from pyrometer_simulator.postgres import Pair

psycopg = pytest.importorskip("psycopg")

from pyrometer_alerting.incidents.storage import postgresql  # noqa: E402
from pyrometer_alerting.incidents.storage.postgresql import PostgreSQL, Server, Session, make_tables  # noqa: E402


@pytest.fixture
def server(postgres: Pair) -> Server:
    made = Server(postgres.url)
    session = Session(made).open()
    make_tables(session)
    session.close()
    return made


@pytest.fixture
def session(server: Server) -> Iterator[Session]:
    made = Session(server)
    yield made
    made.close()


@pytest.fixture
def engine(server: Server, postgres: Pair) -> Iterator[PostgreSQL]:
    made = PostgreSQL(server, epoch=int(postgres.primary.ask("SELECT epoch FROM leader", "alerting")))
    yield made
    made.close()


def test_a_server_that_is_too_old_is_refused_and_its_connection_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch, postgres: Pair
) -> None:
    assert postgresql.OLDEST_VERSION == 14, "the first with idle_session_timeout"
    version = int(postgres.primary.ask("SHOW server_version_num"))
    monkeypatch.setattr(postgresql, "OLDEST_VERSION", version / 10_000)
    server.connect().close()
    monkeypatch.setattr(postgresql, "OLDEST_VERSION", version / 10_000 + 0.001)
    made: list[Any] = []
    connect = psycopg.connect
    monkeypatch.setattr(psycopg, "connect", lambda *a, **k: made.append(connect(*a, **k)) or made[-1])
    with pytest.raises(StoreError, match="or newer is required"):
        server.connect()
    assert made[0].closed


@pytest.mark.parametrize(("set_to", "used"), [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")])
def test_a_commit_is_durable_whatever_synchronous_commit_says(postgres: Pair, set_to: str, used: str) -> None:
    database = Server(f"{postgres.url}?options=-csynchronous_commit%3D{set_to}")
    db = database.connect("lock_timeout = 1234", "statement_timeout = 5678")
    with db:
        assert db.autocommit
        for name, value in (("synchronous_commit", used), ("lock_timeout", "1234ms"), ("statement_timeout", "5678ms")):
            assert db.execute(f"SHOW {name}").fetchone() == (value,)


# --- a session


def test_a_session_ends_what_it_leaves_open_and_waits_for_no_lock_for_ever(session: Session) -> None:
    session.open()
    for name, value in (("idle_in_transaction_session_timeout", "5s"), ("lock_timeout", "10s")):
        assert session.execute(f"SHOW {name}").fetchone() == (value,)


def test_a_session_is_kept_and_made_anew_when_it_was_lost(session: Session) -> None:
    first = session.open()._db
    assert session.open()._db is first
    assert first is not None
    first.close()
    assert session.open()._db is not first
    session.close()
    with pytest.raises(StoreError, match="closed"):
        session.open()
    with pytest.raises(StoreError, match="closed"):
        session.execute("SELECT 1")


def test_percent_signs_and_question_marks_are_what_they_were(session: Session) -> None:
    session.open()
    assert session.execute("SELECT '100 %', ?", ("a\0?%",)).fetchone() == ("100 %", "a\ufffd?%")
    assert session.execute("SELECT ?::bytea", (b"\0",)).fetchone() == (b"\0",)
    session.script("CREATE TEMPORARY TABLE many (a TEXT, b INT)")
    session.executemany("INSERT INTO many VALUES (?, ?)", [("x\0", 1), ("%", 2)])
    assert list(session.execute("SELECT a, b FROM many ORDER BY b")) == [("x\ufffd", 1), ("%", 2)]
    assert session.script("SELECT 1; SELECT 2").fetchone() == (2,), "the answer of the last one"


def test_a_commit_that_rolled_back_is_an_error(session: Session) -> None:
    session.open().script("BEGIN")
    with pytest.raises(psycopg.Error):
        session.execute("SELECT nothing")
    with pytest.raises(StoreError, match=r"^postgresql://127\.0\.0\.1,?.*/alerting: rolled back$"):
        session.commit()
    session.script("BEGIN")
    session.commit()


def test_a_commit_that_no_standby_has_is_an_error_and_the_next_one_is_not(session: Session) -> None:
    session.open()
    raised = "canceling wait for synchronous replication due to user request"
    session.script("BEGIN")
    script = session.script

    def warned(text: str) -> Any:
        if text == "COMMIT":
            script(f"DO $$BEGIN RAISE WARNING '{raised}'; END$$")
        return script(text)

    session.script = warned  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="not replicated"):
        session.commit()
    session.script = script  # type: ignore[method-assign]
    session.script("DO $$BEGIN RAISE WARNING 'something else'; END$$; BEGIN")
    session.commit()


def test_dropping_undoes_what_is_open_and_keeps_a_good_connection(session: Session) -> None:
    session.drop()  # nothing to do
    db = session.open()._db
    session.script("CREATE TEMPORARY TABLE kept (a INT)")
    session.script("BEGIN; INSERT INTO kept VALUES (1)")
    session.drop()
    assert session._db is db
    assert session.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    session.drop()
    assert session._db is db
    session.script("BEGIN")
    assert db is not None
    with pytest.raises(psycopg.Error):
        session.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    session.drop()
    assert session._db is None


def test_a_call_under_way_can_be_cut_and_nothing_else(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql, "STUCK_SECONDS", 0.3)
    session.sever()  # before there is one
    session.open()
    time.sleep(0.4)
    session.sever_if_stuck()
    assert session.execute("SELECT 1").fetchone() == (1,), "an idle session is not stuck"
    failed: list[float] = []
    began = time.monotonic()

    def hang() -> None:
        try:
            session.execute("SELECT pg_sleep(20)")
        except psycopg.Error:
            failed.append(time.monotonic() - began)

    thread = threading.Thread(target=hang)
    thread.start()
    wait_until(lambda: session.sever_if_stuck() or bool(failed), seconds=15)
    thread.join(15)
    assert failed[0] > 0.3
    assert session._busy_since == 0.0
    assert session.open().execute("SELECT 1").fetchone() == (1,)


def test_closing_lets_a_call_under_way_fail(session: Session) -> None:
    session.open()
    failed: list[Exception] = []

    def hang() -> None:
        try:
            session.execute("SELECT pg_sleep(20)")
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=hang)
    thread.start()
    wait_until(lambda: bool(session._busy_since), seconds=10)
    time.sleep(0.1)
    session.close()
    thread.join(10)
    assert failed


def test_closing_an_idle_session_closes_its_connection(session: Session) -> None:
    db = session.open()._db
    session.close()
    assert db is not None
    assert db.closed
    assert session._db is None


# --- changes


def test_only_the_leader_of_this_term_changes_anything(engine: PostgreSQL, server: Server, postgres: Pair) -> None:
    db = engine.begin()
    db.execute("INSERT INTO fact (name, value) VALUES ('by', 'us') ON CONFLICT (name) DO NOTHING")
    engine.commit()
    for other in (PostgreSQL(server), PostgreSQL(server, epoch=engine.epoch, leads=lambda: False),
                  PostgreSQL(server, epoch=(engine.epoch or 0) + 1)):  # fmt: skip
        with pytest.raises(NotLeadingError, match="another replica is the leader"):
            other.begin()
        other.begin(aside=True)  # as a command does
        other.rollback()
        other.close()
    assert postgres.primary.ask("SELECT value FROM fact WHERE name = 'by'", "alerting") == "us"


def test_a_refused_change_leaves_nothing_locked(engine: PostgreSQL, server: Server) -> None:
    other = PostgreSQL(server, epoch=(engine.epoch or 0) + 1)
    with pytest.raises(NotLeadingError):
        other.begin()
    began = time.monotonic()
    engine.begin()
    engine.rollback()
    assert time.monotonic() - began < 3.0, "the leader's row is free"
    other.close()


def test_a_change_waits_for_the_one_under_way(engine: PostgreSQL, server: Server) -> None:
    beside = PostgreSQL(server)
    engine.begin()
    done = threading.Event()

    def change() -> None:
        beside.begin(aside=True)
        beside.commit()
        done.set()

    thread = threading.Thread(target=change)
    thread.start()
    assert not done.wait(0.5)
    engine.commit()
    assert done.wait(10)
    thread.join()
    beside.close()


def test_a_change_that_is_undone_is_not_there(engine: PostgreSQL) -> None:
    engine.begin().execute("INSERT INTO fact (name, value) VALUES ('undone', '1')")
    engine.rollback()
    view = engine.view()
    assert view.execute("SELECT value FROM fact WHERE name = 'undone'").fetchone() is None
    engine.end_view()


def test_a_view_shows_one_moment_and_writes_nothing(engine: PostgreSQL, postgres: Pair) -> None:
    view = engine.view()
    count = view.execute("SELECT count(*) FROM slack_call").fetchone()
    postgres.primary.ask("INSERT INTO slack_call VALUES ('x', 1)", "alerting")
    assert view.execute("SELECT count(*) FROM slack_call").fetchone() == count
    with pytest.raises(psycopg.Error, match="read-only"):
        view.execute("DELETE FROM slack_call")
    engine.end_view()
    view = engine.view()
    assert view.execute("SELECT count(*) FROM slack_call").fetchone() == (count[0] + 1,)
    engine.end_view()


def test_a_view_that_cannot_begin_is_dropped(engine: PostgreSQL) -> None:
    session = engine._sessions[postgresql.READER].open()
    session.script("BEGIN")  # left open by a failure
    session.script("SELECT 1")
    with pytest.raises(psycopg.Error):
        engine.view()
    engine.view()
    engine.end_view()


def test_a_letter_is_durable_when_it_is_posted_and_its_rows_come_back(engine: PostgreSQL, postgres: Pair) -> None:
    added = engine.post("INSERT INTO inbox (box, received_at, body) VALUES (?, ?, ?) RETURNING box", ("b", 1.0, b"x"))
    assert added == [("b",)]
    assert postgres.primary.ask("SELECT count(*) FROM inbox WHERE box = 'b'", "alerting") == "1"
    assert engine.post("DELETE FROM inbox WHERE box = 'b'") == []
    db = engine._sessions[postgresql.POST]._db
    assert db is not None
    assert db.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    with pytest.raises(psycopg.Error):
        engine.post("SELECT nothing")
    assert engine._sessions[postgresql.POST]._db is None
    assert engine.post("SELECT 1") == [(1,)]


def test_a_probe_writes_without_a_change_and_moves_no_time(engine: PostgreSQL, postgres: Pair) -> None:
    before = postgres.primary.ask("SELECT at, xmin FROM beat", "alerting")
    engine.begin()
    assert engine.probe() is True
    engine.rollback()
    after = postgres.primary.ask("SELECT at, xmin FROM beat", "alerting")
    assert before.split("|")[0] == after.split("|")[0]
    assert before != after, "something was written"


def test_a_server_is_not_ours_to_replace(engine: PostgreSQL) -> None:
    assert engine.is_broken(psycopg.DatabaseError("invalid page")) is False
    with pytest.raises(StoreError, match="invalid page"):
        engine.renew("invalid page")
    assert engine.backed_up_at() is None
    assert engine.folder is None
    engine.check()
    engine.shrink()
    engine.back_up(0.0)
    engine.open()
    assert engine.leads() is True


def test_a_leader_stops_a_second_before_the_server_lets_another_begin() -> None:
    assert postgresql.SERVER_SECONDS - postgresql.LEASE_SECONDS >= 1.0


def test_a_stuck_call_of_any_session_is_cut_and_closing_closes_all(
    engine: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "STUCK_SECONDS", 0.1)
    engine.view()
    engine.post("SELECT 1")
    engine.begin()
    sessions = list(engine._sessions.values())
    assert len(sessions) == 3
    for one in sessions:
        one._busy_since = time.monotonic() - 1
    engine.sever_stuck()
    for one in sessions:
        one._busy_since = 0.0
        with pytest.raises(psycopg.Error):
            one.execute("SELECT 1")
    engine.close()
    assert all(one._closed and one._db is None for one in sessions)


# --- tables


def test_tables_are_made_once_and_those_of_a_newer_release_refused(server: Server, postgres: Pair) -> None:
    session = Session(server).open()
    make_tables(session)
    make_tables(session)
    assert session.execute("SELECT value FROM fact WHERE name = 'schema'").fetchone() == (postgresql._VERSION,)
    newer = int(postgresql._VERSION) + 1
    session.execute("UPDATE fact SET value = ? WHERE name = 'schema'", (str(newer),))
    with pytest.raises(StoreError, match=f"schema {newer}, this is {postgresql._VERSION}"):
        make_tables(session)
    session.execute("UPDATE fact SET value = ? WHERE name = 'schema'", (str(newer - 2),))
    make_tables(session)
    session.execute("UPDATE fact SET value = ? WHERE name = 'schema'", (postgresql._VERSION,))
    assert session._db is not None
    assert not session._db.info.transaction_status
    session.close()


def test_tables_that_cannot_be_made_leave_nothing_open(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(server).open()
    monkeypatch.setattr(postgresql, "for_postgresql", lambda: "CREATE TABLE half (a INT); SELECT nothing;")
    with pytest.raises(psycopg.Error):
        make_tables(session)
    assert session.open().execute("SELECT to_regclass('half')").fetchone() == (None,)
    session.close()
