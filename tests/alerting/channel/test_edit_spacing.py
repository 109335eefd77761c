"""Edits that change no decision are told together; what people must know is told at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import alerting_fakes
import pytest
from alerting_fakes import Bench, raw_alert

from pyrometer_alerting.model.incident import Cause, Cost, Diagnosis, Shape

HEAT = Cause("n1 GPU 3", "heat", labels={"node": "n1", "gpu": "3"}, confidence="high", family="throttle")
FLAP = Cause("n2 mlx5_1/1", "link flapping", labels={"node": "n2", "device": "mlx5_1"}, family="link")


def hot(bench: Bench, gpu: int, **kwargs: Any) -> dict[str, Any]:
    now = bench.clock.time
    return raw_alert("GpuThrottledThermal", node="n1", gpu=str(gpu), starts_at=now - 5, ends_at=now, **kwargs)


def calls(bench: Bench) -> list[str]:
    """Return the calls to Slack since the last time they were asked for."""
    bench.deliver(1.0)
    made = [call.method for call in bench.calls_on_cards()]
    bench.slack.calls.clear()
    return made


def test_alerts_that_come_and_go_cost_no_call_each(bench: Bench) -> None:
    lasting, made = hot(bench, 3), []
    bench.receive(lasting, hot(bench, 4))
    made += calls(bench)
    for turn in range(20):
        bench.clock.advance(30)
        bench.receive(lasting, hot(bench, 4, firing=bool(turn % 2)))
        made += calls(bench)
    assert made[0] == "chat.postMessage"
    assert len(made) <= 3
    bench.clock.advance(300)
    bench.deliver()
    assert "2 of 2 firing" in bench.messages[0]["text"]


def test_a_trouble_that_spreads_is_told_of_while_it_is_young(bench: Bench) -> None:
    bench.receive(hot(bench, 0))
    assert calls(bench) == ["chat.postMessage"]
    spread: list[float] = []
    for gpu in range(1, 8):
        bench.clock.advance(2)
        bench.receive(*(hot(bench, each) for each in range(gpu + 1)))
        spread += [bench.clock.time for _each in calls(bench)]
    assert 1 <= len(spread) <= 3
    bench.clock.advance(60)
    assert calls(bench) == ["chat.update"]
    assert "8 of 8 firing" in bench.messages[0]["text"]


def test_a_resolve_is_told_at_once_with_what_waited(bench: Bench) -> None:
    bench.receive(hot(bench, 3), hot(bench, 4))
    calls(bench)
    bench.clock.advance(10)
    bench.receive(hot(bench, 3), hot(bench, 4, firing=False))
    assert calls(bench) == []
    bench.receive(hot(bench, 3, firing=False), hot(bench, 4, firing=False))
    assert calls(bench) == ["chat.update", "chat.postMessage"]


@pytest.mark.parametrize(
    ("changed", "seconds"),
    [
        ({"causes": (FLAP, HEAT)}, 0),
        ({"shape": Shape("stopped", 1.0, "no batch for 80 s")}, 0),
        ({"causes": (replace(HEAT, cause="power brake"),)}, 30),
        ({"causes": (replace(HEAT, confidence="medium"),)}, 300),
        ({"slower": 0.3}, 30),
        ({"cost": Cost(0.1, 8, 0.4, 0.0)}, 30),
    ],
    ids=["another culprit", "the run stands", "another word", "less sure", "slower", "its first cost"],
)
def test_another_culprit_is_shown_at_once_and_details_together(
    bench: Bench, changed: dict[str, Any], seconds: float
) -> None:
    bench.intake._diagnoses = True
    diagnostician = alerting_fakes.diagnostician(bench)
    told: list[Diagnosis] = [Diagnosis(bench.clock.time, (HEAT,))]

    def diagnose() -> None:
        diagnostician.step(lambda _prometheus, _incident, _others, now: replace(told[-1], at=now))

    alert = raw_alert("TrainMfuDropped", run="r", component="train", starts_at=bench.clock.time - 2)
    for incident_id in bench.receive(alert).diagnose:
        diagnostician.poke(incident_id)
    diagnose()
    assert calls(bench) == ["chat.postMessage"]
    told.append(replace(told[0], **changed))
    bench.clock.advance(10)
    diagnose()
    if seconds:
        assert calls(bench) == []
        bench.clock.advance(seconds - 15)
        assert calls(bench) == []
        bench.clock.advance(10)
    assert calls(bench) == ["chat.update"]


def test_numbers_that_move_with_each_look_are_edited_ever_less_often(bench: Bench) -> None:
    bench.intake._diagnoses = True
    diagnostician, made, turn = alerting_fakes.diagnostician(bench), list[str](), 0
    alert = raw_alert("TrainMfuDropped", run="r", component="train", starts_at=bench.clock.time - 2)
    for incident_id in bench.receive(alert).diagnose:
        diagnostician.poke(incident_id)
    while turn < 60:
        turn += 1
        share = 0.2 + 0.1 * (turn % 2)
        diagnostician.step(lambda *given: Diagnosis(given[-1], (HEAT,), slower=share))  # noqa: B023
        made += calls(bench)
        bench.clock.advance(10)
    assert 3 <= len(made) <= 7
