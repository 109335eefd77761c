"""Time behind a protocol, so that tests need not wait."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time: it is compared with Alertmanager's and Slack's."""

    def now(self) -> float:
        """Unix seconds."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Unix seconds."""
        return time.time()
