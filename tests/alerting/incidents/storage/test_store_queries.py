"""The store alone: each query returns exactly its own rows, and each change leaves its neighbours as they were."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from alerting_fakes import START, alert, training_incident

from pyrometer_alerting.incidents.storage.schema import SCHEMA_VERSION
from pyrometer_alerting.incidents.storage.store import Store, StoreError, Transaction
from pyrometer_alerting.incidents.storage.transaction import MAX_LISTED


@pytest.fixture
def tx(store: Store) -> Iterator[Transaction]:
    with store.transaction() as opened:
        yield opened


def test_a_delivery_is_repeated_if_its_groups_last_one_was_the_same(tx: Transaction) -> None:
    assert [tx.is_repeated("g", digest, START) for digest in ("a", "a", "b", "a")] == [False, True, False, False]
    assert not tx.is_repeated("other", "a", START)
    tx.forget_deliveries()
    assert not tx.is_repeated("g", "a", START)


def test_an_alert_is_known_by_its_last_state(tx: Transaction) -> None:
    assert tx.known_alert("f1") == (None, 0.0)
    tx.save_alert(alert(), None, START)
    tx.save_alert(alert(fingerprint="f2"), None, START + 1)
    tx.save_alert(alert(firing=False), None, START + 5)
    known, seen_at = tx.known_alert("f1")
    assert known is not None
    assert (known.firing, known.starts_at, known.ends_at, seen_at) == (False, START, START + 60, START + 5)
    other, _ = tx.known_alert("f2")
    assert other is not None
    assert other.firing


def test_an_alert_is_parked_until_it_is_released(tx: Transaction) -> None:
    for name in ("f1", "f2", "f3"):
        tx.save_alert(alert(fingerprint=name, firing=False), None, START + 7)
    tx.park_alert(alert())
    tx.park_alert(alert(fingerprint="f2"))
    assert tx.parked_alerts() == [(alert(), START + 7), (alert(fingerprint="f2"), START + 7)]
    tx.release_alert("f1")
    assert [one.fingerprint for one, _ in tx.parked_alerts()] == ["f2"]


def test_an_incident_is_found_by_any_of_its_keys_until_one_is_forgotten(tx: Transaction) -> None:
    tx.save_incident(training_incident(id="one", key="k", keys=("alias",)), START)
    tx.save_incident(training_incident(id="two", key="k"), START)
    tx.save_incident(training_incident(id="three", key="alias", joined_into="two"), START)
    assert (tx.id_of_key("k"), tx.id_of_key("alias"), tx.id_of_key("none")) == ("two", "one", None)
    newest, aliased = tx.latest_incident("k"), tx.latest_incident("alias")
    assert newest is not None
    assert aliased is not None
    assert (newest.id, aliased.id, tx.latest_incident("none")) == ("two", "one", None)
    tx.forget_key("k")
    assert (tx.id_of_key("k"), tx.id_of_key("alias")) == (None, "one")


def test_an_alerts_incident_is_the_one_that_fires(tx: Transaction) -> None:
    tx.save_incident(training_incident(id="fires", key="k1"), START)
    tx.save_incident(training_incident(id="over", key="k2", resolved_at=START), START)
    for name, incident in (("f1", "fires"), ("f2", "over"), ("f3", None)):
        tx.save_alert(alert(fingerprint=name), incident, START)
    assert [tx.incident_of_alert(name) for name in ("f1", "f2", "f3", "f4")] == ["fires", None, None, None]
    tx.move_alert("f3", "fires")
    assert tx.incident_of_alert("f3") == "fires"
    tx.move_alerts("over", "fires")
    assert [tx.incident_of_alert(name) for name in ("f1", "f2", "f3")] == ["fires"] * 3


def test_a_dropped_incident_leaves_the_others(tx: Transaction) -> None:
    for name in ("one", "two"):
        tx.save_incident(training_incident(id=name, key=name), START)
        tx.outbox.request(name, START, START)
    tx.drop_incident("one")
    assert (tx.incident("one"), tx.outbox.root("one")) == (None, None)
    assert tx.incident("two") is not None
    assert tx.outbox.root("two") is not None


def ids(incidents: object) -> list[str]:
    return [incident.id for incident in incidents]  # type: ignore[attr-defined]


def test_incidents_are_listed_firing_first_and_newest_first(tx: Transaction) -> None:
    for name, resolved in (("a", None), ("b", START), ("c", None), ("d", START)):
        tx.save_incident(training_incident(id=name, key=name, resolved_at=resolved), START)
    tx.save_incident(training_incident(id="a", key="a"), START + 9)  # a change gives no new number
    assert ids(tx.incidents()) == ["c", "a", "d", "b"]
    assert ids(tx.incidents(1)) == ["c"]
    assert tx.incident("b") == training_incident(id="b", key="b", resolved_at=START)
    assert tx.incident("none") is None


def test_recent_incidents_fire_or_changed_since(tx: Transaction) -> None:
    for name, resolved, changed in (("a", None, 1.0), ("b", START, 1.0), ("c", START, 5.0), ("d", START, 6.0)):
        tx.save_incident(training_incident(id=name, key=name, resolved_at=resolved), changed)
    tx.save_incident(training_incident(id="e", key="e", joined_into="a"), 9.0)
    assert ids(tx.recent_incidents(5.0)) == ["d", "c", "a"]
    assert ids(tx.recent_incidents(float("inf"))) == ["a"]
    assert ids(tx.pointers("a")) == ["e"]
    assert tx.pointers("b") == []


def test_the_firing_are_counted_by_severity(tx: Transaction) -> None:
    for name, severity, resolved in (("a", "critical", None), ("b", "critical", None), ("c", "info", None),
                                     ("d", "warning", START)):  # fmt: skip
        tx.save_incident(training_incident(id=name, key=name, severity=severity, resolved_at=resolved), START)
    assert tx.firing_count() == {"critical": 2, "warning": 0, "info": 1}


def test_facts_are_read_singly_or_by_prefix(tx: Transaction) -> None:
    for name, value in (("watchdog:c1", "1"), ("watchdog:c2", "2"), ("watchdog", "3"), ("watchdog:c1", "4")):
        tx.save_fact(name, value)
    assert (tx.fact("watchdog:c1"), tx.fact("none")) == ("4", None)
    assert tx.facts("watchdog:") == {"c1": "4", "c2": "2"}
    tx.forget_fact("watchdog:c1")
    assert tx.facts("watchdog") == {":c2": "2", "": "3"}


def test_the_audit_trail_is_newest_first_by_incident_and_by_time(tx: Transaction) -> None:
    rows = [
        (3.0, "ann", "silence", "one", "x"), (1.0, "bob", "refused", "one", ""), (2.0, "cid", "silence", "two", "y"),
        (4.0, "dee", "acknowledge", "one", "z"),
    ]  # fmt: skip
    for row in rows:
        tx.audit(*row)
    assert [row[0] for row in tx.audits()] == [4.0, 3.0, 2.0, 1.0]
    assert [row[0] for row in tx.audits(2)] == [4.0, 3.0]
    assert tx.audits_of("one", ("silence", "refused")) == [rows[1], rows[0]]
    assert tx.audits_of("one", ("none",)) == []
    assert tx.audits_between(2.0, 4.0, ("silence", "acknowledge")) == [rows[2], rows[0]]


def test_lists_have_a_bound_of_their_own(tx: Transaction) -> None:
    for number in range(MAX_LISTED + 1):
        tx.audit(float(number), "ann", "silence", "one", "")
        tx.save_incident(training_incident(id=f"i{number}", key=f"k{number}"), START)
    assert len(tx.audits()) == len(tx.incidents()) == 200


def test_what_is_forgotten_is_over_and_older(tx: Transaction) -> None:
    """At the very time and later it is kept, and so is what still has something to say."""
    for name, resolved, changed in (
        ("old", START, 9.0), ("edge", START, 10.0), ("fires", None, 1.0), ("unsaid", START, 9.0), ("dead", START, 9.0),
    ):  # fmt: skip
        tx.save_incident(training_incident(id=name, key=name, keys=(f"{name}-alias",), resolved_at=resolved), changed)
        tx.outbox.request(name, 1.0, 1.0)
        if name in ("old", "edge", "fires"):
            tx.outbox.finish(tx.outbox.root(name), "C1", "1.0", "", 2.0)  # type: ignore[arg-type]
    tx.outbox.give_up(tx.outbox.root("dead").op_id, "refused")  # type: ignore[union-attr]
    for name, at in (("old-digest", 9.0), ("edge-digest", 10.0), ("open-digest", 9.0)):
        tx.outbox.post_once(name, "text", at)
        if not name.startswith("open"):
            tx.outbox.finish(tx.outbox.root(name), "C1", "1.0", "", at)  # type: ignore[arg-type]
    tx.outbox.reply("fires", "a reply", 1.0)
    tx.outbox.finish(next(one for one in tx.outbox.due() if one.body == "a reply"), "C1", "1.1", "", 1.0)
    for name, firing, at in (("f-old", False, 9.0), ("f-edge", False, 10.0), ("f-fires", True, 1.0)):
        tx.save_alert(alert(fingerprint=name, firing=firing), None, at)
    for group, at in (("old", 9.0), ("edge", 10.0)):
        tx.is_repeated(group, "same", at)
        tx.audit(at, "ann", "silence", group, "")
    tx.forget(10.0)
    assert sorted(ids(tx.incidents())) == ["edge", "fires", "unsaid"]
    assert [tx.outbox.root(name) is not None for name in ("old", "edge", "fires", "unsaid", "dead")] == [
        False, True, True, True, False,
    ]  # fmt: skip
    assert [tx.outbox.root(f"{name}-digest") is not None for name in ("old", "edge", "open")] == [False, True, True]
    assert tx._db.execute("SELECT count(*) FROM outbox WHERE kind = 'reply'").fetchone() == (1,)
    assert [tx.known_alert(name)[0] is not None for name in ("f-old", "f-edge", "f-fires")] == [False, True, True]
    assert [tx.is_repeated(group, "same", 11.0) for group in ("old", "edge")] == [False, True]
    assert [row[3] for row in tx.audits()] == ["edge"]
    keys = [tx.id_of_key(name) for name in ("old", "old-alias", "edge", "edge-alias")]
    assert keys == [None, None, "edge", "edge"]


def test_a_change_that_fails_leaves_nothing_behind(store: Store) -> None:
    def half(query: str) -> None:
        with store.transaction() as tx:
            tx.save_fact("half", "1")
            tx._db.execute(query or "".join(None))  # type: ignore[arg-type]

    with pytest.raises(TypeError):
        half("")
    with pytest.raises(
        StoreError, match=r"alerting\.sqlite3: no such table|/alerting: relation .missing. does not exist"
    ):
        half("SELECT 1 FROM missing")
    with store.transaction() as tx:
        assert tx.fact("half") is None


def test_the_file_is_the_owners_alone_and_safe_against_power_cuts(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "store")
    path = tmp_path / "deep" / "store" / "alerting.sqlite3"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    settings = [
        store._database.writer.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "user_version")
    ]
    assert settings == ["wal", 2, SCHEMA_VERSION]
    assert store._database.writer.execute("PRAGMA auto_vacuum").fetchone()[0] == 2
    with pytest.raises(StoreError, match="another pyrometer-alerting uses this folder"):
        Store(path.parent)
    beside = Store(path.parent, alone=False)
    beside.close()
    store.close()
    Store(path.parent).close()  # the lock went with the first
    Store(path.parent).close()


def test_a_command_beside_the_service_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        Store(tmp_path / "none", alone=False)
    assert not (tmp_path / "none").exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"alerting\.sqlite3: (Not a directory|File exists)"):
        Store(tmp_path / "file" / "store")


@pytest.mark.parametrize(("version", "fails"), [(SCHEMA_VERSION + 1, True), (SCHEMA_VERSION, False)])
def test_a_file_of_a_newer_version_is_refused(tmp_path: Path, version: int, fails: bool) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / "alerting.sqlite3") as db:
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    if fails:
        with pytest.raises(StoreError, match=f"schema {version}, this is {SCHEMA_VERSION}"):
            Store(tmp_path)
    Store(tmp_path).close() if not fails else None
