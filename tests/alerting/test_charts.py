"""Charts on their way to Slack: never before the text, never instead of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from alerting_fakes import START, Bench, raw_alert

from pyrometer_alerting.contents import CHARTS_RETRY_SECONDS
from pyrometer_alerting.model import Curve, Diagnosis

DROP = raw_alert("TrainMfuDropped", run="llama", component="train")
CURVE = Curve((START, START + 10, START + 20), (0.4, 0.4, 0.3), (0.4, 0.4, 0.2), 0.4)


def diagnose(bench: Bench, at: float = 0.0) -> None:
    with bench.store.transaction() as tx:
        (incident,) = tx.incidents()
        tx.save_incident(replace(incident, diagnosis=Diagnosis(START + at, curve=CURVE)), START)
        tx.outbox.want(incident.id, bench.clock.time, bench.clock.time)


def kinds(message: Any) -> list[str]:
    return [block["type"] for block in message["blocks"]]


def test_the_text_comes_first_and_the_chart_by_an_edit(bench: Bench) -> None:
    bench.receive(DROP)
    bench.deliver()
    diagnose(bench)
    bench.deliver()
    (message,) = bench.messages
    assert "data_visualization" not in kinds(message["versions"][0])
    assert "data_visualization" in kinds(message)


def test_a_workspace_without_charts_is_asked_once_a_week(bench: Bench) -> None:
    bench.slack.native_charts = False
    bench.receive(DROP)
    bench.deliver()
    diagnose(bench)
    bench.deliver()
    (message,) = bench.messages
    assert "data_visualization" not in kinds(message)
    assert "header" in kinds(message)
    refused = outcomes(bench).count("invalid_blocks")
    diagnose(bench, at=60.0)
    bench.deliver()
    assert outcomes(bench).count("invalid_blocks") == refused == 1
    bench.slack.native_charts = True
    bench.clock.advance(CHARTS_RETRY_SECONDS + 1)
    diagnose(bench, at=120.0)
    bench.deliver()
    assert "data_visualization" in kinds(bench.messages[0])


def outcomes(bench: Bench) -> list[str]:
    return [call.outcome for call in bench.slack.calls]
