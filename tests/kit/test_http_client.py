"""An answer is had from the address that was given, whole, in time, and no secret goes anywhere else."""

from __future__ import annotations

import gzip
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrometer_kit import http_client
from pyrometer_kit.errors import HttpError
from pyrometer_kit.http_client import HttpClient, get, get_json
from pyrometer_simulator.strange_server import (
    Answer,
    StrangeServer,
    begins_without_end,
    leads_to,
    never_ends,
    says,
    trickles,
)

KEPT = {"Connection": "keep-alive"}


@pytest.fixture
def server() -> Iterator[StrangeServer]:
    with StrangeServer(says(b"[]", **KEPT)) as server:
        yield server


@pytest.fixture
def tls_server(server: StrangeServer, certificate: tuple[Path, Path]) -> StrangeServer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def test_the_body_comes_whole_with_the_credentials_of_the_address(server: StrangeServer) -> None:
    server.answer = says(b"x" * 200_000)
    assert get(f"http://me:p%40ss@{server.place}/prefix/", "/a?b=c", token="unused") == b"x" * 200_000
    assert (server.asked[0]["authorization"], server.asked[0][":path"]) == ("Basic bWU6cEBzcw==", "/prefix/a?b=c")
    get(f"http://{server.place}", "/a", token="t0p")
    assert server.asked[1]["authorization"] == "Bearer t0p"


def test_a_netrc_and_a_cookie_add_nothing_to_a_request(
    server: StrangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login stranger password other")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    server.answer = says(b"", Set_Cookie="id=1; Path=/", **KEPT)
    client = HttpClient(f"http://{server.place}")
    for headers in ({"Authorization": "Bearer ours"}, {}):
        client.ask("POST", "/", b"{}", headers).read()
    assert [(asked.get("authorization"), asked.get("cookie")) for asked in server.asked] == [
        ("Bearer ours", None),
        (None, None),
    ]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("token", ["secret-token", ""])
def test_a_redirect_takes_no_credentials_elsewhere(server: StrangeServer, status: int, token: str) -> None:
    with StrangeServer(says(b"ours")) as stranger:
        server.answer = leads_to(f"http://{stranger.place}/metadata?ticket=t0p", status)
        address = server.place if token else f"me:pw@{server.place}"
        expected = f"it redirects to http://{stranger.place}, which is not followed"
        with pytest.raises(HttpError, match=expected) as refused:
            get(f"http://{address}", "/a", token=token, seconds=60)
        assert (refused.value.status, refused.value.reason) == (status, f"http_{status}")
        assert "t0p" not in str(refused.value)
        assert "pw" not in str(refused.value)
        assert stranger.asked == []


@pytest.mark.parametrize("location", ["file:///etc/passwd", "//[", "\x1b[31m", "ftp://a\x85b/", ""])
def test_a_redirect_to_nonsense_is_one_printable_line(server: StrangeServer, location: str) -> None:
    server.answer = leads_to(location)
    with pytest.raises(HttpError, match=" answers 302 Found") as refused:
        get(f"http://{server.place}", "/a", seconds=60)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(("answer", "reason", "why"), [
    (begins_without_end(), "deadline", "no answer in time"), (trickles(), "deadline", "no answer in time"),
    (never_ends(), "too_large", "more than 1 MiB"),
])  # fmt: skip
def test_an_answer_without_end_ends_at_the_deadline_or_the_limit(
    server: StrangeServer, answer: Answer, reason: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "MAX_BYTES", 1 << 20)
    server.answer = answer
    began = time.monotonic()
    with pytest.raises(HttpError, match=why) as failed:
        get(f"http://{server.place}", "/a", seconds=20 if reason == "too_large" else 0.5)
    assert time.monotonic() - began < 15
    assert (failed.value.reason, failed.value.sent) == (reason, True)


def test_a_zipped_answer_is_not_asked_for_and_not_unpacked(server: StrangeServer) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    server.answer = says(bomb, Content_Encoding="gzip")
    assert get(f"http://{server.place}", "/") == bomb
    assert server.asked[0]["accept-encoding"] == "identity"


@pytest.mark.parametrize(("url", "reason"), [
    ("http://me:hunter2@127.0.0.1:1", "econnrefused"), ("http://nowhere.invalid", "eai"),
])  # fmt: skip
def test_a_service_that_is_not_reached_was_sent_nothing(url: str, reason: str) -> None:
    with pytest.raises(HttpError) as failed:
        get(url, "/secret-path")
    assert (failed.value.reason, failed.value.status, failed.value.sent) == (reason, 0, False)
    assert "hunter2" not in str(failed.value)
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize(("body", "said"), [(b" <html>", r"not JSON \(a login page"), (b"\xff", "not JSON$")])
def test_what_is_no_json_is_an_error(server: StrangeServer, body: bytes, said: str) -> None:
    assert get_json(f"http://{server.place}", "/") == []
    server.answer = says(body)
    with pytest.raises(HttpError, match=said):
        get_json(f"http://{server.place}", "/")


def test_a_connection_is_used_again_and_replaced_when_the_server_closed_it(server: StrangeServer) -> None:
    client = HttpClient(f"http://{server.place}", repeat=True)
    for _ in range(3):
        assert client.ask("POST", "/", b"").read() == b"[]"
    assert len({asked[":port"] for asked in server.asked}) == 1

    def closes(handler: object) -> None:
        says(b"[]", **KEPT)(handler)  # type: ignore[arg-type]
        handler.close_connection = True  # type: ignore[attr-defined]  without a word of it in the header

    server.answer = closes
    for _ in range(3):
        assert client.ask("POST", "/", b"").read() == b"[]"
    assert len({asked[":port"] for asked in server.asked}) == 3
    client.close()


def test_a_proxy_of_the_environment_is_used_but_not_for_loopback(
    server: StrangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://{server.place}")
    monkeypatch.setenv("no_proxy", "near.invalid")
    get("http://prometheus.example:9090/base", "/query")
    get(f"http://{server.place}", "/query")
    assert [asked[":path"] for asked in server.asked] == ["http://prometheus.example:9090/base/query", "/query"]
    for direct in (HttpClient("http://near.invalid:1"), HttpClient("http://far.invalid:1", use_proxies=False)):
        with pytest.raises(HttpError):
            direct.ask("GET", "/")
    assert len(server.asked) == 2


@pytest.mark.parametrize("trust", ["a file", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_private_authority_is_trusted_once_it_is_named(
    tls_server: StrangeServer, certificate: tuple[Path, Path], trust: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    url = f"https://{tls_server.place}"
    with pytest.raises(HttpError, match="CERTIFICATE_VERIFY_FAILED") as failed:
        HttpClient(url).ask("GET", "/")
    assert (failed.value.reason, failed.value.sent) == ("tls", False)
    if trust != "a file":
        monkeypatch.setenv(trust, str(certificate[0]))
    client = HttpClient(url, ca_file=str(certificate[0]) if trust == "a file" else "")
    assert client.ask("GET", "/").read() == b"[]"


@pytest.mark.parametrize(
    "module",
    ["pyrometer_kit.prometheus", "pyrometer_exporters.cluster.main", "pyrometer_exporters.commands.doctor.main"],
)
def test_who_asks_nobody_does_not_load_requests(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"requests", "urllib3"} & set(loaded)
