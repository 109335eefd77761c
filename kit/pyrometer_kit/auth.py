"""Credentials of HTTP requests: users with bcrypt hashes, and bearer tokens."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Any number of passwords longer than bcrypt's 72 bytes match the same hash.
_MAX_REMEMBERED = 1000
# The hash of a random password at the usual cost, so that an unknown user takes as long as a known one.
_NOBODY = b"$2b$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"


@dataclass
class BasicAuth:
    """Users by name with their bcrypt hashes; without users every request is allowed."""

    users: Mapping[str, bytes] = field(default_factory=dict)
    _accepted: set[bytes] = field(default_factory=set)

    def remembers(self, authorization: str) -> bool:
        """Return whether this ``Authorization`` header was accepted before, or none is needed. Returns at once."""
        if not self.users:
            return True
        name, _, password = _basic(authorization)
        return self._key(name, password) in self._accepted

    def allows(self, authorization: str) -> bool:
        """Return whether an ``Authorization`` header belongs to a user. Takes as long as bcrypt does."""
        if not self.users:
            return True
        name, colon, password = _basic(authorization)
        return bool(colon) and self._check(name, password)

    def _key(self, name: str, password: str) -> bytes:
        import hmac  # noqa: PLC0415  as bcrypt: it loads all of hashlib, which a program without users need not

        # A digest of both with a length, so that no other pair spells the same bytes (CVE-2022-46146).
        text = f"{len(name)}:{name}:{password}"
        return hmac.digest(self.users.get(name, _NOBODY), text.encode(), "sha256")

    def _check(self, name: str, password: str) -> bool:
        import bcrypt  # noqa: PLC0415  only where users are configured

        # bcrypt is slow by design and Prometheus sends the same password with each scrape: accepted pairs are cached.
        stored = self.users.get(name)
        try:
            # 72 bytes is bcrypt's own limit; newer releases refuse longer passwords.
            good = bcrypt.checkpw(password.encode()[:72], stored or _NOBODY) and stored is not None
        except ValueError:  # releases differ in what they refuse, such as a NUL byte
            return False
        if good and len(self._accepted) < _MAX_REMEMBERED:
            self._accepted.add(self._key(name, password))
        return good


@dataclass
class BearerTokens:
    """The tokens that open a route, each on its own; without tokens the route needs none."""

    tokens: Sequence[str] = ()

    def match(self, authorization: str) -> bool:
        """Return whether an ``Authorization`` header presents one of the tokens, in the same time for any of them."""
        import hmac  # noqa: PLC0415  only where tokens are configured

        kind, _, presented = authorization.partition(" ")
        good = [hmac.compare_digest(presented.encode(), token.encode()) for token in self.tokens]
        return kind.lower() == "bearer" and any(good)


def _basic(authorization: str) -> tuple[str, str, str]:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return "", "", ""
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:  # not base64, not ASCII, not UTF-8
        return "", "", ""
