from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from alerting_fakes import START, body, raw_alert
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_alerting.incidents.alertmanager_payload import BadDelivery, parse


def test_alerts_are_parsed_with_nanoseconds_and_year_one() -> None:
    alert = raw_alert(node="gpu-042", gpu="3")
    alert["startsAt"] = "2026-11-21T03:12:05.123456789Z"
    delivery = parse(body(alert, unknown_field={"a": 1}))
    assert delivery.alerts[0].labels["node"] == "gpu-042"
    assert delivery.alerts[0].starts_at == pytest.approx(1795230725.123456, abs=1e-5)
    assert delivery.alerts[0].ends_at is None


def test_offsets_are_taken_into_account() -> None:
    alert = raw_alert()
    alert["startsAt"] = "2026-11-21T04:12:05+01:00"
    assert parse(body(alert)).alerts[0].starts_at == 1795230725.0


def test_digest_ignores_the_peer_but_not_the_content() -> None:
    alert = raw_alert()
    one, two = parse(body(alert)), parse(body(alert, externalURL="http://am-2:9093", notification_reason="x"))
    assert one.digest == two.digest
    assert parse(body(raw_alert(firing=False))).digest != one.digest
    assert parse(body(raw_alert(starts_at=START))).digest != one.digest


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "not_json"),
        (b"\xff\xfe", "not_json"),
        (b"[" * 100_000, "not_json"),
        (b"[]", "not_object"),
        (b'{"version": "4", "alerts": [' + b"{}," * 400_000 + b"{}]}", "too_many"),
        (b'{"version": "4", "alerts": [' + b"[]," * 400_000 + b"{}]}", "too_many"),
        (b"{}", "version"),
        (b'{"version": "3", "alerts": []}', "version"),
        (b'{"version": "4"}', "alerts"),
        (b'{"version": "4", "alerts": {}}', "alerts"),
        (b'{"version": "4", "alerts": [1]}', "alert"),
        (b'{"version": "4", "alerts": [{"status": "odd"}]}', "alert"),
        (b'{"version": "4", "alerts": [{"status": "firing", "labels": {"a": 1}}]}', "alert"),
        (b'{"version": "4", "alerts": [{"status": "firing", "labels": {}, "startsAt": "soon"}]}', "alert"),
        (
            b'{"version": "4", "alerts": [{"status": "firing", "labels": {}, "startsAt": "2026-13-45T99:00:00Z"}]}',
            "alert",
        ),
    ],
)
def test_what_is_not_alertmanagers_is_refused_with_a_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(BadDelivery) as caught:
        parse(raw)
    assert caught.value.reason == reason
    assert "\n" not in str(caught.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_json_is_parsed_or_refused(value: Any) -> None:
    for document in (value, {"version": "4", "alerts": value}, {"version": "4", "alerts": [value]}):
        with contextlib.suppress(BadDelivery):
            parse(json.dumps(document).encode())


@pytest.mark.parametrize("node", ["\ud800", "a\0b"])
def test_what_a_database_cannot_carry_cannot_break_the_store(node: str) -> None:
    said = parse(body(raw_alert(node=node))).alerts[0].labels["node"]
    assert b"\0" not in said.encode()


def test_one_alert_that_cannot_be_read_costs_no_other() -> None:
    bad = [{}, {**raw_alert(), "startsAt": "soon"}, {**raw_alert(), "labels": {"node": 1}}]
    delivery = parse(body(raw_alert(node="n1"), *bad, raw_alert(node="n2")))
    assert [alert.labels["node"] for alert in delivery.alerts] == ["n1", "n2"]
    assert len(delivery.unreadable) == 3
