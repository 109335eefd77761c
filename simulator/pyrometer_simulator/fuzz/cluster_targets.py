"""Targets of the cluster exporter and of the shared kit: UFM, Slurm, Prometheus, YAML, web requests."""

from __future__ import annotations

import asyncio
import json
import math
import re
import socket
from contextlib import ExitStack
from pathlib import Path

from pyrometer_simulator.fuzz.target import Check, Target


def ufm(folder: Path, _at_end: ExitStack) -> Check:
    """Build the check of UFM's event log, from the file to the samples."""
    from datetime import timezone  # noqa: PLC0415

    from pyrometer_exporters.cluster.ufm.event_counts import decoded  # noqa: PLC0415
    from pyrometer_exporters.cluster.ufm.families import event_samples  # noqa: PLC0415
    from pyrometer_exporters.cluster.ufm.reader import Reader  # noqa: PLC0415
    from pyrometer_exporters.framework.exposition import Renderer  # noqa: PLC0415
    from pyrometer_kit.statefile import StateFile  # noqa: PLC0415

    path = folder / "event.log"

    def check(data: bytes) -> None:
        path.write_bytes(b"")
        reader = Reader(path, timezone.utc, StateFile(None, "ufm.json"))
        try:
            reader.turn()
            with path.open("ab") as file:
                file.write(data)
            reader.turn()
            reader.turn()
            samples = list(event_samples(reader.counts, reader.lines, 1_790_000_000.0))
            Renderer().text(samples)
            kept = decoded(json.loads(json.dumps(reader.counts.encoded())))
            assert list(event_samples(kept, reader.lines, 1_790_000_000.0)) == samples
        finally:
            reader.close()

    return check


def ufm_telemetry(_folder: Path, _at_end: ExitStack) -> Check:
    """Build the check of UFM Telemetry's CSV, to the samples."""
    from pyrometer_exporters.cluster.ufm.fabric import HostPort  # noqa: PLC0415
    from pyrometer_exporters.cluster.ufm_telemetry.collector import temperature_samples  # noqa: PLC0415
    from pyrometer_exporters.cluster.ufm_telemetry.temperatures import rows, temperatures  # noqa: PLC0415
    from pyrometer_exporters.framework.exposition import Renderer  # noqa: PLC0415

    hosts = {f"{number:016x}": HostPort("n1", "mlx5_0", "1", f"{number:016x}") for number in range(2)}

    def check(data: bytes) -> None:
        found = temperatures(rows(data), hosts, 1_790_000_000.0)
        Renderer().text(list(temperature_samples([found])))
        assert all(-1000 < celsius < 1000 for celsius in (*found.modules.values(), *found.sensors.values()))

    return check


def slurm(_folder: Path, _at_end: ExitStack) -> Check:
    """Build the check of squeue's and sinfo's JSON."""
    from pyrometer_exporters.cluster.slurm.families import job_samples, node_samples  # noqa: PLC0415
    from pyrometer_exporters.cluster.slurm.jobs import jobs_of  # noqa: PLC0415
    from pyrometer_exporters.cluster.slurm.nodes import nodes_of  # noqa: PLC0415
    from pyrometer_exporters.framework.exposition import Renderer  # noqa: PLC0415
    from pyrometer_exporters.framework.outcome import PartError  # noqa: PLC0415

    def check(data: bytes) -> None:
        try:
            samples = [*job_samples(jobs_of(data))]
        except PartError:
            samples = []
        try:
            samples += node_samples(nodes_of(data))
        except PartError:
            pass
        Renderer().text(samples)

    return check


def prometheus(_folder: Path, _at_end: ExitStack) -> Check:
    """Build the check of Prometheus' answers, and of what the services make of them."""
    from pyrometer_alerting.diagnosis.batches import (  # noqa: PLC0415
        active_runs,
        batches,
        clean_curve,
        daily_wave,
        run_of,
    )
    from pyrometer_alerting.incidents.topology import topology  # noqa: PLC0415
    from pyrometer_exporters.cluster.ufm.fabric import host_ports, rails  # noqa: PLC0415
    from pyrometer_kit.prometheus import PrometheusError, Series, answer  # noqa: PLC0415

    class Prometheus:
        """Answers every query alike."""

        def __init__(self, body: bytes) -> None:
            self._body = body

        def instant(self, query: str, at: float) -> list[Series]:  # noqa: ARG002
            """Return the series of the body."""
            return answer(self._body)

        def range(self, query: str, start: float, end: float, step: float) -> list[Series]:  # noqa: ARG002
            """Return the series of the body."""
            return answer(self._body)

    def check(data: bytes) -> None:
        asked = Prometheus(data)
        try:
            series = answer(data)
        except PrometheusError:
            return
        assert all(isinstance(value, str) for one in series for value in one.labels.values())
        assert all(math.isfinite(at) for one in series for at, _ in one.points)
        for look in (
            lambda: active_runs(asked, 1e9),
            lambda: run_of(asked, "c1", "llama", 1e9),
            lambda: clean_curve(batches(asked, "c1", "llama", 0, 1e9), 0.4),
            lambda: daily_wave(asked, "c1", "llama", 1e9),
            lambda: topology(asked, 1e9),
            lambda: rails(host_ports(asked, 1e9)),
        ):
            try:
                look()
            except PrometheusError:
                pass

    return check


def alertmanager(_folder: Path, at_end: ExitStack) -> Check:
    """Build the check of Alertmanager's answers."""
    from pyrometer_alerting.incidents.alertmanager import Alertmanager, AlertmanagerError  # noqa: PLC0415

    class Answering(Alertmanager):
        """Has the body without asking."""

        body = b""

        def _body(self, method: str, path: str, document: object) -> bytes:  # noqa: ARG002
            return self.body

    asked = Answering("http://127.0.0.1:9")
    at_end.callback(asked.close)

    def check(data: bytes) -> None:
        asked.body = data
        for ask in (asked.alerts, asked.silences, lambda: asked.silence((), 1e9, "me", "why")):
            try:
                ask()
            except AlertmanagerError:
                pass

    return check


def yaml(folder: Path, _at_end: ExitStack) -> Check:
    """Build the check of every file of settings: each is read, or refused in one line."""
    from pyrometer_alerting.app import settings  # noqa: PLC0415
    from pyrometer_alerting.model import routing  # noqa: PLC0415
    from pyrometer_kit import webconfig, yamlfile  # noqa: PLC0415
    from pyrometer_kit.errors import UsageError  # noqa: PLC0415

    path = folder / "file.yaml"

    def check(data: bytes) -> None:
        path.write_bytes(data)
        for read in (
            lambda: list(yamlfile.entries(yamlfile.read(path))),
            lambda: webconfig.load(path),
            lambda: routing.load(path, "#gpu-alerts"),
            lambda: routing.load_users(path),
            lambda: settings.load([f"--config.file={path}"], {}),
        ):
            try:
                read()
            except UsageError as error:
                assert "\n" not in str(error), str(error)

    return check


def web_request(_folder: Path, at_end: ExitStack) -> Check:
    """Build the check of the web server: whatever is sent, its answers are HTTP and none is 500."""
    from pyrometer_kit.http_message import Request, Response, Route, text  # noqa: PLC0415
    from pyrometer_kit.http_server import WebServer  # noqa: PLC0415
    from pyrometer_kit.webconfig import WebConfig  # noqa: PLC0415

    async def hello(request: Request) -> Response:
        return text(200, f"hello {sorted(request.query)}".replace("\n", " "))

    async def take(request: Request) -> Response:
        return text(200, f"{len(request.body)}")

    status = re.compile(rb"HTTP/1\.1 (?:100|200|400|401|403|404|405|413|431|501) [A-Z]")
    loop = asyncio.new_event_loop()
    at_end.callback(loop.close)

    async def converse(data: bytes) -> bytes:
        server = WebServer({"/": hello, "/take": Route(take, ("POST",), max_body=2048)}, WebConfig())
        server._hashing = asyncio.Lock()  # noqa: SLF001  made by start(), which would listen
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        ours.setblocking(False)
        accepted = loop.create_task(server._accept(ours))  # noqa: SLF001
        said = bytearray()
        try:
            while piece := await asyncio.wait_for(loop.sock_recv(theirs, 65_536), 5):
                said += piece
        except ConnectionError:
            pass
        finally:
            theirs.close()
        await accepted
        await server.stop(0.1)
        return bytes(said)

    def check(data: bytes) -> None:
        said = loop.run_until_complete(converse(data))
        assert not said or status.match(said), said[:80]
        assert b"\r\nContent-Length: " in said or not said or said.startswith(b"HTTP/1.1 100"), said[:80]

    return check


_TELEMETRY = b"""timestamp,Node_GUID,port_guid,Port_Number,node_description,port_label,Module_Temperature
1789999999000000,0x9c0591030090e000,0x9c0591030090e000,33,MF0;leaf-12:MQM9700/U1,17/1,54C
1789999999000000,0x0,0x1,1,n1 mlx5_0,,N/A

timestamp,node_guid,sensor_index,mtmp_sensor_name,temperature,max_temperature
1789999999000000,0x9c0591030090e000,0,asic,61,66
"""
_UFM = (
    b"2026-01-20 07:46:24.442 [12345] [329] WARNING [Hardware] Link [default / Switch: leaf-12 / 1/17/1]: Link went "
    b"down: (Switch:leaf-12:1/17/1)9c0591030090e000:33 - (Computer:gpu-174 mlx5_5)b8cef6030012aa00:1, cable S/N: MT2\n"
    b"2026-01-20 07:46:25.442 [12346] [328] INFO [Hardware] Link [default / Switch: leaf-12 / 1/17/1]: Link is up\n",
    b"<13>Jan 20 07:46:24 ufm-1 ufm: WARNING - 2026-01-20 07:46:24 [1] [110] WARNING [Hardware] IBPort "
    b"[Computer: gpu-174 mlx5_5] [dev_id: b8cef6030012aa00]: Symbol error counter delta threshold exceeded\n  more\n",
)
_ANSWER = {
    "status": "success",
    "data": {
        "resultType": "matrix",
        "result": [
            {
                "metric": {"cluster": "c1", "run": "llama", "attempt": "0", "node": "gpu-001", "device": "mlx5_0",
                           "port": "1", "rack": "r1", "rail": "0"},
                "values": [[1e9 - 2, "0.4"], [1e9 - 1, "0.41"], [1e9, "NaN"]],
            },
        ],
    },
}  # fmt: skip
_VECTOR = {"status": "success", "data": {"result": [{"metric": {"run": "a"}, "value": [1e9, "+Inf"]}]}}
_ALERTS = [
    {"fingerprint": "f", "labels": {"alertname": "A"}, "annotations": {}, "startsAt": "2026-11-21T03:12:05.1Z",
     "status": {"state": "active", "silencedBy": [], "inhibitedBy": []}, "receivers": [{"name": "pyrometer"}]},
]  # fmt: skip
_SILENCES = [
    {"id": "s", "endsAt": "2026-11-21T03:12:05Z", "status": {"state": "active"}, "createdBy": "b", "comment": "c"}
]
_SLURM = {
    "jobs": [{"job_id": 4711, "name": "llama", "user_name": "ada", "partition": "gpu", "job_state": ["PENDING"],
              "state_reason": "Resources"}],
    "sinfo": [{"nodes": {"nodes": ["gpu-[001-004]"]}, "node": {"state": ["IDLE", "DRAIN"]},
               "partition": {"name": "gpu"}, "reason": {"description": "x", "time": {"set": True, "number": 5}}}],
}  # fmt: skip
_WEB = b"""tls_server_config:
  cert_file: a.pem
  key_file: b.pem
  client_auth_type: RequireAndVerifyClientCert
  min_version: TLS13
http_server_config:
  headers: {X-Frame-Options: deny}
basic_auth_users:
  me: $2y$10$abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ12345
rate_limit: {interval: 1s, burst: 20}
"""
_SETTINGS = b"""slack: {channel: "#gpu-alerts"}
digest: {daily: "08:00", weekly: "mon 08:00", timezone: Europe/Berlin}
prometheus: {url: "http://127.0.0.1:9090"}
slack-users: [U0123456789]
"""
_ROUTES = b"""routes:
- match: {severity: [critical, warning], cluster: c1}
  channel: "#gpu-ops"
channels:
  "#gpu-ops":
    labels: [node, gpu]
    mentions: {critical: [here, U0123456789, S0123456789]}
    quiet-hours: {from: "22:00", to: "07:00", timezone: UTC, days: [sat, sun], severities: [warning]}
"""
_REQUESTS = (
    b"GET /?a=1&b=%20 HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\nGET /none HTTP/1.1\r\nConnection: close\r\n\r\n",
    b"POST /take HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /take HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"HEAD //[ HTTP/1.0\r\nAuthorization: Basic bWU6bWU=\r\n\r\n",
)
_JSON = (b"null", b"NaN", b"1" * 400, b"1e400", b"[]", b"{}", b'""', b"\\ud800", b"-1")

TARGETS = (
    Target("ufm", "UFM's event log, with names that people gave", ufm, _UFM,
           (b"(Switch:", b"(Computer:", b" [dev_id: ", b"Link went down", b"cable S/N: ", b"] WARNING [", b"[Hardware] ")),
    Target("ufm_telemetry", "UFM Telemetry's CSV, or what answers in its place", ufm_telemetry, (_TELEMETRY,),
           (b"timestamp,", b"node_guid,", b"mtmp_sensor_name,", b"Module_Temperature", b",N/A", b",54C", b"MF0;", b"\n\n")),
    Target("slurm", "JSON of squeue and sinfo, with users' names of jobs", slurm, (json.dumps(_SLURM).encode(),),
           (*_JSON, b'"job_state"', b'"nodes"', b"gpu-[001-004]", b'"reason"', b'"set"', b'"number"'), 1024),
    Target("prometheus", "Prometheus' answers, or those of a proxy before it", prometheus,
           (json.dumps(_ANSWER).encode(), json.dumps(_VECTOR).encode(), b'{"status": "error", "error": "x"}'),
           (*_JSON, b'"metric"', b'"values"', b'"value"', b'"result"', b'"+Inf"', b'"NaN"'), 1024),
    Target("alertmanager", "Alertmanager's answers, or those of a proxy before it", alertmanager,
           (json.dumps(_ALERTS).encode(), json.dumps(_SILENCES).encode(), b'{"silenceID": "s"}'),
           (*_JSON, b'"startsAt"', b'"status"', b'"labels"', b'"receivers"'), 1024),
    Target("yaml", "files of settings: web configuration, routes, users, the service's own", yaml,
           (_WEB, _SETTINGS, _ROUTES, b"a: &x [1]\nb: *x\n", b"? [a]\n: b\n", b"a: !!binary x\n"),
           (b"cipher_suites: ", b"curve_preferences: ", b"client_allowed_sans: ", b"quiet-hours: ", b"burst: ", b"- ", b"!!",
            b"&a ", b"*a", b"\xef\xbb\xbf", b"<<: ", b"headers: ", b"slack-users: ", b"client_ca: ", b"http2: ", b"key: "),
           2048),
    Target("web_request", "requests of whoever reaches a port", web_request, _REQUESTS,
           (b"\r\n\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Length: ", b" HTTP/1.1\r\n", b"Expect: 100-continue\r\n"),
           2048),
)  # fmt: skip
