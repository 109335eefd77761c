"""How long a scrape waits for a GPU: a multiple of its usual read, so that a hung GPU costs its neighbours little.

A short wait is safe because a late read is not lost: it continues in the GPU's own thread, opens the GPU, and its
duration counts for the next wait.
"""

from __future__ import annotations

# A GPU that isn't open yet may have to be woken: without persistence mode the driver takes a second or two.
LONGEST_SECONDS = 2.0
# A container with a tenth of a core is stopped for 90 ms of every 100; that is no fault of the GPU's.
SHORTEST_SECONDS = 0.2
# A busy node makes single reads a few times longer than usual; hangs (Xid 119, 120) take seconds at least.
MULTIPLE = 4
# A long read once a minute must still count after three short ones at 15 s.
FORGETTING = 0.8


class AdaptiveTimeout:
    """One GPU's timeout. Only its own thread writes."""

    def __init__(self) -> None:
        self._usual: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds to wait for the next read."""
        if self._usual is None:
            return LONGEST_SECONDS
        return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, MULTIPLE * self._usual))

    def took(self, seconds: float) -> None:
        """Note how long a read of an open GPU took, whether anyone still waited for it or not."""
        self._usual = max(seconds, FORGETTING * (self._usual or 0.0))

    def failed(self) -> None:
        """Note a failed read: a GPU that may be sick gets less time than one that is being woken."""
        self._usual = self._usual or 0.0
