"""A real Alertmanager on free ports, and the service in front of it, for the tests of what Alertmanager really does."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from alerting_fakes import FakePrometheus, told, wait_until

from pyrometer_alerting.app.service import MAX_DELIVERY_BYTES, WEBHOOK_PATH, Service
from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.delivery_loop import Timing
from pyrometer_alerting.channel.slack import WebSlack
from pyrometer_alerting.incidents.alertmanager import Alertmanager
from pyrometer_alerting.incidents.missed import MissedAlertScan
from pyrometer_alerting.incidents.reconcile import Pace
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_kit.clock import SystemClock
from pyrometer_kit.flags import Address
from pyrometer_kit.http_client import get
from pyrometer_kit.http_message import Request, Response, Route
from pyrometer_kit.http_thread import ServerThread
from pyrometer_kit.prometheus import Series
from pyrometer_kit.webconfig import WebConfig
from pyrometer_simulator.demo.processes import answers
from pyrometer_simulator.http_call import call
from pyrometer_simulator.ports import serving
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.stack import find_stack

# A route per label `row` so that the rows of the table share one Alertmanager without meeting in one group.
CONFIG = """
route:
  receiver: pyrometer
  group_by: [row]
  group_wait: {group_wait}
  group_interval: {group_interval}
  repeat_interval: 4h
  routes:
    - matchers: [alertname="Clock"]
      receiver: nobody
receivers:
  - name: nobody
  - name: pyrometer
    webhook_configs:
{webhooks}
inhibit_rules:
  - source_matchers: [alertname="Throttle"]
    target_matchers: [alertname="MfuDrop"]
    equal: [row]
"""

EAGER = Pace(every=3600, gone=0.0, gone_alone=0.0, undelivered=1.0, doubt=5.0)


class RealAlertmanager:
    """One Alertmanager process; `post` speaks to it as Prometheus does."""

    def __init__(
        self, folder: Path, *urls: str, group_wait: str = "0s", group_interval: str = "300ms", max_alerts: int = 0
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.port = folder, 0  # until it was started once
        webhooks = "\n".join(f"      - url: {url}\n        max_alerts: {max_alerts}" for url in urls)
        (folder / "am.yaml").write_text(
            CONFIG.format(webhooks=webhooks, group_wait=group_wait, group_interval=group_interval)
        )
        self.cluster: list[str] = ["--cluster.listen-address="]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *flags: str) -> None:
        if self.port:
            self._process = self._begin(self.port, *flags)
            wait_until(lambda: answers(f"{self.url}/-/ready"), seconds=20)
        else:
            self._process, self.port = serving(lambda port: self._begin(port, *flags))

    def _begin(self, port: int, *flags: str) -> subprocess.Popen[bytes]:
        command = [
            *find_stack(lambda _line: None).alertmanager_command,
            f"--config.file={self._folder / 'am.yaml'}",
            f"--storage.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=debug",  # logs every flush
            *self.cluster,
            *flags,
        ]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def members(self) -> int:
        """Return how many peers it knows to be there, itself included."""
        return len(self._ask("GET", "/api/v2/status")["cluster"]["peers"])

    def notified(self) -> float:
        """Return how many deliveries it has tried."""
        lines = get(f"{self.url}/metrics").decode().splitlines()
        name = 'alertmanager_notifications_total{integration="webhook"'
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    def end(self, number: int = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(20)
            self._process = None

    def post_ends(self, *alerts: Mapping[str, Any], row: str) -> None:
        """Post alerts of which one is over, and wait until its group was gone through with that: now or never."""
        log = self._folder / "log"
        before = log.stat().st_size
        self.post(*alerts)

        def is_flushed() -> bool:
            lines = log.read_bytes()[before:].decode(errors="replace").splitlines()
            heard = [n for n, line in enumerate(lines) if "Received alert" in line and "[resolved]" in line]
            return bool(heard) and any(flush > heard[0] for flush in _flushes(lines, row))

        wait_until(is_flushed, seconds=60)

    def let_flush(self, times: int = 4) -> None:
        """Wait until a group that fires was gone through so often, and so was every other: each has its turn."""
        log, row = self._folder / "log", f"clock {time.time()}"
        clock = prom_alert("Clock", row, began=time.time())
        self.post(clock)
        wait_until(lambda: len(_flushes(log.read_text(errors="replace").splitlines(), row)) >= times, seconds=60)
        self.post({**clock, "endsAt": iso(time.time())})

    def post(self, *alerts: Mapping[str, Any]) -> None:
        self._ask("POST", "/api/v2/alerts", list(alerts))

    def post_grouped(self, *alerts: Mapping[str, Any], row: str) -> None:
        """Post alerts and wait until they are in their group: what is posted next cannot overtake them."""
        self.post(*alerts)
        wait_until(
            lambda: any(group["labels"] == {"row": row} for group in self._ask("GET", "/api/v2/alerts/groups")),
            seconds=60,
        )

    def silence(self, seconds: float, **labels: str) -> None:
        matchers = [{"name": name, "value": value, "isRegex": False, "isEqual": True} for name, value in labels.items()]
        now = time.time()
        times = {"startsAt": iso(now - 1), "endsAt": iso(now + seconds)}
        self._ask("POST", "/api/v2/silences", {"matchers": matchers, "createdBy": "alice", "comment": "x", **times})

    def alerts(self) -> list[dict[str, Any]]:
        return self._ask("GET", "/api/v2/alerts")

    def _ask(self, method: str, path: str, document: object = None) -> Any:
        data = None if document is None else json.dumps(document).encode()
        reply = call(f"{self.url}{path}", data, method=method, Content_Type="application/json")
        assert reply.status < 300, reply
        return json.loads(reply.body or b"null")


def _flushes(log: Sequence[str], row: str) -> list[int]:
    return [number for number, line in enumerate(log) if "flushing" in line and f'row=\\"{row}\\"' in line]


def iso(unix: float) -> str:
    return datetime.fromtimestamp(unix, tz=timezone.utc).isoformat()


def prom_alert(
    name: str, row: str, *, began: float, ended: float | None = None, summary: str = "", **labels: str
) -> dict[str, Any]:
    """As Prometheus sends it: firing ones expire in 4 minutes when nothing more is heard."""
    return {
        "labels": {"alertname": name, "row": row, "cluster": row, "severity": "critical", "component": "gpu", **labels},
        "annotations": {"summary": summary or f"{name} {row}", "description": "measured"},
        "startsAt": iso(began),
        "endsAt": iso(ended if ended is not None else time.time() + 240),
    }


class Receiver:
    """The whole service behind its HTTP server, with a fake Slack; it can be out of order, or slow."""

    def __init__(self, folder: Path, slack: FakeSlack) -> None:
        self._slack = slack
        self._store = Store(folder / "store")
        self.prometheus = FakePrometheus()
        self.deliveries: list[Any] = []
        self.refuse = 0
        webhook = Route(self._handle, ("POST",), max_body=MAX_DELIVERY_BYTES)
        self.server = ServerThread({WEBHOOK_PATH: webhook}, WebConfig())
        self.server.start(Address("127.0.0.1", 0))
        self.service: Service | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}{WEBHOOK_PATH}"

    def start(self, alertmanagers: Sequence[RealAlertmanager], *, prometheus: bool = True) -> None:
        self.service = Service(
            self._store,
            WebSlack("xoxb-test", self._slack.url),
            "#gpu-alerts",
            prometheus=self.prometheus if prometheus else None,
            style=Style(),
            clock=SystemClock(),
            alertmanagers=[Alertmanager(each.url) for each in alertmanagers],
        )
        self.service.courier._timing = Timing(first_look=0.1, second_look=0.2, backoff=0.1)
        self.service.reconciler._pace = EAGER
        self.service.reconciler._missed_scan = MissedAlertScan(time.time(), late=0.5, every=0.5, away=3600)
        self.service.start()

    def stop(self) -> None:
        self.server.stop()
        if self.service is not None:
            self.service.stop()

    def _handle(self, request: Request) -> Response:
        if self.refuse:
            self.deliveries.append(self.refuse)
            return Response(self.refuse, b"out of order\n")
        self.deliveries.append(json.loads(request.body))
        assert self.service is not None
        return self.service.routes()[WEBHOOK_PATH].handler(request)

    def fires(self, *alerts: Mapping[str, Any]) -> None:
        """Set the answer of Prometheus to queries for now."""
        now = time.time()
        firing = [Series({**alert["labels"], "alertstate": "firing"}, ((now, 1.0),)) for alert in alerts]
        self.prometheus.answers = [("^ALERTS", list(firing))]

    def fired(self, labels: Mapping[str, str], began: float, ended: float) -> None:
        """Set the answer of Prometheus about the past: samples of ALERTS."""
        points = tuple((when, 1.0) for when in (began, (began + ended) / 2, ended))
        self.prometheus.answers = [("^ALERTS", [Series({**labels, "alertstate": "firing"}, points)])]

    def reconcile(self) -> None:
        assert self.service is not None
        self.service.reconciler.step()

    def incidents(self, row: str) -> list[dict[str, Any]]:
        assert self.service is not None
        path = "/api/v1/incidents"
        found = json.loads(self.service.routes()[path].handler(Request("GET", path)).body)["incidents"]
        return [incident for incident in found if incident["cluster"] == row]

    def messages(self, row: str) -> list[dict[str, Any]]:
        ids = {incident["id"] for incident in self.incidents(row)}
        return [
            told(message, self._store)
            for message in self._slack.messages("gpu-alerts")
            if message["metadata"]["event_payload"]["incident_id"] in ids
        ]

    def delivered(self, row: str) -> list[Any]:
        return [each for each in self.deliveries if isinstance(each, dict) and f'row="{row}"' in each["groupKey"]]
