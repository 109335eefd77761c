"""The fake Slack refuses what Slack refuses, as seen through Slack's own SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError

from pyrometer_kit.http_client import get
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.slack_blocks import SlackError, check_message
from pyrometer_simulator.slack_channel import RateLimits


@pytest.fixture
def slack() -> Any:
    with FakeSlack(channel_names=["#gpu-alerts"], token="xoxb-test") as fake:
        yield fake


@pytest.fixture
def client(slack: FakeSlack) -> Any:
    return connect(slack)


def connect(slack: FakeSlack, token: str = "xoxb-test") -> Any:  # noqa: S107 - of a fake
    return WebClient(token, base_url=slack.url, timeout=2, retry_handlers=[])


def section(text: Any = "x") -> Any:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def error_of(call: Any) -> Any:
    with pytest.raises(SlackApiError) as caught:
        call()
    return caught.value.response["error"]


def test_post_update_reply_history_and_delete(client: WebClient, slack: FakeSlack) -> None:
    metadata = {"event_type": "e", "event_payload": {"op_id": "1"}}
    posted = client.chat_postMessage(channel="#gpu-alerts", text="one", blocks=[section()], metadata=metadata)
    channel, ts = posted["channel"], posted["ts"]
    client.chat_update(channel=channel, ts=ts, text="two", metadata=metadata)
    client.chat_postMessage(channel=channel, text="reply", thread_ts=ts)
    (message,) = slack.messages("gpu-alerts")
    assert message["text"] == "two"
    assert message["versions"][0]["text"] == "one"
    assert [reply["text"] for reply in message["replies"]] == ["reply"]
    history = client.conversations_history(channel=channel, include_all_metadata=True)["messages"]
    assert history[0]["metadata"] == metadata
    assert len(history) == 1
    assert "metadata" not in client.conversations_history(channel=channel)["messages"][0]
    assert len(client.conversations_replies(channel=channel, ts=ts)["messages"]) == 2
    client.chat_delete(channel=channel, ts=ts)
    assert slack.messages("gpu-alerts") == []
    assert [call.outcome for call in slack.calls] == ["ok"] * len(slack.calls)


def test_history_comes_in_pages_newest_first(client: WebClient) -> None:
    for number in range(5):
        channel = client.chat_postMessage(channel="gpu-alerts", text=str(number))["channel"]
    first = client.conversations_history(channel=channel, limit=2)
    cursor = first["response_metadata"]["next_cursor"]
    second = client.conversations_history(channel=channel, limit=2, cursor=cursor)
    assert [message["text"] for message in [*first["messages"], *second["messages"]]] == ["4", "3", "2", "1"]


def test_errors_have_slacks_names(client: WebClient, slack: FakeSlack) -> None:
    channel = client.conversations_list()["channels"][0]["id"]
    assert error_of(lambda: connect(slack, "xoxb-wrong").auth_test()) == "invalid_auth"
    assert error_of(lambda: client.chat_postMessage(channel="nowhere", text="x")) == "channel_not_found"
    assert error_of(lambda: client.chat_update(channel="gpu-alerts", ts="1.0", text="x")) == "channel_not_found"
    assert error_of(lambda: client.chat_update(channel=channel, ts="1.0", text="x")) == "message_not_found"
    assert error_of(lambda: client.chat_postMessage(channel=channel, text="x", thread_ts="1.0")) == "thread_not_found"
    assert error_of(lambda: client.api_call("chat.nonsense")) == "unknown_method"
    slack.channel(channel).archived = True
    assert error_of(lambda: client.chat_postMessage(channel=channel, text="x")) == "is_archived"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({}, "no_text"),
        ({"text": "x" * 40_001}, "msg_too_long"),
        ({"text": "x", "blocks": [section()] * 51}, "invalid_blocks"),
        ({"text": "x", "blocks": [section("y" * 3001)]}, "invalid_blocks"),
        ({"text": "x", "blocks": [section("")]}, "invalid_blocks"),
        ({"text": "x", "blocks": [section("y" * 3000)] * 5}, "msg_blocks_too_long"),
        ({"text": "x", "blocks": ["section"]}, "invalid_blocks_format"),
        ({"text": "x", "blocks": [{"type": "poem"}]}, "invalid_blocks"),
        ({"text": "x", "blocks": [{"type": "header", "text": {"type": "mrkdwn", "text": "y"}}]}, "invalid_blocks"),
        (
            {"text": "x", "blocks": [{"type": "header", "text": {"type": "plain_text", "text": "y" * 151}}]},
            "invalid_blocks",
        ),
        ({"text": "x", "blocks": [{"type": "section", "fields": [section()["text"]] * 11}]}, "invalid_blocks"),
        ({"text": "x", "metadata": {"event_type": 1}}, "invalid_metadata_format"),
    ],
)
def test_limits_of_block_kit(args: Any, code: Any) -> None:
    with pytest.raises(SlackError) as caught:
        check_message(args)
    assert caught.value.code == code


def test_rate_limits_answer_429_with_a_time() -> None:
    with FakeSlack(token="xoxb-test", limits=RateLimits(post_burst=2)) as slack:
        client = connect(slack)
        for _ in range(2):
            client.chat_postMessage(channel="gpu-alerts", text="x")
        with pytest.raises(SlackApiError) as caught:
            client.chat_postMessage(channel="gpu-alerts", text="x")
        assert caught.value.response.status_code == 429
        assert int(caught.value.response.headers["Retry-After"]) >= 1
        client.auth_test()  # other methods go on


def test_injected_faults_lose_the_request_or_the_answer(client: WebClient, slack: FakeSlack) -> None:
    slack.inject("chat.postMessage", "close_before")
    slack.inject("chat.postMessage", "close_after")
    slack.inject("chat.postMessage", "status", status=503)
    slack.inject("chat.postMessage", "error", error="fatal_error")
    for expected in (0, 1, 1, 1):
        with pytest.raises((SlackApiError, OSError)):
            client.chat_postMessage(channel="gpu-alerts", text="x")
        assert len(slack.messages("gpu-alerts")) == expected


def test_an_outage_keeps_what_was_said(client: WebClient, slack: FakeSlack) -> None:
    client.chat_postMessage(channel="gpu-alerts", text="before")
    slack.down()
    with pytest.raises(OSError, match="refused"):
        client.auth_test()
    slack.up()
    client.chat_postMessage(channel="gpu-alerts", text="after")
    assert [message["text"] for message in slack.messages("gpu-alerts")] == ["before", "after"]


def test_the_page_shows_the_channel_and_escapes_it(client: WebClient, slack: FakeSlack) -> None:
    text = "*bold* <https://x/|link> <script>alert(1)</script> &lt;b&gt;"
    ts = client.chat_postMessage(channel="gpu-alerts", text="x", blocks=[section(text)])["ts"]
    client.chat_postMessage(channel="gpu-alerts", text="in the thread", thread_ts=ts)
    page = get(slack.page_url).decode()
    assert "<b>bold</b>" in page
    assert '<a href="https://x/">link</a>' in page
    assert "in the thread" in page
    assert "<script" not in page
    assert "&lt;b&gt;" in page
    assert "fake Slack" in page


CHART: dict[str, Any] = {
    "type": "data_visualization",
    "title": "MFU",
    "chart": {
        "type": "line",
        "series": [{"name": "mfu", "data": [{"label": "1", "value": 40.0}, {"label": "2", "value": 41}]}],
        "axis_config": {"categories": ["1", "2"], "x_label": "UTC", "y_label": "%"},
    },
}


def changed(**changes: Any) -> Any:
    chart = json.loads(json.dumps(CHART))
    for path, value in changes.items():
        *folders, name = path.split("__")
        place = chart
        for folder in folders:
            place = place[int(folder) if folder.isdigit() else folder]
        place[name] = value
    return chart


@pytest.mark.parametrize(
    "chart",
    [
        changed(title="x" * 51),
        changed(chart__type="radar"),
        changed(chart__series=[]),
        changed(chart__series__0__name="x" * 21),
        changed(chart__series__0__data=[{"label": "1", "value": 1}]),
        changed(chart__axis_config__categories=["1", "1"]),
        changed(chart__series=[CHART["chart"]["series"][0]] * 2),
        changed(chart__series__0__data=[{"label": "1", "value": "1"}, {"label": "2", "value": 1}]),
        changed(chart__axis_config__categories=[str(n) for n in range(21)]),
    ],
)
def test_charts_have_limits(chart: Any) -> None:
    check_message({"text": "x", "blocks": [CHART]})
    with pytest.raises(SlackError, match="invalid_blocks"):
        check_message({"text": "x", "blocks": [chart]})
    with pytest.raises(SlackError, match="invalid_blocks"):
        check_message({"text": "x", "blocks": [CHART, CHART, CHART]})


def test_a_workspace_without_charts_refuses_the_whole_message() -> None:
    with FakeSlack(native_charts=False) as slack:
        client = connect(slack, "xoxb-fake-token")
        with pytest.raises(SlackApiError, match="invalid_blocks"):
            client.chat_postMessage(channel="gpu-alerts", text="x", blocks=[CHART])


def test_a_picture_is_uploaded_in_three_calls_and_shown_when_it_is_processed() -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(40)
    with FakeSlack() as slack:
        slack.files.processing_seconds = 3600.0
        client = connect(slack, "xoxb-fake-token")
        given = client.files_getUploadURLExternal(filename="a.png", length=len(png))
        image = [{"type": "image", "alt_text": "a", "slack_file": {"id": given["file_id"]}}]
        with pytest.raises(SlackApiError, match="file_not_found"):
            client.files_completeUploadExternal(files=[{"id": given["file_id"]}])
        assert requests.post(given["upload_url"], data=png[:-1], timeout=5).status_code == 400
        assert requests.post(given["upload_url"], data=png, timeout=5).status_code == 200
        client.files_completeUploadExternal(files=[{"id": given["file_id"], "title": "A"}])
        assert client.files_info(file=given["file_id"])["file"]["mimetype"] == ""
        with pytest.raises(SlackApiError, match="invalid_blocks"):
            client.chat_postMessage(channel="gpu-alerts", text="x", blocks=image)
        slack.files.processing_seconds = 0.0
        assert client.files_info(file=given["file_id"])["file"]["mimetype"] == "image/png"
        client.chat_postMessage(channel="gpu-alerts", text="x", blocks=image)
        assert b"/files/" in slack.page()
