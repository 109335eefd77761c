"""exporter-toolkit's web configuration file: TLS and basic authentication.

Format: https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md. The keys that we serve
are ``tls_server_config`` (``cert_file``, ``key_file``, ``client_ca_file``, ``client_auth_type``, ``min_version``) and
``basic_auth_users``; any other key is refused rather than ignored, as ignoring one could leave a door open.
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyrometer_exporters.framework.flags import UsageError

# Of a password longer than bcrypt's 72 bytes there are any number that open the door.
_MAX_REMEMBERED = 1000
_TLS_KEYS = {"cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version"}
_MIN_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
# A hash of a random password at the usual cost, so that an unknown user takes as long as a known one.
_HASH = re.compile(r"\$2[aby]\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")
_NOBODY = b"$2b$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"


class RenewableContext(ssl.SSLContext):
    """A context that a server listens with, while new connections are made by the newest.

    Whole contexts are exchanged: a certificate loaded into one in use takes two reads, and a handshake between them
    finds a certificate without its key.
    """

    _newest: ssl.SSLContext | None = None

    @property
    def newest(self) -> ssl.SSLContext:
        """What new connections are made by."""
        return self._newest or self

    def renew(self, fresh: ssl.SSLContext) -> None:
        """Make new connections by ``fresh`` from now on."""
        self._newest = fresh

    def wrap_bio(self, *arguments: Any, **settings: Any) -> ssl.SSLObject:  # noqa: ANN401  those of ssl.SSLContext
        """Where asyncio makes a connection."""
        newest = self._newest
        return super().wrap_bio(*arguments, **settings) if newest is None else newest.wrap_bio(*arguments, **settings)


@dataclass
class WebConfig:
    """TLS and users; empty is plain HTTP without authentication."""

    tls: RenewableContext | None = None
    users: Mapping[str, bytes] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    """What all this was read from."""
    _accepted: set[bytes] = field(default_factory=set)

    def replace(self, fresh: WebConfig) -> None:
        """Be as ``fresh`` from now on, for whoever has this one; TLS only where there is TLS."""
        if self.tls is not None and fresh.tls is not None:
            self.tls.renew(fresh.tls)
        self.users, self.files = fresh.users, fresh.files
        self._accepted.clear()

    def remembers(self, authorization: str) -> bool:
        """Whether this ``Authorization`` header has opened the door before, or there is no door. Takes no time."""
        if not self.users:
            return True
        name, _, password = _basic(authorization)
        return self._key(name, password) in self._accepted

    def allows(self, authorization: str) -> bool:
        """Whether an ``Authorization`` header opens the door; True for anything where there are no users."""
        if not self.users:
            return True
        name, colon, password = _basic(authorization)
        if not colon:
            return False
        return self._check(name, password)

    def _key(self, name: str, password: str) -> bytes:
        import hmac  # noqa: PLC0415  as bcrypt: it loads all of hashlib, 2 MB

        # A digest of both with a length, so that no other pair spells the same bytes (CVE-2022-46146).
        text = f"{len(name)}:{name}:{password}"
        return hmac.digest(self.users.get(name, _NOBODY), text.encode(), "sha256")

    def _check(self, name: str, password: str) -> bool:
        import bcrypt  # noqa: PLC0415  only where users are configured: 2 MB that others need not load

        # bcrypt takes ~60 ms by design; Prometheus sends the same password on each scrape, so what was right is kept.
        stored = self.users.get(name)
        try:
            # 72 bytes is bcrypt's own limit; longer is refused by newer releases.
            good = bcrypt.checkpw(password.encode()[:72], stored or _NOBODY) and stored is not None
        except ValueError:  # releases differ in what they refuse, a NUL byte for one
            return False
        if good and len(self._accepted) < _MAX_REMEMBERED:
            self._accepted.add(self._key(name, password))
        return good


def load(path: str | None) -> WebConfig:
    """Read the file; ``UsageError`` with path, line and key where it can't be used."""
    if not path:
        return WebConfig()
    data = _yaml(path)
    _refuse_unknown(path, "", data, {"tls_server_config", "basic_auth_users"})
    tls, users = (_section(path, data, key) for key in ("tls_server_config", "basic_auth_users"))
    named = [value for key, value in tls.items() if key.endswith("_file")]
    files = (Path(path), *(Path(path).parent / name for name in named if isinstance(name, str)))
    return WebConfig(_tls(path, tls) if tls else None, _users(path, users), files)


def _section(path: str, data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    section = data.get(key) or {}
    if not isinstance(section, dict):
        msg = f"--web.config.file: {path}: {key} must hold keys and values, found a {type(section).__name__}"
        raise UsageError(msg)
    return section


def _yaml(path: str) -> dict[str, Any]:
    import yaml  # noqa: PLC0415  1.5 MB that an exporter without this file need not load

    try:
        with open(path, encoding="utf-8") as file:
            data = yaml.safe_load(file)
    except OSError as error:
        msg = f"--web.config.file: can't read {path}: {error.strerror}"
        raise UsageError(msg) from None
    except UnicodeDecodeError:
        msg = f"--web.config.file: {path} is not UTF-8 text"
        raise UsageError(msg) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        msg = f"--web.config.file: {where}: not valid YAML: {getattr(error, 'problem', None) or 'unreadable'}"
        raise UsageError(msg) from None
    except (ValueError, RecursionError) as error:  # a date such as 2026-13-45; a thousand brackets
        msg = f"--web.config.file: {path}: not valid YAML: {error}"
        raise UsageError(msg) from None
    if not isinstance(data or {}, dict):
        msg = (
            f"--web.config.file: {path}: expected tls_server_config and basic_auth_users, found a {type(data).__name__}"
        )
        raise UsageError(msg)
    return data or {}


def _refuse_unknown(path: str, within: str, data: Mapping[str, Any], known: set[str]) -> None:
    for key in data:
        if key not in known:
            msg = f"--web.config.file: {path}: unknown key {within}{key}; known are {', '.join(sorted(known))}"
            raise UsageError(msg)


def _tls(path: str, data: Mapping[str, Any]) -> RenewableContext:
    _refuse_unknown(path, "tls_server_config.", data, _TLS_KEYS)
    for key, value in data.items():
        if not isinstance(value, str):
            msg = f"--web.config.file: {path}: tls_server_config.{key} must be a text, found a {type(value).__name__}"
            raise UsageError(msg)
    context = RenewableContext(ssl.PROTOCOL_TLS_SERVER)
    version = data.get("min_version", "TLS12")
    if version not in _MIN_VERSIONS:
        msg = f"--web.config.file: {path}: min_version {version!r}; known are TLS12 and TLS13"
        raise UsageError(msg)
    context.minimum_version = _MIN_VERSIONS[version]
    folder = Path(path).parent  # relative names are meant from the file's own folder
    try:
        # Without a password of ours OpenSSL would ask for an encrypted key's on the terminal, and wait.
        context.load_cert_chain(folder / data["cert_file"], folder / data["key_file"], password="")
        _client_certificates(path, context, folder, data)
    except KeyError as error:
        msg = f"--web.config.file: {path}: tls_server_config needs {error.args[0]}"
        raise UsageError(msg) from None
    except (OSError, ssl.SSLError) as error:
        msg = f"--web.config.file: {path}: can't load the certificate or key: {error.strerror or error}"
        raise UsageError(msg) from None
    return context


def _client_certificates(path: str, context: ssl.SSLContext, folder: Path, data: Mapping[str, Any]) -> None:
    kind = data.get("client_auth_type", "NoClientCert")
    if kind not in ("NoClientCert", "RequireAndVerifyClientCert"):
        msg = (
            f"--web.config.file: {path}: client_auth_type {kind!r}; known are NoClientCert, RequireAndVerifyClientCert"
        )
        raise UsageError(msg)
    wanted = kind == "RequireAndVerifyClientCert"
    if wanted != ("client_ca_file" in data):
        msg = f"--web.config.file: {path}: client_ca_file and client_auth_type RequireAndVerifyClientCert go together"
        raise UsageError(msg)
    if wanted:
        context.load_verify_locations(folder / data["client_ca_file"])
        context.verify_mode = ssl.CERT_REQUIRED


def _users(path: str, data: Mapping[str, Any]) -> dict[str, bytes]:
    users = {}
    for name, hashed in data.items():
        if not _HASH.fullmatch(str(hashed)):
            way_out = f"make one with htpasswd -nBC 10 {name}"
            msg = f"--web.config.file: {path}: basic_auth_users.{name} is not a bcrypt hash; {way_out}"
            raise UsageError(msg)
        users[str(name)] = str(hashed).encode()
    return users


def _basic(authorization: str) -> tuple[str, str, str]:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return "", "", ""
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:  # not base64, not ASCII, not UTF-8
        return "", "", ""
