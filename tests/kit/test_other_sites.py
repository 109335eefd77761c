"""Pages of other sites, in a browser that can reach our servers, read nothing there and change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from pyrometer_kit.http_message import Request, Response, Route, text

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
