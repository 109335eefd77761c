"""Reconciliation of what the webhook did not deliver, on a FakeClock, with fakes of all upstream services."""

from __future__ import annotations

import pytest
from alerting_fakes import SILENT, Bench, FakePrometheus, raw_alert
from alerting_upstream import Upstream, fault, over

from pyrometer_alerting.incidents.storage.store import LOST_FACT, StoreError
from pyrometer_alerting.incidents.topology import topology
from pyrometer_kit.prometheus import Series


@pytest.fixture
def upstream(bench: Bench) -> Upstream:
    return Upstream(bench)


def test_what_nobody_knows_any_more_is_closed_after_a_minute(upstream: Upstream) -> None:
    upstream.bench.receive(fault(upstream))
    upstream.steps(30)
    assert "Resolved" not in upstream.text()
    assert "Alertmanager and Prometheus don't have it" in upstream.text()
    upstream.steps(90)
    assert "Resolved" in upstream.text()
    assert "Alertmanager resolved it without a notification" in upstream.text()
    assert upstream.bench.metrics.corrections.labels("closed")._value.get() == 1


@pytest.mark.parametrize("who", ["one Alertmanager is silent", "one still knows it", "Prometheus says it fires"])
def test_in_doubt_it_stays_open(upstream: Upstream, who: str) -> None:
    alert = fault(upstream)
    upstream.bench.receive(alert)
    upstream.second.silent = who == "one Alertmanager is silent"
    if who == "one still knows it":
        upstream.second.knows(alert)
    if who == "Prometheus says it fires":
        upstream.fires(alert)
    upstream.steps(900)
    assert "Resolved" not in upstream.text()


def test_while_prometheus_is_silent_nothing_is_closed(upstream: Upstream) -> None:
    """Alertmanager forgets within minutes what a Prometheus that is down does not repeat."""
    upstream.prometheus.on("ALERTS", SILENT)
    upstream.bench.receive(fault(upstream))
    upstream.steps(900)
    assert "Resolved" not in upstream.text()


def test_without_a_prometheus_it_takes_longer(upstream: Upstream) -> None:
    upstream.start([upstream.first], None)
    upstream.bench.receive(fault(upstream))
    upstream.steps(330)
    assert "Resolved" not in upstream.text()
    upstream.steps(90)
    assert "Resolved" in upstream.text()


def test_what_is_for_others_is_not_ours(upstream: Upstream) -> None:
    upstream.bench.receive(raw_alert("Watchdog", severity="info"))
    for alertmanager in (upstream.first, upstream.second):
        alertmanager.knows(fault(upstream), receiver="database-team")
    points = tuple((upstream.bench.clock.time - 400 + 15.0 * n, 1.0) for n in range(3))
    theirs = {"alertname": "PostgresDown", "severity": "critical", "alertstate": "firing"}
    upstream.prometheus.answers = [("^ALERTS", [Series(theirs, points)])]
    upstream.steps(150)
    with upstream.bench.store.transaction() as tx:
        tx.save_fact("alive_at", "0")  # as after an outage
    upstream.reconciler._missed_scan._started_at = 0
    upstream.steps(30)
    assert upstream.bench.messages == []


def test_what_is_active_and_was_never_delivered_is_posted(upstream: Upstream) -> None:
    upstream.bench.receive(raw_alert("Watchdog", severity="info"), receiver="pyrometer")
    upstream.start([upstream.first, upstream.second], None)
    with upstream.bench.store.transaction() as tx:
        tx.forget_fact("watchdog:c1")  # else its silence would be heard
    upstream.knows(fault(upstream))
    upstream.steps(300)
    assert upstream.bench.messages == []
    upstream.steps(90)
    assert "n1 GPU 3" in upstream.text()
    assert len(upstream.bench.messages) == 1


def test_what_is_muted_and_was_never_delivered_is_not(upstream: Upstream) -> None:
    upstream.knows(fault(upstream), muted=True)
    upstream.steps(900)
    assert upstream.bench.messages == []


@pytest.mark.parametrize("knower", ["alertmanagers", "prometheus"])
def test_a_firing_that_looks_old_is_believed_when_somebody_confirms_it(upstream: Upstream, knower: str) -> None:
    alert = fault(upstream)
    upstream.bench.receive(alert)
    upstream.bench.receive({**alert, **over(upstream)})
    upstream.steps(2, every=2)
    assert upstream.bench.receive(alert).has_parked
    upstream.bench.deliver()
    assert "Resolved" in upstream.text()
    if knower == "alertmanagers":
        upstream.knows(alert)
    else:
        upstream.fires(alert)
    upstream.steps(2, every=2)
    assert "Resolved" not in upstream.bench.messages[0]["text"]
    assert "Still firing" in upstream.bench.messages[0]["replies"][-1]["text"]


def test_an_old_story_that_nobody_confirms_is_forgotten(upstream: Upstream) -> None:
    alert = fault(upstream)
    for each in (alert, {**alert, **over(upstream)}, alert):
        upstream.bench.receive(each)
    upstream.steps(400)
    with upstream.bench.store.transaction() as tx:
        assert tx.parked_alerts() == []
    assert "Resolved" in upstream.text()


def test_with_nobody_to_ask_it_is_believed_after_a_minute(upstream: Upstream) -> None:
    upstream.start([], None)
    alert = fault(upstream)
    for each in (alert, {**alert, **over(upstream)}, alert):
        upstream.bench.receive(each)
    upstream.steps(30)
    assert "Resolved" in upstream.text()
    upstream.steps(60)
    assert "Resolved" not in upstream.bench.messages[0]["text"]


def test_a_watchdog_that_stops_is_told_in_the_channel_and_so_is_its_return(upstream: Upstream) -> None:
    upstream.steps(900)
    assert upstream.bench.messages == []  # never heard: this installation has none
    upstream.bench.receive(raw_alert("Watchdog", severity="info"))
    upstream.steps(150)
    assert upstream.bench.messages == []
    upstream.second.silent = True
    upstream.bench.receive(raw_alert("Watchdog", severity="info", cluster="c2"), groupKey="c2")
    upstream.steps(60)
    (message,) = upstream.bench.messages
    assert "Alerts of c1 may not arrive: the Watchdog heartbeat has stopped" in message["text"]
    assert "Alertmanager 2 did not answer when asked" in message["text"]
    upstream.bench.receive(raw_alert("Watchdog", severity="info"), groupKey="again")
    upstream.steps(30)
    assert "Resolved" in upstream.bench.messages[0]["text"]


def test_a_watchdog_that_alertmanager_has_is_repeated_too_rarely_and_no_broken_path(upstream: Upstream) -> None:
    heartbeat = raw_alert("Watchdog", severity="info")
    upstream.bench.receive(heartbeat)
    for alertmanager in (upstream.first, upstream.second):
        alertmanager.knows(heartbeat)
    upstream.steps(300)
    (message,) = upstream.bench.messages
    assert "Alertmanager has the Watchdog of c1 and repeats it too rarely" in message["text"]
    assert "repeat_interval: 1m" in message["text"]
    assert message["text"].startswith("\U0001f7e0"), "nobody is woken"
    upstream.bench.receive(heartbeat, groupKey="four hours later")
    upstream.steps(60)
    assert "Resolved" not in upstream.bench.messages[0]["text"], "once more, as rarely as before"
    upstream.bench.receive(heartbeat, groupKey="a minute later")
    upstream.steps(60)
    assert "Resolved" in upstream.bench.messages[0]["text"]
    assert len(upstream.bench.messages) == 1


def test_where_alertmanager_delivers_nothing_the_path_is_broken_although_it_has_the_watchdog(
    upstream: Upstream,
) -> None:
    heartbeat = raw_alert("Watchdog", severity="info")
    upstream.bench.receive(heartbeat, receiver="pyrometer")
    for alertmanager in (upstream.first, upstream.second):
        alertmanager.knows(heartbeat, fault(upstream))
    upstream.steps(480)
    told = " ".join(message["text"] for message in upstream.bench.messages)
    assert "the Watchdog heartbeat has stopped" in told


@pytest.mark.parametrize(
    ("intervals", "muted"),
    [
        ({"pyrometer": ("weekends",)}, True),
        ({"pyrometer": ()}, False),
        ({"pyrometer": ("weekends",), "database-team": ()}, True),
        ({"database-team": ("weekends",)}, True),
        ({}, False),
    ],
)
def test_a_time_interval_that_mutes_an_alert_is_obeyed_and_shown(
    upstream: Upstream, intervals: dict[str, tuple[str, ...]], muted: bool
) -> None:
    upstream.bench.receive(raw_alert("Other", severity="info"), receiver="pyrometer")
    for alertmanager in (upstream.first, upstream.second):
        alertmanager.knows(fault(upstream), intervals=intervals)
    upstream.steps(450)
    assert (upstream.bench.messages == []) is muted
    upstream.bench.receive(fault(upstream), receiver="pyrometer")
    upstream.steps(60)
    assert ("muted by weekends" in upstream.text()) is muted


def test_our_own_absence_is_not_the_watchdogs(upstream: Upstream) -> None:
    upstream.bench.receive(raw_alert("Watchdog", severity="info"))
    upstream.bench.clock.advance(7200)
    upstream.start([upstream.first], None)
    upstream.steps(150)
    assert upstream.bench.messages == []
    upstream.steps(60)
    assert len(upstream.bench.messages) == 1


def test_what_fired_and_ended_while_we_were_away_is_one_message(upstream: Upstream) -> None:
    upstream.steps(60)
    away = upstream.bench.clock.time
    upstream.bench.clock.advance(3600)
    upstream.start([upstream.first, upstream.second], upstream.prometheus)
    base = {"alertname": "GpuLost", "cluster": "c1", "severity": "critical", "component": "gpu"}
    names = [{**base, "node": f"n{n}"} for n in range(3)]
    points = tuple((away + 600 + 15.0 * n, 1.0) for n in range(5))
    upstream.prometheus.answers = [
        ("^ALERTS", [Series({**labels, "alertstate": "firing"}, points) for labels in names])
    ]
    upstream.steps(30)
    upstream.prometheus.answers = []
    upstream.steps(600)
    (message,) = upstream.bench.messages
    assert "3 alerts fired and ended undelivered while the service was down for 60 min" in message["text"]
    assert "GpuLost n0" in message["text"]
    assert "for 60 s" in message["text"]


def test_what_was_delivered_is_not_missed(upstream: Upstream) -> None:
    upstream.steps(60)
    alert = fault(upstream)
    upstream.bench.receive(alert)
    began = upstream.bench.clock.time
    upstream.steps(30)
    upstream.bench.receive({**alert, **over(upstream)})
    points = tuple((began + 15.0 * n, 1.0) for n in range(3))
    upstream.prometheus.answers = [("^ALERTS", [Series({**alert["labels"], "alertstate": "firing"}, points)])]
    upstream.steps(900)
    assert len(upstream.bench.messages) == 1


def test_the_wiring_is_learnt_from_prometheus() -> None:
    prometheus = FakePrometheus()
    prometheus.on("up{", [Series({"cluster": "c", "node": "n1", "rack": "r1"}, ((0.0, 1.0),))])
    port = {"cluster": "c", "node": "n1", "device": "mlx5_0", "port": "1", "switch": "leaf-1", "rail": "0"}
    prometheus.on("fabric_port", [Series(port, ((0.0, 1.0),))])
    known = topology(prometheus, 0.0)
    assert known.racks == {("c", "n1"): "r1"}
    assert known.ports == {("c", "n1", "mlx5_0", "1"): ("leaf-1", "0")}


def lose(upstream: Upstream) -> None:
    """Let the database break, with all it knew, while the service runs."""
    store = upstream.bench.store
    store.shrink()  # from the WAL into the file
    (store.folder / "alerting.sqlite3").write_bytes(b"no database at all " * 5000)
    with pytest.raises(StoreError):
        store.check()
    with store.transaction() as tx:
        assert tx.fact(LOST_FACT) is not None


def test_after_a_loss_all_that_fires_is_taken_at_once_and_one_message_tells(upstream: Upstream) -> None:
    firing = [raw_alert(node=f"n{n}", cluster=f"c{n}", fingerprint=f"{n:016x}", component="gpu") for n in range(3)]
    upstream.bench.receive(*firing)
    upstream.bench.deliver(5)
    upstream.knows(*firing)
    upstream.fires(*firing)
    lose(upstream)
    upstream.steps(60)
    with upstream.bench.store.snapshot() as tx:
        nodes = sorted(a.labels["node"] for each in tx.incidents() for a in each.members if a.firing)
    assert nodes == ["n0", "n1", "n2"]
    told = [message["text"] for message in upstream.bench.messages if "lost some of what it knew" in message["text"]]
    assert len(told) == 1
    assert "3 alerts that are firing were read from Alertmanager" in upstream.text()
    upstream.steps(600)
    assert sum("lost some of what it knew" in message["text"] for message in upstream.bench.messages) == 1


def test_after_a_loss_a_silent_alertmanager_is_told_and_asked_again(upstream: Upstream) -> None:
    firing = raw_alert(node="n0", fingerprint="1" * 16, component="gpu")
    upstream.bench.receive(firing)
    upstream.knows(firing)
    upstream.fires(firing)
    upstream.first.silent = True
    lose(upstream)
    upstream.steps(120)
    assert "Alertmanager does not answer" in upstream.text()
    upstream.first.silent = False
    upstream.steps(60)
    with upstream.bench.store.snapshot() as tx:
        assert [a.labels["node"] for each in tx.incidents() for a in each.members if a.firing] == ["n0"]
