"""An answer is had from the address that was given, whole, in time, and no secret goes anywhere else."""

from __future__ import annotations

import time

import pytest

from pyrometer_kit.http_get import HttpGetError, get
from pyrometer_simulator.strange_server import Answer, StrangeServer, leads_to, never_ends, says, trickles


def test_the_body_comes_whole_with_the_credentials_of_the_address() -> None:
    with StrangeServer(says(b"x" * 200_000)) as server:
        assert get(f"http://me:pw@{server.place}", "/a") == b"x" * 200_000
        assert server.asked[0]["authorization"].startswith("Basic ")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("token", ["secret-token", ""])
def test_a_redirect_takes_no_credentials_elsewhere(status: int, token: str) -> None:
    with (
        StrangeServer(says(b"ours")) as stranger,
        StrangeServer(leads_to(f"http://{stranger.place}/metadata?ticket=t0p", status)) as server,
    ):
        address = server.place if token else f"me:pw@{server.place}"
        expected = f"it redirects to http://{stranger.place}, which is not followed"
        with pytest.raises(HttpGetError, match=expected) as refused:
            get(f"http://{address}", "/a", token=token, seconds=60)
        assert refused.value.status == status
        assert "t0p" not in str(refused.value)
        assert "pw" not in str(refused.value)
        assert stranger.asked == []


@pytest.mark.parametrize("location", ["file:///etc/passwd", "//[", "\x1b[31m", "ftp://a\x85b/", ""])
def test_a_redirect_to_nonsense_is_one_printable_line(location: str) -> None:
    with StrangeServer(leads_to(location)) as server, pytest.raises(HttpGetError, match=" answers 302 ") as refused:
        get(f"http://{server.place}", "/a", seconds=60)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(("answer", "why"), [(trickles(), "too slow"), (never_ends(), "larger than 32 MiB")])
def test_an_answer_without_end_ends_at_the_deadline_or_the_limit(answer: Answer, why: str) -> None:
    with StrangeServer(answer) as server:
        began = time.monotonic()
        with pytest.raises(HttpGetError, match=why):
            get(f"http://{server.place}", "/a", seconds=20 if "MiB" in why else 0.5)
        assert time.monotonic() - began < 15
