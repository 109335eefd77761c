"""Cause and effect in the channel: one message, whichever came first; storms; nothing lost by joining."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import alerting_fakes
import pytest
from alerting_fakes import Bench, raw_alert

from pyrometer_alerting.incidents.intake import JOIN_SECONDS
from pyrometer_alerting.model.fact import Roster
from pyrometer_alerting.model.incident import Cause, Diagnosis, Incident
from pyrometer_alerting.model.places import Topology

HEAT = Cause("n1 GPU 3", "hardware thermal throttling", score=100.0, labels={"node": "n1", "gpu": "3"})


def hot(now: float, **kwargs: Any) -> dict[str, Any]:
    return raw_alert("GpuThrottledThermal", node="n1", gpu="3", component="gpu", starts_at=now - 5, **kwargs)


def drop(now: float, **kwargs: Any) -> dict[str, Any]:
    return raw_alert("TrainMfuDropped", run="r", component="train", starts_at=now - 2, **kwargs)


class Joined:
    """A bench whose diagnosis always finds the hot GPU."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        bench.intake._diagnoses = True
        self.diagnostician = alerting_fakes.diagnostician(bench)

    def receive(self, *alerts: dict[str, Any], **more: Any) -> None:
        for incident_id in self.bench.receive(*alerts, **more).diagnose:
            self.diagnostician.poke(incident_id)

    def diagnose(self) -> None:
        while self.diagnostician.step(lambda _prometheus, _incident, _others, now: Diagnosis(now, (HEAT,))) == 0.0:
            pass

    def incidents(self) -> list[Incident]:
        with self.bench.store.transaction() as tx:
            return tx.incidents()


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def joined(bench: Bench) -> Joined:
    return Joined(bench)


@pytest.mark.parametrize("order", ["cause first", "effect first"])
def test_before_anything_is_posted_they_are_one_message_from_the_start(joined: Joined, order: str) -> None:
    now = joined.bench.clock.time
    for alert in (hot(now), drop(now)) if order == "cause first" else (drop(now), hot(now)):
        joined.receive(alert, groupKey=alert["labels"]["alertname"])
    joined.diagnose()
    joined.bench.deliver()
    (message,) = joined.bench.messages
    assert "TrainMfuDropped summary: n1 GPU 3" in message["blocks"][0]["text"]["text"]
    assert "1. n1 GPU 3: hardware thermal throttling" in message["text"]
    assert message["replies"] == []
    assert len(joined.incidents()) == 1


def test_the_effect_grows_into_the_message_of_its_cause(joined: Joined) -> None:
    now = joined.bench.clock.time
    joined.receive(hot(now, severity="warning"), groupKey="a")
    joined.bench.deliver()
    joined.receive(drop(now), groupKey="b")
    joined.diagnose()
    joined.bench.deliver()
    (message,) = joined.bench.messages
    assert "TrainMfuDropped summary: n1 GPU 3" in message["text"]
    assert [reply["text"].split("\n")[0] for reply in message["replies"]] == ["🔴 Worse: now critical"]
    (worse,) = [call for call in joined.bench.slack.calls if call.args.get("reply_broadcast")]
    assert "Worse" in worse.args["text"]
    joined.receive(drop(now, firing=False), groupKey="b")
    joined.bench.deliver()
    assert "Resolved" not in joined.bench.messages[0]["blocks"][0]["text"]["text"]
    joined.receive(hot(now, severity="warning", firing=False), groupKey="a")
    joined.bench.deliver()
    assert "Resolved: TrainMfuDropped summary" in joined.bench.messages[0]["text"]


def test_what_was_posted_apart_is_joined_in_the_older_message_and_the_younger_points_there(joined: Joined) -> None:
    now = joined.bench.clock.time
    joined.receive(drop(now), groupKey="b")
    joined.bench.deliver()
    joined.bench.clock.advance(5)
    joined.receive(hot(now), groupKey="a")
    joined.bench.deliver()
    assert len(joined.bench.messages) == 2
    joined.diagnose()
    joined.bench.deliver()
    older, younger = joined.bench.messages
    assert "n1 GPU 3" in older["text"]
    assert "now part of the message about run r" in younger["text"]
    joined.receive(hot(now, firing=False), groupKey="a")
    joined.receive(drop(now, firing=False), groupKey="b")
    joined.bench.deliver()
    older, younger = joined.bench.messages
    assert "Resolved" in older["text"]
    assert "Resolved" not in younger["text"]


@pytest.mark.parametrize(("seconds", "joins"), [(50, True), (600, False)])
def test_a_later_fault_on_a_part_of_a_dead_run_is_news_of_its_own(joined: Joined, seconds: int, joins: bool) -> None:
    def died(name: str, severity: str) -> None:
        raw = raw_alert(name, run="r", component="train", severity=severity, starts_at=joined.bench.clock.time)
        joined.receive(raw, groupKey=name)
        joined.diagnose()
        joined.bench.deliver(1.0)

    died("TrainStalled", "critical")
    died("TrainRunDied", "warning")
    replies = list(joined.bench.messages[0]["replies"])
    joined.bench.clock.advance(seconds)
    gone = raw_alert("GpuXidCritical", node="n1", gpu="3", component="gpu", starts_at=joined.bench.clock.time)
    joined.receive(gone, groupKey="gone")
    joined.diagnose()
    joined.bench.deliver()
    assert [bool(incident.joined_into) for incident in joined.incidents()].count(False) == (1 if joins else 2)
    assert joins or joined.bench.messages[0]["replies"] == replies
    assert not any("Worse" in reply["text"] for reply in joined.bench.messages[0]["replies"])


def test_an_alert_on_the_part_that_a_message_blames_already_joins_it_unposted(joined: Joined) -> None:
    port = {"node": "n1", "device": "mlx5_0", "port": "1"}
    flaps = Cause("n1 mlx5_0/1", "link flapping", score=99.0, labels=port, confidence="high", family="link")
    joined.receive(drop(joined.bench.clock.time), groupKey="a")
    concluded = joined.bench.clock.time
    joined.diagnostician.step(lambda *_args: Diagnosis(concluded, (flaps,), concluded_at=concluded))
    joined.bench.deliver()
    calls = len(joined.bench.slack.calls)
    joined.bench.clock.advance(60)
    joined.receive(raw_alert("NicLinkFlapping", component="nic", **port), groupKey="b")
    joined.bench.deliver()
    (incident,) = joined.incidents()
    assert incident.alertnames() == ["TrainMfuDropped", "NicLinkFlapping"]
    assert {call.method for call in joined.bench.slack.calls[calls:]} == {"chat.update"}


@pytest.mark.parametrize("name", ["GpuThrottledThermal", "NodeExporterDown"])
def test_a_possible_cause_makes_the_first_post_wait_for_the_diagnosis_but_not_for_ever(
    joined: Joined, name: str
) -> None:
    now = joined.bench.clock.time
    joined.receive(raw_alert(name, node="n1", gpu="3", component="stack", starts_at=now - 5), groupKey="a")
    joined.bench.deliver()
    joined.receive(drop(now), groupKey="b")
    joined.bench.deliver(JOIN_SECONDS - 0.1)
    assert len(joined.bench.messages) == 1
    joined.bench.deliver()
    assert len(joined.bench.messages) == 2


def test_symptoms_of_one_run_are_one_incident(bench: Bench) -> None:
    now = bench.clock.time
    bench.receive(drop(now), groupKey="a")
    bench.receive(raw_alert("TrainStalled", run="r", component="train", node="n7", rank="3"), groupKey="b")
    bench.deliver()
    (message,) = bench.messages
    assert "2 of 2 firing" in message["text"]


@pytest.mark.parametrize("run_first", [True, False], ids=["run first", "rack first"])
def test_a_racks_53_hot_gpus_and_the_run_that_they_slow_are_one_red_message(bench: Bench, *, run_first: bool) -> None:
    nodes = [f"n{number}" for number in range(7)]
    racks = Topology(racks={("c1", node): "r07" for node in nodes})
    rack = Cause("rack r07", "hardware thermal throttling", score=100.0, labels={"rack": "r07"}, confidence="high")
    # The run has four of the rack's nodes; the other three are another job's.
    roster = Roster(places={node: {"rack": "r07"} for node in nodes[:4]})
    joined = Joined(bench)
    bench.intake.topology, joined.diagnostician.topology = racks, lambda: racks

    def diagnose() -> None:
        while joined.diagnostician.step(lambda *given: Diagnosis(given[-1], (rack,), roster=roster)) == 0.0:
            pass
        bench.deliver(5)

    def heat() -> None:
        gpus = [(nodes[number // 8], str(number % 8)) for number in range(53)]
        for some in (gpus[:1], gpus[:9], gpus):  # as the rule's group grows with each evaluation
            now = bench.clock.time
            hot = (raw_alert("GpuThrottledThermal", node=n, gpu=g, component="gpu", starts_at=now - 5) for n, g in some)
            joined.receive(*hot, groupKey="heat")
            bench.clock.advance(5)
            diagnose()

    def slow() -> None:
        joined.receive(drop(bench.clock.time), groupKey="run")
        diagnose()

    for happens in (slow, heat) if run_first else (heat, slow):
        happens()
    bench.clock.advance(120)
    diagnose()
    reds = [message for message in bench.messages if message["text"].startswith("\U0001f534")]
    (red,) = reds
    assert "rack r07, hardware thermal throttling (certain)" in red["blocks"][0]["text"]["text"]
    (whole,) = [incident for incident in joined.incidents() if not incident.joined_into]
    assert len(whole.members) == 54
    posts = [call for call in bench.slack.calls if call.method == "chat.postMessage" and not call.args.get("thread_ts")]
    assert len(posts) <= 1 + (not run_first)


def storm(count: int, names: int, now: float, **more: Any) -> list[dict[str, Any]]:
    return [
        raw_alert(
            f"Alert{index % names}", node=f"n{index // names}", fingerprint=f"{index:016x}", starts_at=now, **more
        )
        for index in range(count)
    ]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)  # minutes of single statements over a socket
def test_two_thousand_alerts_cost_few_calls_and_none_is_lost(bench: Bench) -> None:
    """How fast they are accepted: benchmarks/bench_storm.py."""
    alerts = storm(2000, 4, bench.clock.time)
    bench.receive(*alerts)
    bench.deliver()
    assert len(bench.slack.calls) <= 20
    with bench.store.transaction() as tx:
        members = [alert.fingerprint for incident in tx.incidents() for alert in incident.members]
    assert sorted(members) == sorted(alert["fingerprint"] for alert in alerts)
    bench.receive(*[{**alert, "status": "resolved", "endsAt": alert["startsAt"]} for alert in alerts])
    bench.deliver()
    assert len(bench.slack.calls) <= 20
    assert all("Resolved" in message["text"] for message in bench.messages)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)  # minutes of single statements over a socket
def test_300_flapping_ports_of_one_switch_are_one_message_that_names_it(bench: Bench) -> None:
    ports = {("c1", f"n{number}", "mlx5_0", "1"): ("leaf-12", "0") for number in range(300)}
    bench.intake.topology = Topology(ports=ports)
    for part in range(3):  # found by three evaluations
        flaps = [
            raw_alert("NicLinkFlapping", node=f"n{n}", device="mlx5_0", port="1", component="nic")
            for n in range(100 * part, 100 * part + 100)
        ]
        bench.receive(*flaps)
        bench.deliver()
    (message,) = bench.messages
    headline = message["blocks"][0]["text"]["text"]
    assert headline == "🔴 NicLinkFlapping at 300 parts of 300 nodes: switch leaf-12"
    assert message["replies"] == []
    assert len(bench.slack.calls) == 2 * 3  # the card, and the evidence in its thread


def test_two_prometheus_that_keep_their_own_label_are_one_incident(bench: Bench) -> None:
    pair = [raw_alert(node="n1", gpu="3", prometheus=replica) for replica in ("a", "b")]
    for replica in pair:
        bench.receive(replica, groupKey=replica["labels"]["prometheus"])
    bench.deliver()
    bench.receive({**pair[0], "status": "resolved", "endsAt": pair[0]["startsAt"]}, groupKey="a")
    bench.deliver()
    (message,) = bench.messages
    assert "Resolved" not in message["text"]
    bench.receive({**pair[1], "status": "resolved", "endsAt": pair[1]["startsAt"]}, groupKey="b")
    bench.deliver()
    assert "Resolved" in bench.messages[0]["text"]


def test_who_looked_after_it_last_time_is_not_taken_to_do_so_again(bench: Bench) -> None:
    now = bench.clock.time
    bench.receive(raw_alert(node="n", fingerprint="f", starts_at=now - 300))
    with bench.store.transaction() as tx:
        tx.save_incident(replace(tx.incidents()[0], acknowledged="alice"), now)
    bench.receive(raw_alert(node="n", fingerprint="f", starts_at=now - 300, ends_at=now - 200, firing=False))
    bench.receive(raw_alert(node="n", fingerprint="f", starts_at=now - 100))
    with bench.store.transaction() as tx:
        assert tx.incidents()[0].acknowledged == ""


def test_the_last_numbers_are_said_at_the_end_though_they_alone_are_no_news(joined: Joined) -> None:
    now = joined.bench.clock.time
    joined.receive(drop(now, fingerprint="d"))
    for seconds in (12, 22):
        heat = replace(HEAT, evidence=(f"throttled {seconds} s",))
        joined.diagnostician.step(lambda _prometheus, _incident, _others, at, found=heat: Diagnosis(at, (found,)))
        joined.bench.deliver(11.0)  # its evidence waits for the complete diagnosis
        assert "throttled 12 s" in joined.bench.messages[0]["text"]
        joined.bench.clock.advance(10)
    joined.receive(drop(now, fingerprint="d", firing=False))
    joined.bench.deliver()
    (message,) = joined.bench.messages
    assert "Resolved" in message["text"]
    assert "throttled 22 s" in message["text"]
