"""Pages of other sites, in a browser that can reach our servers, read nothing there and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bcrypt
import pytest

from pyrometer_kit.auth import BasicAuth
from pyrometer_kit.http_message import Request, Response, Route, text
from pyrometer_kit.own_names import OwnNames
from pyrometer_kit.webconfig import WebConfig

Serving = Any


async def hello(_: Request) -> Response:
    return text(200, "hello")


@pytest.mark.parametrize(("origin", "status"), [
    ("http://evil.example", 403), ("null", 403), ("https://x.evil.example", 403), ("http://x", 200), ("https://x", 200),
    ("", 403), (None, 200),
])  # fmt: skip
async def test_no_page_of_another_site_changes_anything(serving: Serving, origin: str | None, status: int) -> None:
    """A browser in our network sends any site's POST, with the user's password; and it names the site."""

    async with serving({"/": hello, "/take": Route(hello, ("POST", "PUT"))}) as s:
        headers = {} if origin is None else {"Origin": origin}
        for method in ("POST", "PUT"):
            assert (await s.get("/take", method, **headers))[0] == status
        assert (await s.get("/", **headers))[0] == 200, "the browser keeps the answer from that page"


REBOUND = "evil.example:9937"  # the page's own name, which its owner lets point to us
OURS = (
    "127.0.0.1:9937", "[::1]:9937", "localhost:9937", "x.localhost", "gpu-mon", "GPU-MON.corp.example.",
    "alerts.example", "alerting:9937", "alerting.monitoring.svc.cluster.local:9937",
)  # fmt: skip
FOREIGN = (
    "evil.example",
    "127.0.0.1.evil.example",
    "corp.example.evil",
    "xcorp.example",
    "127.0.0.1@evil.example",
    "[",
)


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnNames:
    resolver = tmp_path / "resolv.conf"
    resolver.write_text("# search evil.example\nsearch corp.example svc.cluster.local .\nnameserver 10.0.0.1\n")
    monkeypatch.setattr("socket.gethostname", lambda: "gpu-mon.other.example")
    return OwnNames(["alerts.example", ""], resolver)


def test_our_names_are_addresses_those_without_a_dot_and_those_of_our_domains(names: OwnNames) -> None:
    assert [place for place in OURS if not names.has(place)] == []
    assert names.has("gpu-mon.other.example")
    assert [place for place in FOREIGN if names.has(place)] == []
    assert not OwnNames([], Path("/nonexistent")).has("corp.example")


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        ("/", "GET", {"Host": REBOUND}, 403),
        ("/", "HEAD", {"Host": REBOUND}, 403),
        ("/metrics", "GET", {"Host": REBOUND}, 200),  # Prometheus may have any name for us
        ("/take", "POST", {"Host": REBOUND, "Origin": f"http://{REBOUND}"}, 403),
        ("/take", "POST", {"Host": REBOUND}, 200),  # and Alertmanager, which is no browser
        ("/take", "POST", {"Host": "alerting:9937", "Origin": "http://alerting:9937"}, 200),
        ("/", "GET", {"Host": "alerts.example"}, 200),
    ],
)
async def test_a_page_that_lets_its_name_point_to_us_reads_and_changes_nothing(
    serving: Serving, names: OwnNames, *, path: str, method: str, headers: dict[str, str], status: int
) -> None:
    routes = {"/": hello, "/metrics": Route(hello, any_name=True), "/take": Route(hello, ("POST",))}
    async with serving(routes, names=names) as s:
        assert (await s.get(path, method, **headers))[0] == status


async def test_where_somebody_must_log_in_the_login_is_what_counts(serving: Serving, names: OwnNames) -> None:
    """A browser gives nobody's password to a page under another name."""
    users = {"ada": bcrypt.hashpw(b"secret", bcrypt.gensalt(4))}
    async with serving({"/": hello}, WebConfig(auth=BasicAuth(users)), names=names) as s:
        login = {"Authorization": "Basic YWRhOnNlY3JldA=="}
        assert (await s.get("/", Host=REBOUND, **login))[0] == 200
        assert (await s.get("/", Host=REBOUND))[0] == 401
