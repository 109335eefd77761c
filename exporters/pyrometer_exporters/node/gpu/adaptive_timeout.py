"""How long a scrape waits for a GPU: by what that GPU usually takes, so that a hung one costs its neighbours little.

A short wait is sound because a late answer is no lost work: the read goes on in the GPU's own worker, opens what it
was to open, and what it took counts for the next wait.
"""

from __future__ import annotations

# A GPU that isn't open yet may have to be woken: without persistence mode the driver takes a second or two.
LONGEST_SECONDS = 2.0
# A container with a tenth of a core stands still for 90 ms of every 100; that is no fault of the GPU's.
SHORTEST_SECONDS = 0.2
# A busy node makes single reads a few times longer than the usual; hangs (Xid 119, 120) take seconds at least.
MULTIPLE = 4
# What is read once a minute must still be remembered after three short reads at 15 s.
FORGETTING = 0.8


class AdaptiveTimeout:
    """One GPU's. Its worker alone writes."""

    def __init__(self) -> None:
        self._usual: float | None = None

    @property
    def seconds(self) -> float:
        """How long to wait for the next read."""
        if self._usual is None:
            return LONGEST_SECONDS
        return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, MULTIPLE * self._usual))

    def took(self, seconds: float) -> None:
        """A read of a GPU that was open took so long, whether anyone still waited for it or not."""
        self._usual = max(seconds, FORGETTING * (self._usual or 0.0))

    def failed(self) -> None:
        """A read failed: a GPU that may be sick isn't waited for as one that is being woken."""
        self._usual = self._usual or 0.0
