"""Measure bursts: 2,000 alerts of 500 nodes in one delivery, 300 flapping ports of one switch, 20,000 alerts.

Slack enforces its real limits (1 post/s, 50 other calls/min). Printed: the seconds until Alertmanager has its answer,
the slowest page until all is applied, the calls that Slack got until all is told and until all is over, and how many
alerts are missing in the service.
Run: .venv/bin/python benchmarks/bench_storm.py   (about a minute; --only 20000 --repeat 5 for the largest alone)
     ... --gpus 2048,4096,8192,16384   instead: an alert of every GPU of a cluster of that size, in one delivery
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from harness import exit_on_signals

from pyrometer_simulator.http_call import call
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.slack import FakeSlack

Make: TypeAlias = Callable[[float, float | None], Sequence[Mapping[str, Any]]]
ALERTS = ("GpuThrottledThermal", "NicLinkDown", "NodeExporterDown", "CollectorFailing")


class Wiring(BaseHTTPRequestHandler):
    """A Prometheus that knows only the wiring: every port of device mlx5_0 leads to leaf-12."""

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        ports = "fabric_port_info" in form["query"][0]
        labels = [
            {"cluster": "c1", "node": f"p{n}", "device": "mlx5_0", "port": "1", "switch": "leaf-12"} for n in range(300)
        ]
        result = [{"metric": each, "value": [time.time(), "1"]} for each in labels] if ports else []
        body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        pass


def iso(unix: float) -> str:
    return datetime.fromtimestamp(unix, tz=timezone.utc).isoformat()


def alert(name: str, began: float, ended: float | None = None, **labels: str) -> dict[str, Any]:
    named = {"alertname": name, "cluster": "c1", "severity": "critical", **labels}
    return {
        "status": "firing" if ended is None else "resolved",
        "labels": named,
        "annotations": {"summary": f"{name} at {labels}", "description": "x" * 200, "runbook": "docs/alerts.md#x"},
        "startsAt": iso(began),
        "endsAt": "0001-01-01T00:00:00Z" if ended is None else iso(ended),
        "fingerprint": f"{hash((name, *labels.values())) & (2**64 - 1):016x}",
    }


def deliver(port: int, alerts: Sequence[Mapping[str, Any]]) -> float:
    document = {"version": "4", "groupKey": "{}", "receiver": "p", "status": "firing", "alerts": alerts}
    body = json.dumps(document).encode()
    started = time.monotonic()
    assert call(f"http://127.0.0.1:{port}/api/v1/alertmanager", body, seconds=30).status == 200
    return time.monotonic() - started


def get(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return bytes(answer.read())


def wait_for(port: int) -> None:
    """Wait until the service is up and has queried the wiring."""
    for _ in range(600):
        try:
            get(port, "/-/ready")
            break
        except OSError:
            time.sleep(0.1)
    time.sleep(5)


def applied(port: int) -> float:
    """Wait until the delivery is applied; return the seconds of the slowest page meanwhile."""
    slowest = 0.0
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        started = time.monotonic()
        get(port, "/")
        slowest = max(slowest, time.monotonic() - started)
        if b"pyrometer_alerting_inbox_depth 0.0" in get(port, "/metrics"):
            break
    return slowest


def settled(port: int) -> None:
    deadline = time.monotonic() + 60
    while b"pyrometer_alerting_outbox_depth 0.0" not in get(port, "/metrics") and time.monotonic() < deadline:
        time.sleep(0.2)


def burst(slack: FakeSlack, port: int, what: str, make: Make) -> None:
    began = time.time()
    calls, before = len(slack.calls), len(slack.messages("gpu-alerts"))
    firing = make(began, None)
    load = os.getloadavg()[0]
    seconds = deliver(port, firing)
    page = applied(port)
    time.sleep(1.0)
    settled(port)
    told, messages = len(slack.calls) - calls, len(slack.messages("gpu-alerts")) - before
    known = {
        each["fingerprint"]
        for incident in json.loads(get(port, "/api/v1/incidents"))["incidents"]
        for each in incident["alerts"]
    }
    missing = len({each["fingerprint"] for each in firing} - known)
    end_seconds = deliver(port, make(began, time.time()))
    end_page = applied(port)
    settled(port)
    over = sum("Resolved" in message["text"] for message in slack.messages("gpu-alerts")[before:])
    print(
        f"{what} (load {load:.1f}): accepted in {seconds:.2f} s, slowest page {page:.2f} s; {messages} messages,"
        f" {told} calls; {missing} alerts missing; all over: accepted in {end_seconds:.2f} s, page {end_page:.2f} s,"
        f" {over} messages say so, {len(slack.calls) - calls} calls in all"
    )
    for message in slack.messages("gpu-alerts")[before:]:
        print("   ", message["text"].splitlines()[0])


def each_node(nodes: int, prefix: str) -> Make:
    """Return the alerts of each of ALERTS on so many nodes."""
    return lambda began, ended: [
        alert(name, began, ended, node=f"{prefix}{node}") for node in range(nodes) for name in ALERTS
    ]


def each_gpu(gpus: int) -> Make:
    """Return an alert of each of so many GPUs, eight a node, as when the cooling of a hall fails."""
    return lambda began, ended: [
        alert("GpuThrottledThermal", began, ended, node=f"g{gpu // 8}", gpu=str(gpu % 8), component="gpu")
        for gpu in range(gpus)
    ]


def ports(began: float, ended: float | None) -> list[dict[str, Any]]:
    """Return the alerts of a switch's ports."""
    names = {"device": "mlx5_0", "port": "1", "component": "nic"}
    return [alert("NicLinkFlapping", began, ended, node=f"p{n}", **names) for n in range(300)]


BURSTS: dict[int, tuple[str, Make]] = {
    2000: ("2,000 alerts of 500 nodes", each_node(500, "n")),
    300: ("300 flapping ports of a switch", ports),
    20000: ("20,000 alerts of 5,000 nodes", each_node(5000, "m")),
}


def main() -> None:
    flags = argparse.ArgumentParser(description="Bursts of alerts.")
    flags.add_argument("--only", type=int, choices=(2000, 300, 20000), help="one of the three, by its alerts")
    flags.add_argument("--repeat", type=int, default=1, help="how often (%(default)s)")
    flags.add_argument("--gpus", default="", help="sizes of clusters whose GPUs all have an alert, such as 2048,16384")
    options = flags.parse_args()
    exit_on_signals()
    chosen = [what for count, what in BURSTS.items() if options.only in (None, count)]
    if options.gpus:
        chosen = [
            (f"{gpus:,} GPUs of {gpus // 8:,} nodes", each_gpu(gpus)) for gpus in map(int, options.gpus.split(","))
        ]
    for _ in range(options.repeat):
        for bursts in [[each] for each in chosen] if options.gpus else [chosen]:
            play(bursts)


def play(bursts: Sequence[tuple[str, Make]]) -> None:
    """Let a service of its own have the bursts, one after another."""
    with service() as (slack, port):
        for what, make in bursts:
            burst(slack, port, what, make)


@contextlib.contextmanager
def service() -> Iterator[tuple[FakeSlack, int]]:
    """Run the alerting service beside a Slack and a Prometheus; yield that Slack and the service's port."""
    with FakeSlack(token="xoxb-test") as slack, tempfile.TemporaryDirectory() as folder:  # noqa: S106 - made up
        wiring, port = HTTPServer(("127.0.0.1", 0), Wiring), free_port()
        threading.Thread(target=wiring.serve_forever, daemon=True).start()
        command = [
            sys.executable, "-m", "pyrometer_alerting.app.main", f"--web.listen-address=127.0.0.1:{port}",
            f"--storage.path={folder}/s", f"--slack.api-url={slack.url}", "--slack.channel=#gpu-alerts",
            f"--prometheus.url=http://127.0.0.1:{wiring.server_port}", "--log.level=error",
        ]  # fmt: skip
        process = subprocess.Popen(command, env={**os.environ, "PYROMETER_SLACK_BOT_TOKEN": "xoxb-test"})
        try:
            wait_for(port)
            yield slack, port
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)
            wiring.shutdown()


if __name__ == "__main__":
    main()
