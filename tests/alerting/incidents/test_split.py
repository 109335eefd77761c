"""Splits: an alert that the evidence does not connect to a run's incident continues in its own message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import alerting_fakes
import pytest
from alerting_fakes import Bench, raw_alert

from pyrometer_alerting.diagnosis.diagnostician import UNRELATED_SECONDS
from pyrometer_alerting.incidents.lifecycle import REOPEN_SECONDS
from pyrometer_alerting.model.incident import Cause, Diagnosis, Incident
from pyrometer_alerting.model.routing import Routing, Rules

HEAT = Cause("n1 GPU 3", "hardware thermal throttling", score=100.0, labels={"node": "n1", "gpu": "3"})
LINK = Cause("n7 mlx5_1/1", "link flapping", score=90.0, labels={"node": "n7", "device": "mlx5_1", "port": "1"})


class Channel:
    """A bench with a run whose diagnosis is what the test says, and the alerts on it and on a hot GPU."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.causes, self.strange = bench, (HEAT,), False
        self.onset = bench.clock.time
        bench.intake._diagnoses = True
        self.diagnostician = alerting_fakes.diagnostician(bench)

    def tell(self, name: str, *, firing: bool = True, lasted: float = 0.0, **labels: str) -> None:
        now = self.bench.clock.time
        alert = raw_alert(name, firing=firing, starts_at=now - 5 - lasted, ends_at=now, fingerprint=name, **labels)
        for incident_id in self.bench.receive(alert, groupKey=name).diagnose:
            self.diagnostician.poke(incident_id)

    def hot(self, **more: Any) -> None:
        self.tell("GpuThrottledThermal", node="n1", gpu="3", component="gpu", severity="warning", **more)

    def slow(self, **more: Any) -> None:
        self.onset = self.bench.clock.time
        self.tell("TrainMfuDropped", run="r", component="train", **more)

    def look(self) -> None:
        """One diagnosis of every open incident of the run, and what it leads to in the channel."""
        with self.bench.store.transaction() as tx:
            opened = [one for one in tx.recent_incidents(float("inf")) if one.wants_diagnosis]
        for incident in opened:
            self.diagnostician.poke(incident.id)
        for _ in range(2 * len(opened)):
            self.diagnostician.step(self._diagnosed)
        self.bench.deliver()

    def _diagnosed(self, _prometheus: object, incident: Incident, _others: object, now: float) -> Diagnosis:
        fingerprints = tuple(one.fingerprint for one in incident.members if one.firing and "node" in one.labels)
        return Diagnosis(now, self.causes, onset=self.onset, strangers=fingerprints if self.strange else ())

    def pass_time(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)

    def texts(self) -> list[str]:
        return [message["text"] for message in self.bench.messages]

    def thread(self, number: int) -> list[str]:
        return [reply["text"] for reply in self.bench.messages[number]["replies"]]


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def joined(bench: Bench) -> Channel:
    """One message: the run's drop with the hot GPU that explains it."""
    channel = Channel(bench)
    channel.slow()
    channel.hot()
    channel.look()
    assert len(channel.texts()) == 1
    return channel


def leave(channel: Channel) -> None:
    """Move the run to other nodes."""
    channel.strange, channel.causes = True, (LINK,)
    channel.look()
    channel.pass_time(UNRELATED_SECONDS + 1)
    channel.look()


def test_a_part_that_the_run_does_not_use_any_more_gets_its_own_message_and_both_say_so(joined: Channel) -> None:
    leave(joined)
    run, gpu = joined.texts()
    assert "TrainMfuDropped summary: n7 mlx5_1/1" in run
    assert "n1 GPU 3" not in run
    assert "GpuThrottledThermal summary: n1 GPU 3" in gpu
    assert "Part of the incident of run r until " in gpu
    assert "the run does not use it" in joined.bench.messages[1]["text"]
    assert joined.thread(0)[-1] == (
        "🟠 n1 GPU 3 is no longer part of this: run r does not use it."
        " GpuThrottledThermal continues in its own message."
    )
    joined.look()
    assert len(joined.texts()) == 2
    joined.hot(firing=False)
    joined.bench.deliver()
    run, gpu = joined.texts()
    assert "Resolved" not in run
    assert "Resolved" in gpu


def test_one_look_is_not_enough_while_a_new_attempt_comes_up_rank_by_rank(joined: Channel) -> None:
    joined.strange = True
    joined.look()
    joined.pass_time(UNRELATED_SECONDS - 20)
    joined.strange = False
    joined.look()
    joined.pass_time(30)
    joined.strange = True
    joined.look()
    assert len(joined.texts()) == 1


def test_what_the_diagnosis_blames_no_more_stays_while_the_run_uses_it(joined: Channel) -> None:
    joined.causes = (LINK,)
    for _ in range(5):
        joined.pass_time(UNRELATED_SECONDS)
        joined.look()
    (message,) = joined.texts()
    assert "1. n7 mlx5_1/1" in message
    assert "n1 GPU 3: GpuThrottledThermal" in joined.bench.messages[0]["text"]


def test_a_run_that_is_well_again_without_the_part_is_resolved_when_it_parts(joined: Channel) -> None:
    joined.slow(firing=False)
    joined.bench.deliver()
    assert "Resolved" not in joined.texts()[0]
    leave(joined)
    run, gpu = joined.texts()
    assert "Resolved: TrainMfuDropped summary" in run
    assert "Resolved" not in gpu
    assert "is no longer part of this" in joined.thread(0)[-1]
    assert "✅ Resolved after" in joined.thread(0)[-1]


def test_a_parting_calls_nobody_again_and_tells_no_channel_more_than_it_may_see(joined: Channel) -> None:
    rules = Rules(labels=frozenset({"node", "gpu"}), mentions={"warning": ("<!here>",), "critical": ("<!here>",)})
    routing = Routing("#gpu-alerts", channels={"#gpu-alerts": rules})
    joined.diagnostician.routing = joined.bench.courier.composer.routing = routing
    leave(joined)
    run, gpu = joined.texts()
    assert "<!here>" in run
    assert "<!here>" not in gpu
    assert "incident of run [hidden]" in gpu
    assert "run [hidden] does not use it" in joined.thread(0)[-1]


def test_an_older_message_of_the_part_leads_to_where_it_goes_on(bench: Bench) -> None:
    channel = Channel(bench)
    channel.slow()
    channel.bench.deliver()
    channel.hot()
    channel.bench.deliver()
    channel.look()
    assert "now part of the message about run r" in channel.texts()[1]
    leave(channel)
    with bench.store.transaction() as tx:
        gpu = next(one for one in tx.recent_incidents(float("inf")) if one.alertname == "GpuThrottledThermal")
        assert [pointer.alertname for pointer in tx.pointers(gpu.id)] == ["GpuThrottledThermal"]
    assert len(channel.texts()) == 3
    assert "now part of the message about n1 GPU 3" in channel.texts()[1]


def test_a_run_that_is_slow_again_while_its_old_cause_still_fires_is_told_and_looked_at_anew(joined: Channel) -> None:
    joined.slow(firing=False, lasted=60)
    joined.look()
    joined.pass_time(600)
    joined.causes = (LINK,)
    joined.slow()
    joined.look()
    (message,) = joined.texts()
    assert "TrainMfuDropped summary: n7 mlx5_1/1" in message
    assert "1. n7 mlx5_1/1" in message
    assert "n1 GPU 3: hardware" not in message
    assert any(reply.startswith("🔴 The run is slow again") for reply in joined.thread(0))


def test_a_drop_long_after_the_last_is_another_incident_though_the_old_cause_still_fires(joined: Channel) -> None:
    joined.slow(firing=False, lasted=60)
    joined.pass_time(REOPEN_SECONDS + 60)
    joined.causes = (LINK,)
    joined.slow()
    joined.look()
    old, new = joined.texts()
    assert "GpuThrottledThermal summary: n1 GPU 3" in old
    assert "TrainMfuDropped" not in old.splitlines()[0]
    assert "TrainMfuDropped summary: n7 mlx5_1/1" in new


def test_the_same_cause_takes_the_next_drop_in_and_its_thread_is_told(joined: Channel) -> None:
    joined.slow(firing=False, lasted=60)
    joined.pass_time(REOPEN_SECONDS + 60)
    joined.slow()
    joined.look()
    (message,) = joined.texts()
    assert "TrainMfuDropped summary: n1 GPU 3" in message
    assert any("One incident with" in reply or "Worse" in reply for reply in joined.thread(0))


def test_a_cause_that_comes_back_long_after_its_end_is_looked_at_like_any_other(joined: Channel) -> None:
    joined.hot(firing=False, lasted=60)
    joined.pass_time(REOPEN_SECONDS + 60)
    joined.causes = (LINK,)
    joined.look()
    joined.hot()
    joined.look()
    run, gpu = joined.texts()
    assert "n1 GPU 3" not in run
    assert "GpuThrottledThermal summary: n1 GPU 3" in gpu


def test_a_key_that_left_an_incident_opens_a_new_one_after_its_end(joined: Channel) -> None:
    joined.slow(firing=False, lasted=60)
    joined.pass_time(REOPEN_SECONDS + 60)
    joined.hot(firing=False)
    joined.pass_time(60)
    joined.slow()
    joined.bench.deliver()
    assert ["Resolved" in message for message in joined.texts()] == [True, False]
    with joined.bench.store.transaction() as tx:
        first = tx.incidents()[-1]
        tx.save_incident(replace(first, note="seen"), joined.bench.clock.time)
    joined.slow(firing=False)
    joined.bench.deliver()
    assert ["Resolved" in message for message in joined.texts()] == [True, True]
