"""Hostile labels, names and reasons: nothing pings, breaks or overflows, wherever it is shown.

The messages themselves have their property test in test_messages.py; these are the other places, and the whole way.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from alerting_fakes import START, Bench, alert, body, logged_port, raw_alert, wait_until
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrometer_alerting.channel import answers
from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.messages import build, build_reply
from pyrometer_alerting.channel.silences import Preview, SilenceRefusedError, silence_view, silences_for
from pyrometer_alerting.incidents import own_alerts
from pyrometer_alerting.incidents.alertmanager import ActiveAlert, Matcher
from pyrometer_alerting.incidents.correlation import merged_incident
from pyrometer_alerting.incidents.lifecycle import fold
from pyrometer_alerting.model.incident import Incident
from pyrometer_kit import logs
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.slack_blocks import check_message

# Only what this service writes on purpose may stand in angle brackets.
ALLOWED = re.compile(r"<!date\^\d+\^[^<>]*>|<https?://[^<>]*>")
NASTY = (
    "<!channel>", "<!here> <@U0ABCDEF>", "<https://evil.example|click>", "&lt;!channel&gt;", "*b* _i_ ~s~ `c` ```x```",
    "\u202egnp.exe", "a\u200bb\u2066c", "\U0001f525" * 50, "x" * 10_000, "\"'`$(reboot)`\\", "line\nline\r\n\u2028line",
    "\x00\x1b[31m", "\ud800", "{{ .Labels }}", "%s %d {0}",
)  # fmt: skip
values = st.sampled_from(NASTY) | st.text(max_size=60)


def is_harmless(said: str) -> None:
    left = ALLOWED.sub("", said)
    assert "<" not in left
    assert ">" not in left
    assert "\u202e" not in left
    assert "\u200b" not in left


def incident_of(name: str, node: str, gpu: str, summary: str, number: int = 1) -> Incident:
    labels = {"alertname": name, "node": node, "gpu": gpu, "cluster": "c"}
    annotations = {"summary": summary, "description": summary, "runbook": summary}
    change = fold(None, [alert(labels=labels, annotations=annotations, fingerprint=f"{name}{number}")], 0, START)
    assert change is not None
    return change.incident


@settings(max_examples=150)
@given(values, values, values, values)
def test_joined_domain_and_own_messages(name: str, node: str, gpu: str, summary: str) -> None:
    one, two = incident_of(name, node, gpu, summary), incident_of(f"{name}2", node, gpu, summary, 2)
    joined = merged_incident([one, two], f"switch {node}")
    pointer = incident_of(name, node, gpu, summary)
    for incident in (joined, Incident(**{**pointer.__dict__, "joined_into": "x", "note": summary})):
        for message in (build(incident, Style(notice=summary)), build_reply(incident, "joined", Style())):
            check_message({"text": message.text, "blocks": message.blocks})
            is_harmless(message.text)
            blocks = [block for block in message.blocks if block["type"] != "header"]  # plain text needs no escapes
            is_harmless(json.dumps(blocks, ensure_ascii=False))
    missed = own_alerts.missed({f"{name} {node}": (0.0, 1.0)}, 0.0, 9.0, outage=summary)
    change = fold(None, [alert(labels=dict(missed.labels), annotations=dict(missed.annotations))], 0, START)
    assert change is not None
    message = build(change.incident, Style())
    check_message({"text": message.text, "blocks": message.blocks})
    is_harmless(message.text)


@settings(max_examples=150)
@given(values, values, values, values)
def test_answers_and_the_modal(name: str, node: str, gpu: str, reason: str) -> None:
    incident = Incident(**{**incident_of(name, node, gpu, reason).__dict__, "note": reason, "acknowledged": reason})
    shown = [
        answers.status([incident] * 30, START),
        answers.muted([incident], [], START),
        answers.why(reason, [incident], START),
        answers.node(incident, [incident], [], START),
    ]
    for said in shown:
        assert len(said) <= 3000
        is_harmless(said)
    try:
        matchers = silences_for(incident)[0]
    except SilenceRefusedError:
        matchers = (Matcher("alertname", name),)
    seen = ActiveAlert("f", {"alertname": name, "node": node}, {}, START)
    view = silence_view(incident, 4, "C1", [Preview(matchers, (seen,) * 30)])
    check_message({"blocks": view["blocks"][:1], "text": ""})
    is_harmless(view["blocks"][0]["text"]["text"])
    assert len(view["private_metadata"]) < 3000


def test_the_whole_way_with_every_nasty_label(bench: Bench) -> None:
    for number, value in enumerate(NASTY):
        labels = {"node": value, "gpu": value, "run": value, "component": value, "severity": value, "cluster": value}
        raw = raw_alert(value, fingerprint=f"{number:016x}", annotations={"summary": value, "runbook": value}, **labels)
        bench.receive(raw, groupKey=str(number))
    bench.deliver()
    assert len(bench.messages) == len(NASTY)
    assert bench.count("chat.postMessage", "ok") == len(NASTY)
    for message in bench.messages:
        is_harmless(message["text"])


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_no_log_line_has_a_secret_at_any_level(form: str) -> None:
    formatter = logs.JsonLines() if form == "json" else logs.Logfmt()
    said = "xoxb-1-abc xapp-1-A-2-b wss://x/link?ticket=abc-123&app_id=1 http://me:pw@host/ xoxe.xoxp-1-x"
    try:
        raise ValueError(said)
    except ValueError:
        record = logging.LogRecord("pyrometer_alerting.x", 10, __file__, 1, said, (), sys.exc_info())
    line = formatter.format(record)
    for secret in ("1-abc", "A-2-b", "abc-123", "me:pw", "xoxp-1-x"):
        assert secret not in line
    assert "\n" not in line


def test_the_service_at_debug_says_no_secret(tmp_path: Path, slack: FakeSlack) -> None:
    """The real process: a start with tokens, a message, a click's connection, a wrong token, and the end."""
    users = tmp_path / "config.yaml"
    users.write_text('slack-users: ["*"]\n')
    bearer = tmp_path / "bearer"
    bearer.write_text("first-bearer-secret\nsecond-bearer-secret\n")
    bearer.chmod(0o600)
    command = [
        sys.executable, "-m", "pyrometer_alerting.app.main", "--web.listen-address=127.0.0.1:0", "--log.level=debug",
        f"--storage.path={tmp_path / 's'}", f"--slack.api-url={slack.url}", "--slack.channel=#gpu-alerts",
        f"--config.file={users}", f"--web.bearer-token-file={bearer}", "--prometheus.url=http://me:hunter2@127.0.0.1:9/",
    ]  # fmt: skip
    tokens = {"PYROMETER_SLACK_BOT_TOKEN": "xoxb-test", "PYROMETER_SLACK_APP_TOKEN": "xapp-fake-token"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **tokens}, stdout=log, stderr=log)
    try:
        port = logged_port((tmp_path / "log").read_text)
        for token, expected in (("wrong-secret-guess", 401), ("second-bearer-secret", 200)):
            assert _post(port, body(raw_alert(node="secret-node-name")), token) == expected
        wait_until(lambda: slack.messages("gpu-alerts") and slack.app.socket.connected, seconds=20)
    finally:
        process.terminate()
        process.wait(20)
    said = (tmp_path / "log").read_text()
    assert "listening on" in said
    for secret in (
        "xoxb-test",
        "xapp-fake",
        "secret-ticket",
        "bearer-secret",
        "wrong-secret",
        "hunter2",
        "secret-node",
    ):
        assert secret not in said


def _post(port: int, data: bytes, token: str) -> int:
    for _ in range(300):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("POST", "/api/v1/alertmanager", data, {"Authorization": f"Bearer {token}"})
            return connection.getresponse().status
        except ConnectionRefusedError:
            time.sleep(0.1)
        finally:
            connection.close()
    raise AssertionError("never came up")
