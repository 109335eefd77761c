"""A disk or a database that cannot take anything for a while: nothing is lost, and readiness says so."""

from __future__ import annotations

import threading

import pytest
from alerting_fakes import body, raw_alert, wait_until
from alerting_running import Running

from pyrometer_alerting.app import trouble
from pyrometer_alerting.app.service import WEBHOOK_PATH
from pyrometer_alerting.incidents import deliveries
from pyrometer_alerting.incidents.storage.store import StoreError
from pyrometer_simulator.slack import FakeSlack


def test_a_store_that_cannot_take_it_now_gets_it_later(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    real = running.service._intake.apply
    monkeypatch.setattr(deliveries, "AGAIN_SECONDS", 0.05)

    def fails(*_: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(running.service._intake, "apply", fails)
    assert running.ask(WEBHOOK_PATH, body(raw_alert()))[0] == 200
    assert running.incidents() == []
    monkeypatch.setattr(running.service._intake, "apply", real)
    wait_until(running.incidents)
    wait_until(lambda: not list(running.service._store.folder.glob("inbox/*")))  # deleted after it is applied


def test_metrics_and_readiness_do_not_wait_for_a_delivery_that_is_being_applied(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trouble, "EVERY_SECONDS", 0.0)
    inside, go_on = threading.Event(), threading.Event()

    def change() -> None:
        with running.service._store.transaction():
            inside.set()
            go_on.wait(60)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        assert inside.wait(10)
        assert running.ask("/-/ready")[0] == 200
        assert b"pyrometer_alerting_store_writable 1.0" in running.ask("/metrics")[1]
        assert running.ask("/")[0] == 200
    finally:
        go_on.set()
        thread.join()


def test_a_disk_that_cannot_take_it_is_a_503(running: Running) -> None:
    inbox = running.service._store.folder / "inbox"
    inbox.rmdir()
    inbox.touch()
    assert running.ask(WEBHOOK_PATH, body(raw_alert()))[0] == 503
    inbox.unlink()
    inbox.mkdir()
    assert running.ask(WEBHOOK_PATH, body(raw_alert()))[0] == 200
    assert len(running.incidents()) == 1


def test_a_full_database_makes_it_unready_and_nothing_is_lost_when_there_is_room_again(
    running: Running, slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(deliveries, "ANSWER_SECONDS", 0.0)
    monkeypatch.setattr(trouble, "EVERY_SECONDS", 0.0)
    running.ask(WEBHOOK_PATH, body(raw_alert(node="before"), groupKey="a"))
    wait_until(lambda: slack.messages("gpu-alerts"))
    assert running.ask("/-/ready")[0] == 200
    database = running.service._store._database.writer
    database.execute(f"PRAGMA max_page_count = {database.execute('PRAGMA page_count').fetchone()[0]}")
    with running.service._store._lock:  # no worker makes room meanwhile
        for number in range(40):
            delivery = body(raw_alert(node=f"n{number}"), groupKey=str(number))
            assert running.ask(WEBHOOK_PATH, delivery)[0] == 200
    wait_until(lambda: running.ask("/-/ready")[0] == 503)
    assert running.ask("/-/healthy")[0] == 200
    assert b"pyrometer_alerting_store_writable 0.0" in running.ask("/metrics")[1]
    database.execute("PRAGMA max_page_count = 100000")

    def nodes() -> set[str]:
        return {alert["labels"]["node"] for incident in running.incidents() for alert in incident["alerts"]}

    wait_until(lambda: nodes() == {"before", *(f"n{number}" for number in range(40))})
    assert running.ask("/-/ready")[0] == 200
    wait_until(lambda: all(each["slack"]["state"] == "done" for each in running.incidents()))
    said = [each["metadata"]["event_payload"]["incident_id"] for each in slack.messages("gpu-alerts")]
    assert len(said) == len(set(said))
    assert set(said) >= {each["id"] for each in running.incidents()}
