"""A real Alertmanager, case by case: what it delivers and what it does not, and what the channel shows.

The letters are those of `docs/alertmanager.md`: lost resolves, repeated and missing deliveries.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alerting_fakes import wait_until
from alerting_real import RealAlertmanager, Receiver, iso, prom_alert

from pyrometer_alerting.incidents.lifecycle import is_fingerprint
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.slack_channel import RateLimits


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealAlertmanager, Receiver]]:
    """One Alertmanager, one service, one channel for all rows that do not kill anything."""
    folder = tmp_path_factory.mktemp("truth")
    limits = RateLimits(post_per_second=1000, post_burst=1000, tier3_per_minute=60000, tier3_burst=1000)
    with FakeSlack(channel_names=["gpu-alerts"], token="xoxb-test", limits=limits) as slack:
        receiver = Receiver(folder, slack)
        alertmanager = RealAlertmanager(folder / "am", receiver.url)
        alertmanager.start()
        receiver.start([alertmanager])
        yield alertmanager, receiver
        alertmanager.end(signal.SIGTERM)
        receiver.stop()


class Outage:
    """A receiver that refuses with 503 from the start, and an alert that fires and ends meanwhile."""

    def __init__(self, folder: Path, slack: FakeSlack) -> None:
        self.receiver = Receiver(folder, slack)
        self.receiver.refuse = 503
        self.alertmanager = RealAlertmanager(folder / "am", self.receiver.url)
        self.alertmanager.start()
        self.receiver.start([self.alertmanager])
        self.began = time.time()
        self.fault = prom_alert("GpuLost", "c2", began=self.began, node="n2", gpu="1")
        self.alertmanager.post(self.fault)
        wait_until(lambda: 503 in self.receiver.deliveries)
        self.alertmanager.post({**self.fault, "endsAt": iso(time.time())})


@pytest.fixture(scope="module", autouse=True)
def long_outage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outage]:
    """It takes 12 s: started first, so that the other rows are played meanwhile."""
    with FakeSlack(channel_names=["gpu-alerts"], token="xoxb-test") as slack:
        outage = Outage(tmp_path_factory.mktemp("outage"), slack)
        yield outage
        outage.alertmanager.end(signal.SIGTERM)
        outage.receiver.stop()


@pytest.fixture
def alertmanager(stage: tuple[RealAlertmanager, Receiver]) -> RealAlertmanager:
    return stage[0]


@pytest.fixture
def receiver(stage: tuple[RealAlertmanager, Receiver]) -> Receiver:
    stage[1].prometheus.answers = []
    stage[1].refuse = 0
    return stage[1]


def text_of(receiver: Receiver, row: str) -> str:
    found = receiver.messages(row)
    return found[0]["text"] + str(found[0]["blocks"]) if found else ""


def notify(alertmanager: RealAlertmanager, receiver: Receiver, *alerts: dict[str, Any], row: str) -> None:
    alertmanager.post(*alerts)
    wait_until(lambda: receiver.messages(row))


def digest_of(receiver: Receiver, fault: dict[str, Any], began: float) -> str:
    """Return the digest of reconciliation when Prometheus remembers the alert of an outage (2 minutes ago)."""
    assert receiver.service is not None
    receiver.fired(fault["labels"], began - 120, began - 90)
    receiver.service.reconciler._missed_scan._outages = [(began - 200, time.time(), "the webhook refused")]
    with receiver._store.transaction() as tx:
        tx.save_fact("swept_until", repr(began - 200))
    receiver.reconcile()
    wait_until(lambda: receiver.messages(""))
    return str(receiver.messages("")[0]["text"])


def test_c1_refused_with_401_while_it_fires_and_ends_it_is_told_in_a_digest(
    alertmanager: RealAlertmanager, receiver: Receiver
) -> None:
    began = time.time()
    receiver.refuse = 401
    fault = prom_alert("GpuLost", "c1", began=began, node="n1", gpu="3")
    alertmanager.post(fault)
    wait_until(lambda: 401 in receiver.deliveries)
    alertmanager.post_ends({**fault, "endsAt": iso(time.time())}, row="c1")
    receiver.refuse = 0
    alertmanager.let_flush()
    assert receiver.delivered("c1") == []  # Alertmanager never delivers it
    assert "GpuLost n1 GPU 3" in (said := digest_of(receiver, fault, began))
    assert "fired and ended undelivered while the webhook refused" in said


def test_d_ended_under_a_silence_it_is_closed(alertmanager: RealAlertmanager, receiver: Receiver) -> None:
    began = time.time()
    fault = prom_alert("GpuLost", "d", began=began)
    receiver.fires(fault)
    notify(alertmanager, receiver, fault, row="d")
    alertmanager.silence(600, row="d")
    receiver.reconcile()
    wait_until(lambda: "silenced by alice until" in text_of(receiver, "d"))
    alertmanager.post_ends(prom_alert("GpuLost", "d", began=began, ended=time.time()), row="d")
    assert [each["status"] for each in receiver.delivered("d")] == ["firing"]
    receiver.fires()
    receiver.reconcile()
    wait_until(lambda: "Resolved" in text_of(receiver, "d"))
    assert "Alertmanager resolved it without a notification" in text_of(receiver, "d")


def test_o_ended_while_inhibited_it_is_closed(alertmanager: RealAlertmanager, receiver: Receiver) -> None:
    began = time.time()
    drop, throttle = prom_alert("MfuDrop", "o", began=began, run="r"), prom_alert("Throttle", "o", began=began)
    receiver.fires(drop, throttle)
    notify(alertmanager, receiver, drop, row="o")
    alertmanager.post(drop, throttle)
    wait_until(lambda: len(receiver.messages("o")) == 2)
    receiver.reconcile()
    wait_until(lambda: "inhibited by Throttle" in text_of(receiver, "o"))
    alertmanager.post_ends(prom_alert("MfuDrop", "o", began=began, ended=time.time(), run="r"), throttle, row="o")
    alertmanager.post(prom_alert("Throttle", "o", began=began, ended=time.time()))
    wait_until(lambda: sum("Resolved" in each["text"] for each in receiver.messages("o")) == 1)
    assert "MfuDrop" not in str([alert for each in receiver.delivered("o")[2:] for alert in each["alerts"]])
    receiver.fires()
    receiver.reconcile()
    wait_until(lambda: sum("Resolved" in each["text"] for each in receiver.messages("o")) == 2)


def test_p_absent_from_a_delivery_is_silenced_and_not_resolved(
    alertmanager: RealAlertmanager, receiver: Receiver
) -> None:
    began = time.time()
    three = [prom_alert("GpuLost", "p", began=began, node="n", gpu=str(number)) for number in range(3)]
    receiver.fires(*three)
    notify(alertmanager, receiver, *three[:2], row="p")
    wait_until(lambda: "2 of 2 firing" in text_of(receiver, "p"))
    told = len(receiver.delivered("p"))
    alertmanager.silence(30, row="p", gpu="0")
    alertmanager.post(*three)
    wait_until(lambda: len(receiver.delivered("p")) > told)
    assert {alert["labels"]["gpu"] for alert in receiver.delivered("p")[-1]["alerts"]} == {"1", "2"}
    wait_until(lambda: "at 3 parts" in text_of(receiver, "p"))
    receiver.reconcile()
    wait_until(lambda: "1 of 3 alerts silenced by alice" in text_of(receiver, "p"))
    assert "at 3 parts" in text_of(receiver, "p")


def test_g_a_later_start_while_it_fires_is_no_news(alertmanager: RealAlertmanager, receiver: Receiver) -> None:
    began = time.time()
    notify(alertmanager, receiver, prom_alert("GpuLost", "g", began=began), row="g")
    alertmanager.post(prom_alert("GpuLost", "g", began=began + 1))
    alertmanager.let_flush()
    (delivery,) = receiver.delivered("g")
    assert all(is_fingerprint(each["fingerprint"], each["labels"]) for each in delivery["alerts"])
    (message,) = receiver.messages("g")
    assert message["versions"] == []


def test_g2_a_flap_between_two_flushes_is_not_delivered_and_the_message_still_fires(
    alertmanager: RealAlertmanager, receiver: Receiver
) -> None:
    began = time.time()
    notify(alertmanager, receiver, prom_alert("GpuLost", "g2", began=began), row="g2")
    alertmanager.post(prom_alert("GpuLost", "g2", began=began, ended=time.time()))
    again = prom_alert("GpuLost", "g2", began=time.time())
    alertmanager.post(again)
    alertmanager.let_flush()
    receiver.fires(again)
    receiver.reconcile()
    assert receiver.incidents("g2")[0]["status"] == "firing"


def test_a_real_refire_right_after_the_resolve_reopens_the_message(
    alertmanager: RealAlertmanager, receiver: Receiver
) -> None:
    """One of two Prometheus resolves it, the other still fires: Alertmanager sends it with its old start."""
    began = time.time() - 30
    fault = prom_alert("GpuLost", "refire", began=began)
    notify(alertmanager, receiver, fault, row="refire")
    alertmanager.post(prom_alert("GpuLost", "refire", began=began, ended=time.time()))
    wait_until(lambda: "Resolved" in text_of(receiver, "refire"))
    alertmanager.post(fault)
    wait_until(lambda: len(receiver.delivered("refire")) == 3)
    wait_until(lambda: receiver.incidents("refire")[0]["status"] == "firing", seconds=12)
    wait_until(lambda: "Still firing" in str(receiver.messages("refire")[0]["replies"]))
    assert len(receiver.messages("refire")) == 1


def test_k_killed_after_a_delivery_it_repeats_itself_and_we_do_not(tmp_path: Path, slack: FakeSlack) -> None:
    receiver = Receiver(tmp_path, slack)
    alertmanager = RealAlertmanager(tmp_path / "am", receiver.url)
    alertmanager.start()
    receiver.start([alertmanager])
    try:
        fault = prom_alert("GpuLost", "k", began=time.time())
        notify(alertmanager, receiver, fault, row="k")
        alertmanager.end(signal.SIGKILL)
        alertmanager.start()
        alertmanager.post(fault)
        wait_until(lambda: len(receiver.delivered("k")) == 2)
        (message,) = receiver.messages("k")
        assert message["versions"] == []
        assert message["replies"] == []
        # Row L: killed again, and then told of the end: no resolve is ever delivered.
        alertmanager.end(signal.SIGKILL)
        alertmanager.start()
        alertmanager.post({**fault, "endsAt": iso(time.time())})
        alertmanager.let_flush()
        assert len(receiver.delivered("k")) == 2
        receiver.reconcile()
        wait_until(lambda: "Resolved" in text_of(receiver, "k"))
    finally:
        alertmanager.end()
        receiver.stop()


def test_f_over_within_group_wait_and_e_more_than_max_alerts(tmp_path: Path, slack: FakeSlack) -> None:
    receiver = Receiver(tmp_path, slack)
    # Long enough for both posts of the short one: with 5 s it was told of once, on a machine at load 25.
    # Neither in one request nor at once: Alertmanager takes alerts in by several workers, in any order.
    alertmanager = RealAlertmanager(tmp_path / "am", receiver.url, group_wait="9s", max_alerts=3)
    alertmanager.start()
    receiver.start([alertmanager])
    try:
        began = time.time()
        short = prom_alert("GpuLost", "f", began=began, node="n1")
        alertmanager.post_grouped(short, row="f")
        alertmanager.post({**short, "endsAt": iso(time.time())})
        many = [prom_alert("GpuLost", "e", began=began, node="n", gpu=str(number)) for number in range(8)]
        notify(alertmanager, receiver, *many, row="e")
        wait_until(lambda: "Alertmanager left out 5 more alerts" in text_of(receiver, "e"))
        receiver.fires(*many)
        wait_until(lambda: time.time() - began > 10.2)
        receiver.reconcile()
        wait_until(lambda: "at 8 parts" in text_of(receiver, "e"))
        assert receiver.delivered("f") == []
        receiver.fired(short["labels"], began - 120, began - 110)
        with receiver._store.transaction() as tx:
            tx.save_fact("swept_until", repr(began - 200))
        receiver.reconcile()
        (listed,) = receiver.incidents("")
        assert "too short for a notification" in listed["text"]
        assert receiver.messages("") == []  # on the page, not in the channel
    finally:
        alertmanager.end()
        receiver.stop()


def test_h_j_two_peers_that_do_not_know_of_each_other_are_one_incident(tmp_path: Path, slack: FakeSlack) -> None:
    """And a receiver that is out of order for a while, and a slow Slack."""
    receiver = Receiver(tmp_path, slack)
    first, second = (RealAlertmanager(tmp_path / name, receiver.url) for name in ("am1", "am2"))
    slack.inject("chat.postMessage", "hang_before", seconds=2.0)
    first.start()
    second.start()
    receiver.start([first, second])
    try:
        receiver.refuse = 503
        fault = prom_alert("GpuLost", "j", began=time.time())
        first.post(fault)
        second.post(fault)
        wait_until(lambda: receiver.deliveries.count(503) >= 2)
        receiver.refuse = 0
        wait_until(lambda: len(receiver.delivered("j")) == 2, seconds=20)
        wait_until(lambda: receiver.messages("j"), seconds=20)
        over = {**fault, "endsAt": iso(time.time())}
        first.post(over)
        receiver.reconcile()
        assert receiver.incidents("j")[0]["status"] == "firing" or len(receiver.delivered("j")) > 2
        second.post(over)
        wait_until(lambda: "Resolved" in text_of(receiver, "j"), seconds=20)
        second.let_flush()
        (message,) = receiver.messages("j")
        assert [reply["text"].split()[1] for reply in message["replies"]] == ["Resolved"]
    finally:
        first.end()
        second.end()
        receiver.stop()


def test_i_two_peers_of_a_cluster_tell_it_once(tmp_path: Path, slack: FakeSlack) -> None:
    receiver = Receiver(tmp_path, slack)
    first, second = (RealAlertmanager(tmp_path / name, receiver.url) for name in ("am1", "am2"))
    gossip = [free_port(), free_port()]
    quick = ["--cluster.settle-timeout=1s", "--cluster.peer-timeout=1s", "--cluster.gossip-interval=50ms"]
    first.cluster = [f"--cluster.listen-address=127.0.0.1:{gossip[0]}", *quick]
    second.cluster = [
        f"--cluster.listen-address=127.0.0.1:{gossip[1]}",
        f"--cluster.peer=127.0.0.1:{gossip[0]}",
        *quick,
    ]
    try:
        first.start()
        second.start()
        receiver.start([first, second])
        fault = prom_alert("GpuLost", "i", began=time.time())
        first.post(fault)
        second.post(fault)
        wait_until(lambda: receiver.messages("i"), seconds=20)
        receiver.fires(fault)
        second.let_flush(9)  # the other peer waits for a second before it delivers
        receiver.reconcile()
        (message,) = receiver.messages("i")
        assert "Resolved" not in message["text"]
        assert len(receiver.delivered("i")) <= 2  # at least once is all that Alertmanager promises; once as a rule
        assert message["versions"] == []
    finally:
        first.end()
        second.end()
        receiver.stop()


def test_c2_refused_with_503_for_longer_than_alertmanager_tries_it_is_told_in_a_digest(long_outage: Outage) -> None:
    """Its tries of one flush go on for 10 s, and deliver what they began with: only then it is lost."""
    wait_until(lambda: time.time() - long_outage.began > 12, seconds=15)
    long_outage.receiver.refuse = 0
    long_outage.alertmanager.let_flush()
    assert long_outage.receiver.delivered("c2") == []
    said = digest_of(long_outage.receiver, long_outage.fault, long_outage.began)
    assert "GpuLost n2 GPU 1" in said
