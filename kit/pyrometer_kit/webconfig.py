"""exporter-toolkit's web configuration file: TLS, users, headers and a rate limit.

Format: https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md. Every legal key is either
honoured or warned of in one line; an unknown one is refused, as ignoring it could leave a door open.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pyrometer_kit import tls
from pyrometer_kit.auth import BasicAuth
from pyrometer_kit.errors import UsageError
from pyrometer_kit.rate_limit import TokenBucket, duration

if TYPE_CHECKING:
    from pyrometer_kit.yamlfile import Node

log = logging.getLogger(__name__)

T = TypeVar("T")

_SECTIONS = ("basic_auth_users", "http_server_config", "rate_limit", "tls_server_config")
_TLS_KEYS = (
    *("cert", "cert_file", "key", "key_file", "client_ca", "client_ca_file", "client_auth_type", "client_allowed_sans"),
    *("min_version", "max_version", "cipher_suites", "prefer_server_cipher_suites", "curve_preferences"),
)
# exporter-toolkit sets no others; of two it takes only these values.
_HEADERS: Mapping[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
_BOOLEANS = {"true": True, "false": False}
_HASH = re.compile(r"\$2[aby]\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")
_NOBODY = "names nobody, so that everybody would be let in: add a user, or remove the setting"
_CA_NEEDS_TYPE = (
    "the client CA would verify no client: set client_auth_type to RequireAndVerifyClientCert, or remove it"
)


@dataclass
class WebConfig:
    """Everything that the file can set; empty is plain HTTP for everyone. :meth:`replace` changes it under a server."""

    tls: ssl.SSLContext | None = None
    auth: BasicAuth = field(default_factory=BasicAuth)
    headers: Mapping[str, str] = field(default_factory=dict)
    rate_limit: TokenBucket | None = None
    allowed_sans: frozenset[str] = frozenset()
    files: tuple[Path, ...] = ()
    """The file itself and those that it names."""
    warnings: tuple[str, ...] = ()
    """Legal settings that are not supported, one line each."""

    @property
    def asks_login(self) -> bool:
        """True if a client needs a password or a certificate."""
        return bool(self.auth.users) or (self.tls is not None and self.tls.verify_mode == ssl.CERT_REQUIRED)

    def replace(self, fresh: WebConfig) -> None:
        """Take over everything from ``fresh``; every holder of this configuration sees the new one from now on."""
        before = self.rate_limit
        self.tls, self.auth, self.headers = fresh.tls, fresh.auth, fresh.headers
        self.allowed_sans, self.files, self.rate_limit = fresh.allowed_sans, fresh.files, fresh.rate_limit
        self.warnings = fresh.warnings
        if before and self.rate_limit and _limit(before) == _limit(self.rate_limit):
            self.rate_limit = before  # a new certificate refills no bucket


def load(path: str | Path | None, logged: Collection[str] = ()) -> WebConfig:
    """Read the file and log its warnings, except those ``logged`` before; without a path the configuration is empty.

    Raises:
        UsageError: It cannot be used; the message has path, line, setting and the fix.
    """
    if not path:
        return WebConfig()
    try:
        config = _load(Path(path))
    except UsageError as error:
        raise UsageError(f"--web.config.file: {error}") from None
    for warning in config.warnings:
        if warning not in logged:
            log.warning("--web.config.file: %s", warning)
    return config


def _load(path: Path) -> WebConfig:
    from pyrometer_kit import yamlfile  # noqa: PLC0415  PyYAML, which a program without this file need not load

    root = yamlfile.read(path)
    for name, node in root.items():
        if name not in _SECTIONS:
            raise UsageError(f"{node.place}: unknown setting {name}; known are {', '.join(_SECTIONS)}")
    section = {name: root[name] for name in _SECTIONS if name in root and root[name].value != ""}
    warnings: list[str] = []
    headers = _headers(section["http_server_config"], warnings) if "http_server_config" in section else {}
    config = WebConfig(
        auth=BasicAuth(_users(section["basic_auth_users"]) if "basic_auth_users" in section else {}),
        headers=headers,
        rate_limit=_rate_limit(section["rate_limit"]) if "rate_limit" in section else None,
        files=(path,),
    )
    if "tls_server_config" in section and section["tls_server_config"].value != {}:
        settings = _tls(path.parent, section["tls_server_config"], warnings)
        try:
            config.tls = tls.context(settings)
        except tls.TlsError as error:
            raise UsageError(f"{section['tls_server_config'].place}: {error}") from None
        config.allowed_sans = frozenset(settings.allowed_sans)
        pems = (settings.certificate, settings.key, settings.client_ca)
        config.files += tuple(pem.file for pem in pems if pem is not None and pem.file is not None)
    config.warnings = tuple(warnings)
    if "basic_auth_users" in section and not config.asks_login:
        raise UsageError(f"{section['basic_auth_users'].place}: basic_auth_users {_NOBODY}")
    return config


def _users(node: Node) -> dict[str, bytes]:
    users = {}
    for name, hashed in node.fields().items():
        if not (isinstance(hashed.value, str) and _HASH.fullmatch(hashed.value)):
            way_out = f"make one with htpasswd -nBC 10 {name}"
            raise UsageError(f"{hashed.place}: basic_auth_users.{name} is not a bcrypt hash; {way_out}")
        users[name] = hashed.value.encode()
    return users


def _headers(node: Node, warnings: list[str]) -> dict[str, str]:
    settings = node.fields(("headers", "http2"))
    if "http2" in settings and _choice(settings["http2"], _BOOLEANS):
        warnings.append(f"{settings['http2'].place}: http2 is not supported: HTTP/1.1 is served")
    if "headers" not in settings or settings["headers"].value == "":
        return {}
    headers = {}
    for name, entry in settings["headers"].fields(_HEADERS).items():
        value, allowed = entry.text(), _HEADERS[name]
        if allowed and value.lower() not in ("", *allowed):
            raise UsageError(f"{entry.place}: {name} is {value!r}; known are {', '.join(allowed)}")
        if not (value.isascii() and (value.isprintable() or not value)):
            raise UsageError(f"{entry.place}: {name} must be printable ASCII on one line")
        if value:
            headers[name] = value
    return headers


def _rate_limit(node: Node) -> TokenBucket | None:
    settings = node.fields(("burst", "interval"))
    if "interval" not in settings:
        raise UsageError(f"{node.place}: rate_limit needs interval, such as 1s")
    try:
        interval = duration(settings["interval"].text())
    except ValueError:
        raise UsageError(f"{settings['interval'].place}: interval is not a duration such as 1s or 100ms") from None
    if interval == 0:
        return None
    burst = settings["burst"].text() if "burst" in settings else "0"
    if not (burst.isascii() and burst.isdigit() and 0 < int(burst) < 10**9):
        raise UsageError(f"{settings.get('burst', node).place}: burst must be at least 1: the limit refuses everything")
    return TokenBucket(interval, int(burst))


def _tls(folder: Path, node: Node, warnings: list[str]) -> tls.TlsSettings:
    settings = node.fields(_TLS_KEYS)
    authority = _pem(folder, settings, "client_ca")
    _check_client_auth(node, settings, authority)
    certificate, key = (_pem(folder, settings, name) for name in ("cert", "key"))
    for name, pem in (("cert_file", certificate), ("key_file", key)):
        if pem is None:
            raise UsageError(f"{node.place}: tls_server_config needs {name}")
    assert certificate is not None  # noqa: S101  for the type checker: refused above
    assert key is not None  # noqa: S101
    return tls.TlsSettings(
        certificate=certificate,
        key=key,
        client_ca=authority,
        client_auth=_setting(settings, "client_auth_type", tls.CLIENT_AUTH, ssl.CERT_NONE),
        min_version=_setting(settings, "min_version", tls.VERSIONS, ssl.TLSVersion.TLSv1_2),
        max_version=_setting(settings, "max_version", tls.VERSIONS, ssl.TLSVersion.MAXIMUM_SUPPORTED),
        ciphers=_ciphers(settings),
        curve=_curve(settings, warnings),
        server_preference=_setting(settings, "prefer_server_cipher_suites", _BOOLEANS, default=True),
        allowed_sans=_texts(settings, "client_allowed_sans"),
    )


def _check_client_auth(node: Node, settings: Mapping[str, Node], authority: tls.Pem | None) -> None:
    """Refuse every combination that would verify no client or refuse every client."""
    mode = _setting(settings, "client_auth_type", tls.CLIENT_AUTH, ssl.CERT_NONE)
    if mode == ssl.CERT_NONE and authority is not None:
        place = settings.get("client_ca_file", settings.get("client_ca", node)).place
        raise UsageError(f"{place}: {_CA_NEEDS_TYPE}")
    if mode != ssl.CERT_NONE and authority is None:
        place, kind = settings["client_auth_type"].place, settings["client_auth_type"].text()
        raise UsageError(f"{place}: client_auth_type {kind} needs client_ca_file: no certificate could be verified")
    if _texts(settings, "client_allowed_sans") and mode != ssl.CERT_REQUIRED:
        place = settings["client_allowed_sans"].place
        raise UsageError(f"{place}: client_allowed_sans needs client_auth_type RequireAndVerifyClientCert")


def _pem(folder: Path, settings: Mapping[str, Node], name: str) -> tls.Pem | None:
    """Return what ``<name>`` (inline) or ``<name>_file`` (relative to the file's own folder) gives."""
    inline, file = (settings[key].text() if key in settings else "" for key in (name, f"{name}_file"))
    if inline and file:
        raise UsageError(f"{settings[name].place}: {name} and {name}_file exclude each other: remove one")
    if inline:
        return tls.Pem(text=inline)
    return tls.Pem(file=folder / file) if file else None


def _ciphers(settings: Mapping[str, Node]) -> Sequence[str]:
    names = _names(settings, "cipher_suites", "cipher suite", sorted(tls.CIPHERS), tls.CIPHERS_13)
    return tuple(tls.CIPHERS[name] for name in names if name in tls.CIPHERS)


def _curve(settings: Mapping[str, Node], warnings: list[str]) -> str:
    names = _names(settings, "curve_preferences", "curve", tls.CURVES)
    if len(names) > 1:  # Python can set one curve or leave the choice to OpenSSL
        place = settings["curve_preferences"].place
        warnings.append(f"{place}: curve_preferences is supported with one curve only: OpenSSL's own order is used")
        return ""
    return tls.CURVES[names[0]] if names else ""


def _setting(settings: Mapping[str, Node], name: str, choices: Mapping[str, T], default: T) -> T:
    return _choice(settings[name], choices, name) if name in settings else default


def _choice(node: Node, choices: Mapping[str, T], name: str = "http2") -> T:
    value = node.text()
    if value not in choices:
        raise UsageError(f"{node.place}: {name} {value!r}; known are {', '.join(filter(None, choices))}")
    return choices[value]


def _names(
    settings: Mapping[str, Node], name: str, kind: str, choices: Collection[str], unlisted: Collection[str] = ()
) -> list[str]:
    texts = _texts(settings, name)
    for text in texts:
        if text not in choices and text not in unlisted:
            raise UsageError(f"{settings[name].place}: unknown {kind} {text}; known are {', '.join(choices)}")
    return texts


def _texts(settings: Mapping[str, Node], name: str) -> list[str]:
    if name not in settings or settings[name].value == "":
        return []
    return [item.text() for item in settings[name].items()]


def _limit(bucket: TokenBucket) -> tuple[float, int]:
    return bucket.interval, bucket.burst
