"""The whole service over HTTP, and killed as a process at the worst moments."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from alerting_fakes import SILENT, FakePrometheus, body, logged_port, raw_alert, wait_until
from alerting_running import Running
from prometheus_client.parser import text_string_to_metric_families

from pyrometer_alerting.app import main
from pyrometer_alerting.app.service import WEBHOOK_PATH
from pyrometer_alerting.channel.slack import WebSlack
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_simulator.http_call import call
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.slack import FakeSlack

if TYPE_CHECKING:
    pass


def test_an_alert_becomes_a_message_a_page_and_json(running: Running, slack: FakeSlack) -> None:
    assert running.ask(WEBHOOK_PATH, body(raw_alert(node="gpu-042", gpu="3")))[0] == 200
    wait_until(lambda: slack.messages("gpu-alerts"))
    wait_until(lambda: running.incidents()[0]["posted_at"])
    (incident,) = running.incidents()
    assert incident["culprits"] == ["gpu-042 GPU 3"]
    assert incident["status"] == "firing"
    assert incident["slack"]["ts"] == slack.messages("gpu-alerts")[0]["ts"]
    assert incident["text"].splitlines()[0] == slack.messages("gpu-alerts")[0]["text"].replace("&amp;", "&")
    status, page = running.ask("/")
    assert status == 200
    assert b"GpuLost summary" in page
    assert page.count(b"SIMULATED CLUSTER") >= 2


def test_a_watchdog_that_stays_away_is_said_on_the_page(running: Running) -> None:
    running.ask(WEBHOOK_PATH, body(raw_alert("Watchdog", severity="info")))
    assert b"No Watchdog" not in running.ask("/")[1]
    with running.service._store.transaction() as tx:
        tx.save_fact("watchdog_last_seen", repr(time.time() - 300))
    assert b"No Watchdog alert for 5 min: Prometheus, Alertmanager or the path" in running.ask("/")[1]


def test_the_other_routes(running: Running) -> None:
    assert running.ask("/-/healthy")[0] == running.ask("/-/ready")[0] == 200
    assert running.ask("/", method="HEAD") == (200, b"")
    assert running.ask("/nothing")[0] == 404
    assert running.ask("/metrics", data=b"x")[0] == 405
    assert running.ask(WEBHOOK_PATH)[0] == 405
    running.ask(WEBHOOK_PATH, body(raw_alert("Watchdog")))
    names = {family.name for family in text_string_to_metric_families(running.ask("/metrics")[1].decode())}
    assert {
        "pyrometer_alerting_outbox_depth",
        "pyrometer_alerting_outbox_oldest_age_seconds",
        "pyrometer_alerting_webhook_to_slack_seconds",
        "pyrometer_alerting_incidents_open",
        "pyrometer_alerting_watchdog_last_seen_timestamp_seconds",
    } <= names


def test_an_open_incident_is_a_metric(running: Running) -> None:
    running.ask(WEBHOOK_PATH, body(raw_alert("GpuLost", node="gpu-007", gpu="1", severity="critical")))
    metrics = running.ask("/metrics")[1].decode()
    (line,) = [each for each in metrics.splitlines() if each.startswith("pyrometer_incident_start_timestamp_seconds{")]
    assert 'alert="GpuLost"' in line
    assert 'part="gpu-007 GPU 1"' in line


def test_what_is_not_alertmanagers_is_refused_and_counted(running: Running) -> None:
    status, said = running.ask(WEBHOOK_PATH, b"{]")
    assert (status, said) == (400, b"the body is not JSON\n")
    assert b'webhook_rejected_total{reason="not_json"} 1.0' in running.ask("/metrics")[1]
    assert running.ask("/-/healthy")[0] == 200


def test_a_thousand_alerts_of_one_node_are_one_incident(running: Running) -> None:
    """How fast they are taken: benchmarks/bench_storm.py."""
    alerts = [raw_alert(node="n", gpu=str(number), fingerprint=f"{number:016x}") for number in range(1000)]
    assert running.ask(WEBHOOK_PATH, body(*alerts))[0] == 200
    assert len(running.incidents()) == 1


def test_the_message_does_not_wait_for_a_slow_prometheus(tmp_path: Path, slack: FakeSlack) -> None:
    release = threading.Event()

    class Slow(FakePrometheus):
        def _answer(self, query: str) -> None:
            release.wait(100)
            raise SILENT

    with Running(Store(tmp_path / "s"), WebSlack("xoxb-test", slack.url), Slow()) as running:
        running.ask(WEBHOOK_PATH, body(raw_alert("TrainMfuDropped", run="r", component="train")))
        wait_until(lambda: slack.messages("gpu-alerts"))
        assert "looking for the cause" in slack.messages("gpu-alerts")[0]["text"]
        release.set()
        wait_until(lambda: "Prometheus did not answer" in str(slack.messages("gpu-alerts")[0]["blocks"]))
        assert "cause not proven" in slack.messages("gpu-alerts")[0]["text"]


def test_a_cause_that_arrives_later_is_looked_for_at_once(tmp_path: Path, slack: FakeSlack) -> None:
    prometheus = FakePrometheus()
    with Running(Store(tmp_path / "s"), WebSlack("xoxb-test", slack.url), prometheus) as running:
        running.ask(WEBHOOK_PATH, body(raw_alert("TrainMfuDropped", run="r", component="train")))
        wait_until(
            lambda: "not proven" in slack.messages("gpu-alerts")[0]["text"] if slack.messages("gpu-alerts") else 0
        )
        asked = len(prometheus.queries)
        running.ask(WEBHOOK_PATH, body(raw_alert("GpuThrottledThermal", node="n", gpu="1"), groupKey="other"))
        wait_until(lambda: len(prometheus.queries) > asked, seconds=3)


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"POST /api/v1/alertmanager HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n",
        b"POST /api/v1/alertmanager HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/v1/alertmanager HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ],
)
def test_bad_requests_are_answered_with_4xx(running: Running, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", running.server.port), timeout=5) as client:
        client.sendall(raw)
        assert client.recv(100).startswith(b"HTTP/1.1 4")


def test_a_delivery_in_chunks_is_taken(running: Running) -> None:
    content = body(raw_alert(node="n1"))
    head = b"POST /api/v1/alertmanager HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    parts = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (content[:50], content[50:]))
    with socket.create_connection(("127.0.0.1", running.server.port), timeout=5) as client:
        client.sendall(head + parts + b"0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200")
    assert len(running.incidents()) == 1


def test_a_delivery_that_is_too_large_is_accepted_and_told(running: Running, slack: FakeSlack) -> None:
    assert running.ask(WEBHOOK_PATH, b" " * (17 << 20))[0] == 200
    wait_until(lambda: slack.messages("gpu-alerts"))
    assert "A delivery was too large" in slack.messages("gpu-alerts")[0]["text"]
    assert running.ask("/metrics", b" " * (17 << 20))[0] == 413


def test_of_too_many_labels_or_alerts_some_are_left_out_and_nothing_is_refused(running: Running) -> None:
    labels = {f"label_{number}": "x" for number in range(100)}
    assert running.ask(WEBHOOK_PATH, body(raw_alert(node="n1", gpu="3", **labels)))[0] == 200
    assert running.incidents()[0]["culprits"] == ["n1 GPU 3"]


def test_the_answer_never_waits_for_slack(running: Running, slack: FakeSlack) -> None:
    slack.inject("chat.postMessage", "hang_before", seconds=10, times=20)
    for number in range(20):
        started = time.monotonic()
        assert running.ask(WEBHOOK_PATH, body(raw_alert(node=f"n{number}"), groupKey=str(number)))[0] == 200
        assert time.monotonic() - started < 9, "Slack hangs for 10 s"


def test_a_truncated_request_is_no_request_and_silent_clients_do_not_block(running: Running) -> None:
    silent = [socket.create_connection(("127.0.0.1", running.server.port)) for _ in range(20)]
    with socket.create_connection(("127.0.0.1", running.server.port), timeout=5) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX-a: ")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b""
    assert running.ask("/-/healthy")[0] == 200
    for client in silent:
        client.close()


def test_without_a_token_messages_go_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop = threading.Event()
    arguments = ["--web.listen-address=127.0.0.1:0", f"--storage.path={tmp_path / 'new' / 'folder'}"]
    thread = threading.Thread(target=main.run, args=(arguments, {}, stop))
    thread.start()
    post(logged_port(lambda: capsys.readouterr().err), body(raw_alert(node="gpu-042", gpu="3")))
    shown = ""

    def appeared() -> bool:
        nonlocal shown
        shown += capsys.readouterr().out
        return "GpuLost summary: gpu-042 GPU 3" in shown and "Now: `scontrol update NodeName=gpu-042" in shown

    wait_until(appeared)
    stop.set()
    thread.join(5)
    assert "\x1b" not in shown


def post(port: int, data: bytes, path: str = WEBHOOK_PATH) -> bytes:
    for _ in range(200):
        try:
            reply = call(f"http://127.0.0.1:{port}{path}", data, seconds=5)
            if reply.status == 200:
                return reply.body
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError("never came up")


class Process:
    """The service as a process of its own, to be killed."""

    def __init__(self, tmp_path: Path, slack: FakeSlack) -> None:
        self.port = free_port()  # the same after each restart
        self._arguments = [
            sys.executable,
            "-m",
            "pyrometer_alerting.app.main",
            f"--web.listen-address=127.0.0.1:{self.port}",
            f"--storage.path={tmp_path}",
            f"--slack.api-url={slack.url}",
            "--slack.channel=C000000001",
        ]
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "PYROMETER_SLACK_BOT_TOKEN": "xoxb-test"}
        self._process = subprocess.Popen(self._arguments, env=environment, stderr=subprocess.DEVNULL)

    def end(self, number: int = signal.SIGKILL) -> int:
        self._process.send_signal(number)
        return self._process.wait(10)


@pytest.mark.parametrize("moment", ["before_slack", "in_the_call", "after_slack"])
def test_kill_9_loses_nothing_and_repeats_nothing(tmp_path: Path, slack: FakeSlack, moment: str) -> None:
    fault = {"before_slack": "ratelimit", "in_the_call": "hang_after", "after_slack": None}[moment]
    if fault:
        slack.inject("chat.postMessage", fault, seconds=1 if fault == "ratelimit" else 30)
    process = Process(tmp_path / "s", slack)
    post(process.port, body(raw_alert(node="gpu-042", gpu="3")))
    wait_until(lambda: slack.messages("gpu-alerts") if moment != "before_slack" else slack.calls, seconds=25)
    process.end()
    process.start()
    try:
        post(process.port, body(raw_alert(node="gpu-042", gpu="3", firing=False)))
        # Killed between the call and its outcome on disk it looks for the message, 2 s and 12 s later.
        wait_until(
            lambda: slack.messages("gpu-alerts") and "Resolved" in slack.messages("gpu-alerts")[0]["text"], seconds=25
        )
    finally:
        assert process.end(signal.SIGTERM) == 0
    assert len(slack.messages("gpu-alerts")) == 1


def certificate(folder: Path, name: str) -> None:
    """Make a self-signed certificate for localhost, as cert.pem and key.pem."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command, "-subj", f"/CN={name}", *files], check=True, capture_output=True)


def served_name(port: int) -> bytes | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), timeout=5) as raw, context.wrap_socket(raw) as secured:
        return secured.getpeercert(binary_form=True)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on PATH: install the package openssl")
def test_a_new_certificate_token_and_route_are_taken_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "RELOAD_SECONDS", 0.05)
    certificate(tmp_path, "first")
    (tmp_path / "web.yaml").write_text("tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n")
    token, config = tmp_path / "token", tmp_path / "config.yaml"
    token.touch(mode=0o600)
    token.write_text("one")
    config.write_text("routing: {routes: []}")
    stop = threading.Event()
    arguments = [
        "--web.listen-address=127.0.0.1:0", f"--storage.path={tmp_path / 's'}", f"--config.file={config}",
        f"--web.config.file={tmp_path / 'web.yaml'}", f"--web.bearer-token-file={token}",
    ]  # fmt: skip
    thread = threading.Thread(target=main.run, args=(arguments, {}, stop))
    thread.start()
    port = logged_port(lambda: capsys.readouterr().err)

    def ask(path: str, presented: str = "", data: bytes = b"") -> tuple[int, str]:
        context = ssl._create_unverified_context()  # noqa: S323 - self-signed
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
        try:
            connection.request("POST", path, data, {"Authorization": f"Bearer {presented}"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except ConnectionRefusedError:
            return 0, ""
        finally:
            connection.close()

    try:
        wait_until(lambda: ask(WEBHOOK_PATH, "one", body(raw_alert()))[0] == 200)
        before = served_name(port)
        token.write_text("one\ntwo")
        wait_until(lambda: ask(WEBHOOK_PATH, "two", body(raw_alert()))[0] == 200)
        token.write_text("two")
        wait_until(lambda: ask(WEBHOOK_PATH, "one", body(raw_alert()))[0] == 401)
        certificate(tmp_path, "second")
        wait_until(lambda: served_name(port) != before)
        after = served_name(port)
        (tmp_path / "cert.pem").write_text("nonsense")
        assert ask("/-/reload")[0] == 401, "whoever may post no alert may reload nothing"
        assert ask("/-/reload", "two")[0] == 500
        assert served_name(port) == after  # an unusable certificate does not replace a usable one
        certificate(tmp_path, "third")
        assert ask("/-/reload", "two") == (200, "reloaded\n")
        config.write_text("routing: {rotes: []}")
        assert "config.yaml:1: unknown setting rotes" in ask("/-/reload", "two")[1]
    finally:
        stop.set()
        thread.join(10)
