"""Who may speak to us: TLS and basic authentication from an exporter-toolkit file, a bearer token for the webhook."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ssl
from collections.abc import Callable, Mapping, Sequence
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
    """Checks credentials. With neither users nor a token everyone may come in: the default address is loopback.

    `read_tokens` and `read_users` are asked again by `refresh`: secrets are rotated without a restart.
    """

    users: Mapping[str, bytes] = field(default_factory=dict)
    tokens: Sequence[str] = ()
    read_tokens: Callable[[], Sequence[str]] | None = None
    read_users: Callable[[], Mapping[str, bytes]] | None = None
    _good: set[bytes] = field(default_factory=set)

    def refresh(self) -> None:
        """Read the secrets again; raises SettingsError and changes nothing when that cannot be done."""
        users = self.users if self.read_users is None else self.read_users()
        tokens = self.tokens if self.read_tokens is None else self.read_tokens()
        self.users, self.tokens = users, tokens
        self._good.clear()

    def allows(self, path: str, authorization: str, webhook_path: str) -> bool:
        """Whether a request with this Authorization header may reach this path."""
        if path == webhook_path and self.tokens:
            kind, _, presented = authorization.partition(" ")
            good = [hmac.compare_digest(presented.encode(), token.encode()) for token in self.tokens]
            if kind.lower() == "bearer" and any(good):
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


class Watched:
    """Files of secrets and a web configuration with its files: `changed` says once when one was replaced."""

    def __init__(self, web_config: Path | None, *others: Path) -> None:
        self._paths = list(others)
        if web_config is not None:
            found = [entry for entry in entries(web_config) if entry.path.endswith("_file")]
            self._paths += [web_config, *(_beside(web_config, entry) for entry in found)]
        self._seen = self._state()

    def changed(self) -> bool:
        """Whether a file is another one than at the last call."""
        before, self._seen = self._seen, self._state()
        return before != self._seen

    def _state(self) -> list[tuple[int, int, int] | None]:
        return [_identity(path) for path in self._paths]


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def renew(context: ssl.SSLContext, path: Path) -> None:
    """Have the next handshakes of a context in use present certificate and key as they are now. Raises SettingsError.

    Loading them into the context itself takes two reads: a handshake between them finds a certificate without its key.
    OpenSSL asks the server-name callback at every handshake, also where the client names no server.
    """
    tls = {entry.path.removeprefix(_TLS): entry for entry in entries(path) if entry.path.startswith(_TLS)}
    fresh = _context(path, tls)

    def present(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = fresh

    context.sni_callback = present


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
