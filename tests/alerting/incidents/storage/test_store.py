"""Retention: what the store deletes and what it keeps, and that the file shrinks."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alerting_fakes import START, training_incident

from pyrometer_alerting.incidents.storage.store import Store, StoreError
from pyrometer_alerting.model.incident import Incident, to_json


def test_the_file_gives_space_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    with store.transaction() as tx:
        for number in range(300):
            tx.save_incident(_large(number), START)
    file = tmp_path / "s" / "alerting.sqlite3"
    store.shrink()  # what is in the log goes into the file
    before = file.stat().st_size
    with store.transaction() as tx:
        tx.forget(START + 1)
    store.shrink()
    assert file.stat().st_size < before / 3
    store.close()


def _large(number: int) -> Incident:
    return training_incident(id=str(number), key=str(number), resolved_at=START, note="x" * 2000)


def test_a_worker_that_is_late_at_the_end_finds_a_closed_store_and_no_traceback(tmp_path: Path) -> None:
    store = Store(tmp_path / "late")
    store.close()
    with pytest.raises(StoreError, match="closed"), store.transaction():
        pass


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_of_an_earlier_release_is_taken_over(tmp_path: Path, version: int) -> None:
    Store(tmp_path / "s").close()
    with closing(sqlite3.connect(tmp_path / "s" / "alerting.sqlite3")) as old:
        old.execute("INSERT INTO incident VALUES (1, 'incident-1', 'k', 1, 0, ?)", (to_json(training_incident()),))
        old.execute("INSERT INTO incident_key VALUES ('k', 'incident-1')")
        old.execute("DROP INDEX outbox_due")
        old.execute("ALTER TABLE outbox DROP COLUMN outlet")
        if version == 1:
            old.execute("ALTER TABLE outbox DROP COLUMN target")
            old.execute("ALTER TABLE alert DROP COLUMN doubted")
            for table in ("incident_key", "sweep", "audit"):
                old.execute(f"DROP TABLE {table}")
            old.execute("CREATE INDEX incident_by_key ON incident (key, number)")
        old.execute(f"PRAGMA user_version = {version}")
        old.commit()
    store = Store(tmp_path / "s")
    with store.transaction() as tx:
        found = tx.latest_incident("k")
        assert found is not None
        assert found.run == "llama-70b"
        tx.outbox.request("incident-1", 0.0, 0.0)
        assert tx.outbox.due()[0].target == ""
        assert tx.parked_alerts() == []
    store.shrink()
    store.close()
