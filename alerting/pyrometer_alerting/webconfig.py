"""Who may speak to us: TLS and basic authentication from an exporter-toolkit file, a bearer token for the webhook."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import bcrypt

from pyrometer_alerting.yamlfile import Entry, SettingsError, entries

T = TypeVar("T")

_TLS = "tls_server_config."
_USERS = "basic_auth_users."
_TLS_KEYS = ("cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version")
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"": ssl.CERT_NONE, "NoClientCert": ssl.CERT_NONE, "RequireAndVerifyClientCert": ssl.CERT_REQUIRED}
# bcrypt takes 50-250 ms by design; scrapes and deliveries come every few seconds with the same password.
_MAX_CACHED = 100


@dataclass
class Authenticator:
    """Checks credentials. With neither users nor a token everyone may come in: the default address is loopback."""

    users: Mapping[str, bytes] = field(default_factory=dict)
    bearer_token: str = ""
    _good: set[bytes] = field(default_factory=set)

    def allows(self, path: str, authorization: str, webhook_path: str) -> bool:
        """Whether a request with this Authorization header may reach this path."""
        if path == webhook_path and self.bearer_token:
            kind, _, presented = authorization.partition(" ")
            if kind.lower() == "bearer" and hmac.compare_digest(presented.encode(), self.bearer_token.encode()):
                return True
            if not self.users:
                return False
        return self._basic(authorization) if self.users else True

    def _basic(self, authorization: str) -> bool:
        kind, _, encoded = authorization.partition(" ")
        if kind.lower() != "basic":
            return False
        try:
            user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        return self._check(user, password.encode())

    def _check(self, user: str, password: bytes) -> bool:
        stored = self.users.get(user)
        # Lengths make the key unambiguous: no user and password can be cut differently into the same bytes.
        key = hashlib.sha256(f"{len(user)}:{user}:".encode() + (stored or b"") + b":" + password).digest()
        if key in self._good:
            return True
        # An unknown user costs the same time as a known one, so that names cannot be probed.
        against = stored or next(iter(self.users.values()))
        good = bcrypt.checkpw(password[:72], against) and stored is not None
        if good and len(self._good) < _MAX_CACHED:
            self._good.add(key)
        return good


def load(path: Path) -> tuple[ssl.SSLContext | None, dict[str, bytes]]:
    """(TLS context or None, users with their hashes) of an exporter-toolkit file."""
    tls: dict[str, Entry] = {}
    users: dict[str, bytes] = {}
    for entry in entries(path):
        if entry.path.startswith(_USERS):
            users[entry.path.removeprefix(_USERS)] = _hash(entry)
        elif entry.path.removeprefix(_TLS) in _TLS_KEYS and entry.path.startswith(_TLS):
            tls[entry.path.removeprefix(_TLS)] = entry
        elif entry.path not in ("tls_server_config", "basic_auth_users"):
            known = ", ".join([_TLS + key for key in _TLS_KEYS] + ["basic_auth_users"])
            raise SettingsError(f"{entry.place}: unknown setting {entry.path}; known are {known}")
    return (_context(path, tls) if tls else None), users


def _hash(entry: Entry) -> bytes:
    user = entry.path.removeprefix(_USERS)
    try:
        bcrypt.checkpw(b"", entry.value.encode())
    except ValueError:
        raise SettingsError(f"{entry.place}: the password of {user} must be a bcrypt hash (htpasswd -nBC 10)") from None
    return entry.value.encode()


def _context(path: Path, tls: Mapping[str, Entry]) -> ssl.SSLContext:
    for needed in ("cert_file", "key_file"):
        if needed not in tls:
            raise SettingsError(f"{path}: {_TLS}{needed} is missing")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _choice(tls.get("min_version"), _VERSIONS, ssl.TLSVersion.TLSv1_2)
    try:
        context.load_cert_chain(_beside(path, tls["cert_file"]), _beside(path, tls["key_file"]))
        if "client_ca_file" in tls:
            context.load_verify_locations(_beside(path, tls["client_ca_file"]))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "cannot be used"
        raise SettingsError(f"{tls['cert_file'].place}: certificate, key or client CA: {reason}") from None
    context.verify_mode = _choice(tls.get("client_auth_type"), _CLIENT_AUTH, ssl.CERT_NONE)
    return context


def _beside(path: Path, entry: Entry) -> Path:
    """exporter-toolkit takes relative paths from the configuration file's folder."""
    return path.parent / entry.value


def _choice(entry: Entry | None, choices: Mapping[str, T], default: T) -> T:
    if entry is None:
        return default
    if entry.value not in choices:
        raise SettingsError(f"{entry.place}: {entry.value} must be one of {', '.join(filter(None, choices))}")
    return choices[entry.value]
