"""How busy each GPU of the node was when it was last read, for collectors that have no GPU of their own to read."""

from __future__ import annotations

import threading
from dataclasses import dataclass

# A rank that waits in a collective runs a kernel that polls: full utilisation at a fifth to a third of the power limit
# (alert_rules/nccl_gpus.rules.yaml has the same numbers), and far below what its GPU took before.
FULL_PERCENT = 99.0
LOW_SHARE = 0.45
FALLEN_SHARE = 0.6
# Two scrapes in a row: a short pause is none. Beyond five minutes whoever asks because of it has asked often enough.
SPINS_SECONDS, RECENT_SECONDS = 10.0, 300.0


@dataclass
class _Load:
    most_watts: float = 0.0
    spins_since: float | None = None
    seen_at: float = 0.0

    @property
    def spun(self) -> float:
        """Return for how long it has been seen to spin, in s."""
        return 0.0 if self.spins_since is None else self.seen_at - self.spins_since


class GpuLoads:
    """The latest loads; may be used from any thread. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loads: dict[str, _Load] = {}

    def note(self, gpu: str, percent: float, watts: float, limit: float, now: float) -> None:
        """Take what was read of a GPU: its utilisation, power and power limit."""
        with self._lock:
            load = self._loads.setdefault(gpu, _Load())
            load.most_watts = watts if percent < 1 else max(watts, load.most_watts)  # idle: another job follows
            spins = percent >= FULL_PERCENT and watts < min(LOW_SHARE * limit, FALLEN_SHARE * load.most_watts)
            load.spins_since = (load.spins_since or now) if spins else None
            load.seen_at = now

    def spin(self, now: float) -> bool:
        """Return whether half of the GPUs or more have begun to spin, between 10 s and 5 minutes ago."""
        with self._lock:
            fresh = [load for load in self._loads.values() if now - load.seen_at < RECENT_SECONDS]
            began = [load.spins_since for load in fresh if load.spins_since is not None and load.spun >= SPINS_SECONDS]
        return bool(began) and 2 * len(began) >= len(fresh) and now - max(began) < RECENT_SECONDS
