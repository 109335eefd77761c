"""exporter-toolkit's rate_limit: a bucket of tokens, filled at a steady pace."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


class TokenBucket:
    """Allows one request per ``interval`` seconds and bursts of up to ``burst``. Not thread-safe."""

    def __init__(self, interval: float, burst: int, now: Callable[[], float] = time.monotonic) -> None:
        self.interval = interval
        self.burst = burst
        self._now = now
        self._tokens = float(burst)
        self._at = now()

    def take(self) -> bool:
        """Take a token; return False where none is left."""
        now = self._now()
        self._tokens = min(float(self.burst), self._tokens + (now - self._at) / self.interval)
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


def duration(text: str) -> float:
    """Return the seconds of a Go duration such as ``1s``, ``1m30s`` or ``0``.

    Raises:
        ValueError: It is not one.

    >>> duration("1m30s")
    90.0
    """
    if text == "0":
        return 0.0
    if not re.fullmatch(f"(?:{_PART.pattern})+", text):
        raise ValueError(text)
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
