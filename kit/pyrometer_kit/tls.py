"""TLS contexts from exporter-toolkit's ``tls_server_config``, with Go's names of versions, ciphers and curves."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
# Go's other two, RequestClientCert and RequireAnyClientCert, take any certificate unverified: OpenSSL's Python binding
# cannot, and it would add no protection.
CLIENT_AUTH = {
    "": ssl.CERT_NONE,
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
# crypto/tls.CipherSuites() up to TLS 1.2 and OpenSSL's names.
CIPHERS = {
    f"TLS_ECDHE_{key}_WITH_{go}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for go, openssl in (
        ("AES_128_CBC_SHA", "AES128-SHA"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
# Legal in the list, but neither Go nor OpenSSL's cipher list select those of TLS 1.3.
CIPHERS_13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}


class TlsError(Exception):
    """The settings don't make a valid context; the message gives the reason."""


@dataclass(frozen=True)
class Pem:
    """A certificate or key: the name of its file, or its text."""

    file: Path | None = None
    text: str = ""


@dataclass(frozen=True)
class TlsSettings:
    """``tls_server_config`` with OpenSSL's names; empty collections are OpenSSL's defaults."""

    certificate: Pem
    key: Pem
    client_ca: Pem | None = None
    client_auth: ssl.VerifyMode = ssl.CERT_NONE
    min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    max_version: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED
    ciphers: Sequence[str] = ()
    curve: str = ""
    server_preference: bool = True
    allowed_sans: Collection[str] = ()


class ListeningContext(ssl.SSLContext):
    """The context that a server listens with; ``current`` returns the one that makes the next connection.

    Whole contexts are exchanged, and not at the server-name callback: that would change the certificate, while the
    verify mode, the versions and the ciphers stayed those of the first context.
    """

    current: Callable[[], ssl.SSLContext | None]

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:  # noqa: ANN401  those of ssl.SSLContext
        """Make a connection; asyncio calls this for each."""
        context = self.current()
        if context is None:  # never a connection without the protection that was asked for
            msg = "the server has no TLS configuration"
            raise ssl.SSLError(msg)
        return context.wrap_bio(*arguments, **options)


def listening_context(current: Callable[[], ssl.SSLContext | None]) -> ListeningContext:
    """Return a context to listen with, whose connections are made by whatever ``current`` returns."""
    made = ListeningContext(ssl.PROTOCOL_TLS_SERVER)
    made.current = current
    return made


def context(settings: TlsSettings) -> ssl.SSLContext:
    """Return a server's context.

    Raises:
        TlsError: A file cannot be used, or OpenSSL refuses a setting.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        made.minimum_version, made.maximum_version = settings.min_version, settings.max_version
        if settings.ciphers:
            made.set_ciphers(":".join(settings.ciphers))
        if settings.curve:
            made.set_ecdh_curve(settings.curve)
        if not settings.server_preference:
            made.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(f"OpenSSL refuses the versions, ciphers or curve: {error}") from None
    try:
        _load_pair(made, settings.certificate, settings.key)
    except (OSError, ValueError) as error:
        raise TlsError(f"can't load the certificate or key: {_reason(error)}") from None
    if settings.client_ca is not None:
        try:
            _load_client_ca(made, settings.client_ca)
        except (OSError, ValueError) as error:
            raise TlsError(f"can't load the client CA: {_reason(error)}") from None
    made.verify_mode = settings.client_auth
    return made


def has_allowed_san(certificate: Mapping[str, Any] | None, allowed: Collection[str]) -> bool:
    """Return whether a client's certificate has one of the subject alternative names: DNS, IP, e-mail or URI."""
    from ipaddress import ip_address  # noqa: PLC0415  only where client_allowed_sans is configured

    for kind, value in (certificate or {}).get("subjectAltName", ()):
        # OpenSSL spells IPv6 addresses in full and with a line's end.
        name = str(ip_address(value.strip())) if kind == "IP Address" else value
        if name in allowed:
            return True
    return False


def _load_pair(made: ssl.SSLContext, certificate: Pem, key: Pem) -> None:
    def encrypted() -> bytes:
        # Without a password callback OpenSSL would prompt on the terminal and wait.
        raise TlsError(
            "can't load the certificate or key: the key is encrypted, and no password can be entered;"
            " decrypt it with openssl pkey -in KEY -out NEW_KEY"
        )

    with _Readable(certificate) as certificate_file, _Readable(key) as key_file:
        made.load_cert_chain(certificate_file, key_file, password=encrypted)


def _load_client_ca(made: ssl.SSLContext, authority: Pem) -> None:
    if authority.file is not None:
        made.load_verify_locations(authority.file)
    else:
        made.load_verify_locations(cadata=authority.text)
    if not made.cert_store_stats()["x509"]:
        raise ValueError("it holds no certificate")


class _Readable:
    """A file name for OpenSSL, which reads keys from files only: an inline text stays in memory."""

    def __init__(self, pem: Pem) -> None:
        self._pem = pem
        self._descriptor = -1

    def __enter__(self) -> str:
        if self._pem.file is not None:
            return str(self._pem.file)
        self._descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
        os.write(self._descriptor, self._pem.text.encode())
        return f"/proc/self/fd/{self._descriptor}"

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error.strerror or error)
    return str(getattr(error, "strerror", None) or error)
