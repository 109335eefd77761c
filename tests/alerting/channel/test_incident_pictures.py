"""Charts on their way to Slack: never before the text, never instead of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

import pytest
from alerting_fakes import START, Bench, FakePrometheus, iso, raw_alert

from pyrometer_alerting.channel.breaker import SlackFailure
from pyrometer_alerting.channel.composer import CHARTS_RETRY_SECONDS
from pyrometer_alerting.channel.incident_pictures import IncidentPictures, PictureUploader
from pyrometer_alerting.model.incident import ChartCurve, Diagnosis, Incident

DROP = raw_alert("TrainMfuDropped", run="llama", component="train")
CURVE = ChartCurve((START, START + 10, START + 20), (0.4, 0.4, 0.3), (0.4, 0.4, 0.2), 0.4)


def diagnose(bench: Bench, at: float = 0.0) -> None:
    with bench.store.transaction() as tx:
        (incident,) = tx.incidents()
        tx.save_incident(replace(incident, diagnosis=Diagnosis(START + at, curve=CURVE)), START)
        tx.outbox.request(incident.id, bench.clock.time, bench.clock.time)


def thread(bench: Bench) -> list[str]:
    """Return the kinds of the blocks below the card, in the evidence."""
    return [kind for reply in bench.slack.messages("gpu-alerts")[0]["replies"] for kind in kinds(reply)]


def kinds(message: dict[str, Any]) -> list[str]:
    return [block["type"] for block in message["blocks"]]


def test_the_text_comes_first_and_the_chart_by_an_edit(bench: Bench) -> None:
    bench.receive(DROP)
    bench.deliver()
    diagnose(bench)
    bench.deliver()
    (message,) = bench.messages
    assert "data_visualization" not in kinds(message)
    assert "data_visualization" in thread(bench)


def test_a_workspace_without_charts_is_asked_once_a_week(bench: Bench) -> None:
    bench.slack.native_charts = False
    bench.receive(DROP)
    bench.deliver()
    diagnose(bench)
    bench.deliver()
    (message,) = bench.messages
    assert "header" in kinds(message)
    assert "data_visualization" not in thread(bench)
    assert "section" in thread(bench)
    refused = outcomes(bench).count("invalid_blocks")
    diagnose(bench, at=60.0)
    bench.deliver()
    assert outcomes(bench).count("invalid_blocks") == refused == 1
    bench.slack.native_charts = True
    bench.clock.advance(CHARTS_RETRY_SECONDS + 1)
    diagnose(bench, at=120.0)
    bench.deliver()
    assert "data_visualization" in thread(bench)


def outcomes(bench: Bench) -> list[str]:
    return [call.outcome for call in bench.slack.calls]


PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


class Studio:
    """An pictures whose pictures are quick, on the bench's clock."""

    def __init__(self, bench: Bench, charts: str = "auto") -> None:
        self.drawn = 0
        self.waited: list[float] = []
        self.pictures = IncidentPictures(
            bench.store,
            PictureUploader(bench.web, self.waited.append, bench.courier.limits.breaker, bench.clock),
            FakePrometheus(),
            charts=charts,
            clock=bench.clock,
            metrics=bench.metrics,
            changed=bench.courier.wake,
        )
        self.pictures.load = lambda: self._draw
        self.bench = bench

    def _draw(self, prometheus: FakePrometheus, incident: Incident, now: float) -> bytes:
        self.drawn += 1
        return PNG

    def step(self) -> bool:
        made = self.pictures.step()
        self.bench.deliver()
        return made


@pytest.fixture
def studio(bench: Bench) -> Studio:
    bench.slack.native_charts = False
    bench.receive(DROP)
    bench.deliver()
    diagnose(bench)
    bench.deliver()
    return Studio(bench)


def test_without_chart_blocks_a_picture_follows_by_an_edit(bench: Bench, studio: Studio) -> None:
    assert studio.step()
    (reply,) = bench.slack.messages("gpu-alerts")[0]["replies"]
    (image,) = [block for block in reply["blocks"] if block["type"] == "image"]
    assert bench.slack.files.content(image["slack_file"]["id"]) == PNG
    assert "MFU" in image["alt_text"] or "TrainMfuDropped" in image["alt_text"]
    assert not studio.step()  # once is enough
    assert bench.count("chat.postMessage", "ok") == 2  # the card, and the evidence with it


def test_pictures_are_few_and_the_last_one_is_of_the_whole(bench: Bench, studio: Studio) -> None:
    for _ in range(11):  # 11 x 300 s of delivery pass, in which it fires on
        studio.step()
        bench.clock.advance(30)
    assert studio.drawn <= 11
    bench.receive({**DROP, "status": "resolved", "endsAt": iso(bench.clock.time)})
    bench.deliver(1)
    before = studio.drawn
    assert studio.step()
    assert not studio.step()
    assert studio.drawn == before + 1


def test_a_picture_that_slack_is_slow_with_is_waited_for_and_then_left_out(bench: Bench, studio: Studio) -> None:
    bench.slack.files.processing_seconds = 3600.0
    assert not studio.step()
    assert studio.waited == [1.0, 2.0, 4.0, 8.0]
    assert "image" not in thread(bench)
    assert "header" in kinds(bench.messages[0])


def test_a_refused_upload_leaves_the_message_as_it_is(bench: Bench, studio: Studio) -> None:
    bench.slack.inject("files.getUploadURLExternal", "error", error="missing_scope")
    assert not studio.step()
    assert "image" not in thread(bench)
    assert bench.courier.blocked == ""
    bench.clock.advance(61)
    assert studio.step()


def test_without_matplotlib_the_text_stands_alone(bench: Bench, studio: Studio) -> None:
    def absent() -> NoReturn:
        raise ImportError("matplotlib")

    studio.pictures.load = absent
    assert not studio.step()
    assert "header" in kinds(bench.messages[0])


def test_no_picture_is_made_where_slack_draws_itself(bench: Bench) -> None:
    bench.receive(DROP)
    bench.deliver()
    diagnose(bench)
    assert not Studio(bench).step()
    assert not Studio(bench, "off").step()
    assert Studio(bench, "picture").step()


def test_bytes_go_to_slacks_own_hosts_only(bench: Bench) -> None:
    for address in ("http://evil.example/x", "https://slack.com.evil.example/x", "http://files.slack.com/x"):
        with pytest.raises(SlackFailure, match="strange_host"):
            bench.web._send_bytes(address, PNG)
