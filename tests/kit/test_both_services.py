"""The exporters and the alerting service as real processes: one web configuration, one log format, one behaviour."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

EXPORTER_RELOAD = "pyrometer_exporter_web_config_last_reload_successful"
SERVICES = {
    "node exporter": ("pyrometer_exporters.node.main", EXPORTER_RELOAD),
    "cluster exporter": ("pyrometer_exporters.cluster.main", EXPORTER_RELOAD),
    "alerting": ("pyrometer_alerting.app.main", "pyrometer_alerting_config_last_reload_successful"),
}
# A reload is the same code in both exporters: one of them is enough where seconds go by.
RELOADING = ("node exporter", "alerting")
TLS = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
CLIENT_CA = "  client_ca_file: cert.pem\n"
REQUIRED = "  client_auth_type: RequireAndVerifyClientCert\n"


class Service:
    """A service with its log in a file; its folder holds the web configuration and certificates."""

    def __init__(self, name: str, folder: Path, *flags: str) -> None:
        module, self.metric = SERVICES[name]
        self.folder = folder
        if name == "alerting":
            paths = [f"--storage.path={folder}/store"]
        else:
            paths = [f"--path.state={folder}/state"]
            names = ("sysfs", "procfs", "rings") if name == "node exporter" else ()
            paths += [f"--path.{path}={folder}/nothing" for path in names]
        web = f"--web.config.file={folder}/web.yml"
        command = [sys.executable, "-m", module, "--web.listen-address=127.0.0.1:0", web, *paths, *flags]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def port(self) -> int:
        until(lambda: "listening on" in self.log or self.process.poll() is not None)
        found = re.search(r"listening on 127\.0\.0\.1:(\d+)", self.log)
        assert found, self.log
        return int(found[1])

    def get(self, path: str = "/-/healthy", tls: ssl.SSLContext | None = None, headers: str = "") -> str:
        """The whole answer with its header; empty where the server refuses the connection."""
        with (
            contextlib.suppress(ConnectionError, ssl.SSLError),
            socket.create_connection(("127.0.0.1", self.port), timeout=10) as raw,
            tls.wrap_socket(raw) if tls else raw as client,
        ):
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n".encode())
            answer = b""
            while piece := client.recv(65536):
                answer += piece
            return answer.decode()
        return ""

    def is_served(self, tls: ssl.SSLContext | None) -> bool:
        return " 200 " in self.get(tls=tls)[:20]

    def write(self, text: str) -> None:
        """Replace the web configuration."""
        (self.folder / "new.yml").write_text(text)
        (self.folder / "new.yml").replace(self.folder / "web.yml")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(20)


def until(condition: Callable[[], object], seconds: float = 60, *, pause: float = 0.05) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(pause)


def until_reloaded(condition: Callable[[], object]) -> None:
    """Wait for what a file brings, which is looked at every few seconds; each look of ours is a handshake."""
    until(condition, pause=0.3)


Start = Callable[..., Service]


@pytest.fixture
def start(tmp_path: Path, certificate: tuple[Path, Path]) -> Iterator[Start]:
    """Start a service by its name with a web configuration and further flags."""
    for source, name in zip(certificate, ("cert.pem", "key.pem"), strict=True):
        shutil.copy(source, tmp_path / name)
    started: list[Service] = []

    def make(name: str, text: str, *flags: str) -> Service:
        (tmp_path / "web.yml").write_text(text)
        started.append(Service(name, tmp_path, *flags))
        return started[-1]

    yield make
    for service in started:
        service.close()


def client(folder: Path, *, certificate: bool = False, newest: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    if newest is not None:
        context.maximum_version = newest
    return context


@pytest.mark.parametrize("name", SERVICES)
def test_a_configuration_that_cannot_protect_ends_in_one_line_and_status_2(
    start: Start, tmp_path: Path, name: str
) -> None:
    service = start(name, "basic_auth_users: {me: hunter2}\n")
    assert service.process.wait(60) == 2
    (line,) = (line for line in service.log.splitlines() if not line.startswith("time="))
    assert f": --web.config.file: {tmp_path}/web.yml:1: basic_auth_users.me is not a bcrypt hash" in line
    assert "hunter2" not in service.log


@pytest.mark.parametrize("name", RELOADING)
def test_client_certificates_required_by_a_reload_are_required_of_every_new_connection(
    start: Start, tmp_path: Path, name: str
) -> None:
    anonymous, known = client(tmp_path), client(tmp_path, certificate=True)
    service = start(name, TLS)
    assert service.is_served(anonymous)
    service.write(TLS + CLIENT_CA + REQUIRED)
    until_reloaded(lambda: not service.is_served(anonymous))
    assert service.is_served(known)
    assert f"\n{service.metric} 1" in service.get("/metrics", known)
    # An unusable or weaker file leaves the old one in force, and a line and a metric report it.
    service.write(TLS + CLIENT_CA)
    until_reloaded(lambda: f"\n{service.metric} 0" in service.get("/metrics", known))
    service.write(TLS)
    until_reloaded(lambda: "removing client certificates takes a restart" in service.log)
    assert not service.is_served(anonymous)
    errors = [line for line in service.log.splitlines() if "level=error" in line]
    assert len(errors) == 2
    assert all("keeping the previous configuration" in line for line in errors)
    service.write(TLS + CLIENT_CA + REQUIRED)
    until_reloaded(lambda: f"\n{service.metric} 1" in service.get("/metrics", known))
    assert not service.is_served(anonymous)


@pytest.mark.parametrize("name", RELOADING)
def test_versions_ciphers_and_names_of_a_reload_hold_for_every_new_connection(
    start: Start, tmp_path: Path, name: str
) -> None:
    old, known = (client(tmp_path, certificate=True, newest=newest) for newest in (ssl.TLSVersion.TLSv1_2, None))
    service = start(name, TLS + CLIENT_CA + REQUIRED)
    assert service.is_served(old)
    service.write(TLS + CLIENT_CA + REQUIRED + "  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]\n")
    until_reloaded(lambda: not service.is_served(old))  # the key is of an elliptic curve: no such suite fits it
    assert service.is_served(known)
    service.write(TLS + CLIENT_CA + REQUIRED)
    until_reloaded(lambda: service.is_served(old))
    service.write(TLS + CLIENT_CA + REQUIRED + "  min_version: TLS13\n")
    until_reloaded(lambda: not service.is_served(old))
    assert service.is_served(known)
    service.write(TLS + CLIENT_CA + REQUIRED + "  min_version: TLS13\n  client_allowed_sans: [elsewhere]\n")
    until_reloaded(lambda: not service.is_served(known))
    assert "none of its names is in client_allowed_sans" in service.log
    service.write(TLS + CLIENT_CA + REQUIRED + "  min_version: TLS13\n  client_allowed_sans: [a, 127.0.0.1]\n")
    until_reloaded(lambda: service.is_served(known))


@pytest.mark.parametrize("name", SERVICES)
def test_headers_are_sent_and_http2_is_one_warning(start: Start, name: str) -> None:
    headers = "http_server_config: {http2: true, headers: {X-Frame-Options: deny, Content-Security-Policy: sandbox}}"
    service = start(name, headers)
    for path in ("/", "/nothing"):
        answer = service.get(path).partition("\r\n\r\n")[0]
        assert "\r\nX-Frame-Options: deny" in answer
        assert answer.count("Content-Security-Policy: ") == 1
        assert "\r\nContent-Security-Policy: sandbox" in answer
    warnings = [line for line in service.log.splitlines() if "http2" in line]
    assert len(warnings) == 1
    assert "level=warn" in warnings[0]
    assert "HTTP/1.1 is served" in warnings[0]


@pytest.mark.parametrize("name", SERVICES)
def test_requests_beyond_the_rate_limit_are_answered_with_429(start: Start, name: str) -> None:
    service = start(name, "rate_limit: {interval: 1h, burst: 3}")
    answers = [service.get() for _ in range(5)]
    assert [answer.split()[1] for answer in answers] == ["200"] * 3 + ["429"] * 2
    assert "\r\nRetry-After: 3600" in answers[-1]


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_every_log_line_has_the_fields_of_prometheus(start: Start, name: str, form: str) -> None:
    service = start(name, "http_server_config: {http2: true}", f"--log.format={form}", "--log.level=debug")
    service.get("/metrics")
    service.close()
    lines = service.log.splitlines()
    for line in lines:
        fields = json.loads(line) if form == "json" else dict(part.split("=", 1) for part in shlex.split(line))
        assert list(fields)[:4] == ["time", "level", "source", "msg"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", fields["time"])
        assert fields["level"] in ("debug", "info", "warn", "error")
    assert any(("level=warn " in line) or ('"level": "warn"' in line) for line in lines)


TAKES = {
    # As Prometheus 2 and 3 ask: whoever takes the text gets it.
    "Prometheus": (
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
        "text/plain; version=0.0.4",
    ),
    "OpenMetrics alone": ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text; version=1.0.0"),
    "text refused": ("text/plain;q=0, application/openmetrics-text", "application/openmetrics-text; version=1.0.0"),
    "a browser": ("text/html,*/*;q=0.8", "text/plain; version=0.0.4"),
}


@pytest.mark.parametrize("name", SERVICES)
def test_metrics_come_in_a_format_that_the_scraper_accepts(start: Start, name: str) -> None:
    service = start(name, "")
    for accept, expected in TAKES.values():
        head, _, body = service.get("/metrics", headers=f"Accept: {accept}\r\n").partition("\r\n\r\n")
        assert f"\r\nContent-Type: {expected}" in head
        parse = parse_openmetrics if expected.startswith("application") else parse_text
        families = {family.name: family for family in parse(body)}
        assert len(families) > 5
        assert body.endswith("# EOF\n") is expected.startswith("application")
        if expected.startswith("application"):
            counters = [family for family in families.values() if family.type == "counter"]
            assert counters
            assert all(s.name.endswith(("_total", "_created")) for family in counters for s in family.samples)


def hello() -> bytes:
    """The first bytes of a handshake."""
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="x").do_handshake()
    return sent.read()


@pytest.mark.parametrize("begins", ["plain", "half a request", "TLS", "half a handshake"])
@pytest.mark.parametrize("name", RELOADING)
def test_hundreds_of_clients_that_stay_keep_no_scrape_out_and_take_no_memory(
    start: Start, tmp_path: Path, name: str, begins: str
) -> None:
    tls = client(tmp_path) if begins in ("TLS", "half a handshake") else None
    first = {"half a request": b"GET / HTTP/1.1\r\nX-a: ", "half a handshake": hello()}.get(begins, b"")
    service = start(name, TLS if tls else "")
    port = service.port
    assert service.is_served(tls)
    with contextlib.ExitStack() as clients:
        for number in range(400):
            one = clients.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            with contextlib.suppress(ConnectionError):  # it has made room already
                one.sendall(first)
            if number % 100 == 99:
                assert " 200 " in service.get("/metrics", tls)[:20]
        status = Path(f"/proc/{service.process.pid}/status").read_text()
        assert int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) < 128 << 10
