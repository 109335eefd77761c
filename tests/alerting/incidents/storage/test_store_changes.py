"""Changes and views of the store: what a reader sees, what a probe waits for, what is kept for how long."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from alerting_fakes import START, training_incident

from pyrometer_alerting.incidents.storage import store as module
from pyrometer_alerting.incidents.storage.store import KEPT_RESOLVED_SECONDS, LOST_FACT, REFILL_FACT, Store, StoreError

DAY = 86400.0


def broken_header(path: Path) -> None:
    path.write_bytes(b"\xa5" * path.stat().st_size)


def test_a_view_does_not_change_while_it_is_looked_at_and_the_next_one_is_new(store: Store) -> None:
    with store.transaction() as tx:
        tx.save_fact("a", "1")
    with store.snapshot() as view:
        assert view.fact("a") == "1"
        with store.transaction() as tx:
            tx.save_fact("a", "2")
        assert view.fact("a") == "1"
    with store.snapshot() as view:
        assert view.fact("a") == "2"


def test_a_view_writes_nothing(store: Store) -> None:
    with pytest.raises(StoreError, match=r"read-?only"), store.snapshot() as view:
        view.save_fact("a", "1")
    with store.snapshot() as view:
        assert view.fact("a") is None


def test_a_view_of_a_broken_file_is_an_error_and_replaces_nothing(tmp_path: Path) -> None:
    """A page must not wait for that, and whoever changes something next does it."""
    store = Store(tmp_path)
    store._database._disconnect()
    broken_header(store._database.path)
    store._database.reader = sqlite3.connect(store._database.path, isolation_level=None)
    with pytest.raises(StoreError), store.snapshot() as view:
        view.fact("a")
    assert list(tmp_path.glob("*.broken-*")) == []
    store.close()


def test_a_broken_file_is_replaced_when_space_is_given_back(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store._database._disconnect()
    broken_header(store._database.path)
    store._database.writer = sqlite3.connect(store._database.path, isolation_level=None)
    with pytest.raises(StoreError, match="not a database"):
        store.shrink()
    assert len([path for path in tmp_path.glob("*.broken-*") if path.name.endswith("Z")]) == 1
    with store.transaction() as tx:
        assert tx.fact(LOST_FACT) is not None
    store.close()


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_probe_is_written_and_makes_way_for_the_next_change(store: Store) -> None:
    store.probe(START)
    with store.transaction() as tx:
        assert tx.fact("probed_at") == repr(START)
    done = threading.Event()

    def other() -> None:
        with store.transaction() as tx:
            tx.save_fact("a", "1")
        done.set()

    threading.Thread(target=other, daemon=True).start()
    assert done.wait(20), "the first probe kept the lock"


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_probe_does_not_wait_for_a_change_under_way(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    class Busy:
        def acquire(self, timeout: float) -> bool:
            waited.append(timeout)
            return False

    with monkeypatch.context() as patched:
        patched.setattr(store, "_lock", Busy())
        store.probe(START)
    assert len(waited) == 1
    assert 0.0 < waited[0] <= 0.5, "half of the second that a page may take"
    with store.transaction() as tx:
        assert tx.fact("probed_at") is None


def test_what_is_over_is_kept_for_two_weeks(store: Store) -> None:
    """The weekly digest compares two weeks."""
    now = START + 60 * DAY
    with store.transaction() as tx:
        for name, age in (("young", 14 * DAY - 60), ("edge", 14 * DAY), ("old", 14 * DAY + 60)):
            tx.save_incident(training_incident(id=name, key=name, resolved_at=START), now - age)
        tx.forget(now - KEPT_RESOLVED_SECONDS)
        assert [incident.id for incident in tx.incidents()] == ["edge", "young"]


def test_what_was_lost_is_read_by_the_names_that_earlier_releases_wrote(tmp_path: Path) -> None:
    Store(tmp_path).close()
    broken_header(tmp_path / "alerting.sqlite3")
    store = Store(tmp_path)
    with store.transaction() as tx:
        assert (tx.fact("lost"), tx.fact("refill")) == (tx.fact(LOST_FACT), tx.fact(REFILL_FACT))
        assert tx.fact("refill") == "due"
        assert set(json.loads(tx.fact("lost") or "")) == {"why", "kept", "since"}
    store.close()


def test_a_store_that_was_closed_or_refused_keeps_no_file_open(tmp_path: Path) -> None:
    def opened() -> int:
        return len([one for one in Path("/proc/self/fd").iterdir() if str(tmp_path) in os.path.realpath(one)])

    store = Store(tmp_path)
    store.back_up(START)
    assert opened() >= 4
    store.close()
    assert opened() == 0
    with sqlite3.connect(tmp_path / "alerting.sqlite3") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreError, match="another version") as refused:
        Store(tmp_path)
    assert opened() == 0, refused


def test_a_change_after_one_that_failed_is_made(store: Store) -> None:
    for query in ("SELECT 1 FROM missing", "ROLLBACK"):  # SQLite itself rolls back when a disk is full
        with suppress(StoreError), store.transaction() as tx:
            tx.save_fact("a", query)
            tx._db.execute(query)
            raise StoreError("after it")
        with store.transaction() as tx:
            assert tx.fact("a") is None
    names = {"NotLeadingError", "Store", "StoreError", "Transaction"}
    assert names == {name for name in module.__all__ if hasattr(module, name)}
