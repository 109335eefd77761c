"""Credentials: which headers are accepted, and what the cache of accepted ones must never do."""

from __future__ import annotations

import base64

import bcrypt
import pytest

from pyrometer_kit.auth import BasicAuth, BearerTokens

HASH = bcrypt.hashpw(b"right", b"$2b$04$abcdefghijklmnopqrstuu").decode()  # the same in each process: it is in ids


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


USERS = BasicAuth({"prom": HASH.encode(), "7": HASH.encode()})


@pytest.mark.parametrize(
    "header", [basic("prom:right"), basic("7:right"), basic("prom:right").replace("Basic", "bAsIc")]
)
def test_the_right_password_is_accepted_and_remembered(header: str) -> None:
    auth = BasicAuth(USERS.users)
    assert not auth.remembers(header)
    assert auth.allows(header)
    assert auth.remembers(header)


@pytest.mark.parametrize(
    "header",
    [
        "", "Basic", "Basic ", "Bearer x", "Basic !!!", "Basic é", "Basic " + base64.b64encode(b"\xff:\xff").decode(),
        basic("prom"), basic("prom:wrong"), basic("prom:"), basic(":right"), basic("nobody:right"), basic("PROM:right"),
        basic("prom:right\0"), basic("prom:" + "x" * 10_000), basic("prom:rightx"), basic("pro:mright"), "Basic 🔥",
        HASH, basic(f"prom:{HASH}"),
    ],
)  # fmt: skip
def test_any_other_header_is_refused(header: str) -> None:
    auth = BasicAuth(USERS.users)
    assert not auth.allows(header)
    assert not auth.remembers(header)


def test_an_accepted_pair_opens_for_no_other() -> None:
    """CVE-2022-46146: a cache key that two pairs can spell."""
    auth = BasicAuth({"a": HASH.encode(), "a:right": HASH.encode()})
    assert auth.allows(basic("a:right"))
    assert not auth.remembers(basic("a:right:right"))
    assert not auth.remembers(basic("nobody:right"))


def test_the_cache_is_bounded() -> None:
    long = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4))
    auth = BasicAuth({"a": long})
    auth._accepted.update(bytes([n % 256, n // 256]) for n in range(1000))
    assert auth.allows(basic("a:" + "x" * 80))
    assert len(auth._accepted) == 1000


def test_an_unknown_user_takes_as_long_as_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []
    real = bcrypt.checkpw

    def checkpw(password: bytes, hashed: bytes) -> bool:
        checked.append(hashed)
        return real(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", checkpw)
    assert not BasicAuth(USERS.users).allows(basic("nobody:x"))
    assert checked[0].startswith(b"$2b$10$")


@pytest.mark.parametrize(
    ("header", "good"),
    [("Bearer one", True), ("bearer two", True), ("Bearer three", False), ("Bearer", False), ("Basic one", False),
     ("", False), ("Bearer \xe9", False), ("Bearer one ", False)],
)  # fmt: skip
def test_any_of_the_tokens_is_accepted(header: str, good: bool) -> None:
    assert BearerTokens(["one", "two"]).match(header) is good
