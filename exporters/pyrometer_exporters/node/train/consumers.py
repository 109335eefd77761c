"""Who asks ``/batches``: one place per address and name, which nobody else's requests can take away."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

# Pairs of Prometheus servers, agents, and those of other teams; each costs a few hundred bytes a run.
MAX_CONSUMERS = 64
# One host, or one IPv6 network, cannot fill the places.
MAX_PER_NETWORK = 8
# One that asked within this many of its own intervals keeps its place.
INTERVALS = 10
# Nobody's interval is known from its first request: this is the longest usual one.
UNKNOWN_INTERVAL_SECONDS = 60.0
MAX_INTERVAL_SECONDS = 600.0
_SEPARATOR = "/"  # in no address


@dataclass
class _Asker:
    network: str
    asked: float
    interval: float = UNKNOWN_INTERVAL_SECONDS

    def gone(self, now: float) -> bool:
        return now - self.asked > INTERVALS * self.interval

    def ask(self, now: float) -> None:
        # Halved at most: a request by hand between two scrapes doesn't make a slow scraper seem gone.
        gap = min(now - self.asked, MAX_INTERVAL_SECONDS)
        self.interval, self.asked = max(gap, self.interval / 2, 1.0), now


class Consumers:
    """Places by address and name.

    Attributes:
        refused: Number of requests for which there was no place.
    """

    def __init__(self, keys: Iterable[str], now: float) -> None:
        """Continue with the ``keys`` of an earlier process."""
        self.refused = 0
        self._askers = {key: _Asker(_network(key.partition(_SEPARATOR)[0]), now) for key in keys if _SEPARATOR in key}

    def admit(self, address: str, name: str, now: float) -> tuple[str | None, str | None]:
        """Return the asker's key, None where there is no place for it, and the key whose place it got, if any."""
        key = f"{address}{_SEPARATOR}{name}"
        asker = self._askers.get(key)
        if asker is not None:
            asker.ask(now)
            return key, None
        network = _network(address)
        neighbours = [other for other, one in self._askers.items() if one.network == network]
        crowd = neighbours if len(neighbours) >= MAX_PER_NETWORK else list(self._askers)
        evicted = None
        if crowd is neighbours or len(crowd) >= MAX_CONSUMERS:
            evicted = min(
                (other for other in crowd if self._askers[other].gone(now)), key=self._last_asked, default=None
            )
            if evicted is None:
                self.refused += 1
                return None, None
            del self._askers[evicted]
        self._askers[key] = _Asker(network, now)
        return key, evicted

    def _last_asked(self, key: str) -> float:
        return self._askers[key].asked


def _network(address: str) -> str:
    """Return what one host can choose its address from: all of loopback, an IPv6 /64, else the address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    if ip.is_loopback:
        return "loopback"
    return str(ip) if ip.version == 4 else str(ipaddress.ip_network((ip, 64), strict=False))
