"""The names that a service is asked by: a browser that asks for another one shows somebody else's page.

By DNS rebinding a page at http://evil.example:9937 reaches us as its own site, and reads and posts as one of us. It can
neither have a number as its name nor one without a dot.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

RESOLVER = Path("/etc/resolv.conf")


class OwnNames:
    """Addresses, names without a dot, this host's, those in the domains that the resolver searches, and those given."""

    def __init__(self, names: Iterable[str] = (), resolver: Path = RESOLVER) -> None:
        """Accept these names beside our own; `resolver` is the file with the domains."""
        self._names = {name.lower().rstrip(".") for name in (*names, socket.gethostname())}
        try:
            lines = [line.split() for line in resolver.read_text(encoding="utf-8", errors="replace").splitlines()]
        except OSError:
            lines = []
        domains = {word for line in lines if line[:1] in (["search"], ["domain"]) for word in line[1:]}
        self._domains = tuple(f".{domain.strip('.').lower()}" for domain in domains if domain.strip("."))

    def has(self, place: str) -> bool:
        """Return whether `place`, a host with or without a port, is one of them."""
        try:
            name = (urlsplit(f"//{place}").hostname or "").rstrip(".")
        except ValueError:
            return False
        return bool(name) and (
            "." not in name.removesuffix(".localhost")
            or name in self._names
            or name.endswith(self._domains)
            or _is_address(name)
        )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
