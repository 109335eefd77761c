"""Watches the clock-event bitmask of all GPUs 20 times a second, for the reasons that the driver doesn't count.

One thread reads all GPUs in turn: eight threads cost six times as much (measured: 1.9 % of a core against 0.3 %), for
waking up. A GPU that hangs holds that thread; a second one looks after it ten times a second and starts a successor,
which leaves out the GPU that still has its predecessor. The sampler and the GPU's own worker take turns under one lock,
so at most one thread per hung GPU is ever stuck, and mostly it is the sampler's: scrapes then needn't wait to know.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from pyrometer_exporters.framework.worker import PartError
from pyrometer_exporters.node.gpu.clock_events import KNOWN_BITS
from pyrometer_exporters.node.gpu.edges import Rises

log = logging.getLogger(__name__)

DEFAULT_FREQUENCY = 20.0
# Longer than this between two reads and nobody knows what was in between: neither throttled nor not. It is as long as
# a hung GPU can hold up its neighbours: until the second look finds the thread in the same call, and one turn more.
MAX_GAP_SECONDS = 0.25
WATCH_SECONDS = 0.1
# A GPU that failed is left alone for a while: calls to a sick one can be slow.
REST_SECONDS = 1.0
# A read that takes this long (a healthy one: well under 1 ms) would slow down the others' cadence.
SLOW_READ_SECONDS = 0.02
# A read under way for this long is a hang as far as a scrape is concerned.
HANGS_SECONDS = 0.1
ALL_ONES = 0xFFFFFFFFFFFFFFFF


class Watched:
    """One GPU's bitmask over time: seconds per bitmask seen, kept while the GPU comes and goes."""

    __slots__ = ("_at", "began", "lock", "read", "rests_until", "rises", "seconds", "told")

    def __init__(self) -> None:
        self.read: Callable[[], int] | None = None
        """Reads the bitmask; None while the GPU isn't open. Raises PartError."""
        self.lock = threading.Lock()
        """Held while the sampler or the GPU's worker calls the driver about this GPU."""
        self.seconds: dict[int, float] = {}
        self.rises = Rises()
        self.began: float | None = None
        """When the sampler's present read began, on time.monotonic; None while there is none."""
        self.rests_until = 0.0
        self.told = False
        self._at: float | None = None

    @property
    def hangs(self) -> bool:
        """Whether the sampler is stuck in a read."""
        began = self.began
        return began is not None and time.monotonic() - began > HANGS_SECONDS

    def take(self, mask: int, now: float) -> None:
        """Count the time since the read before as spent under ``mask``, unless that was too long ago."""
        before, self._at = self._at, now
        if mask == ALL_ONES:  # what a device that fell off the bus reads as
            self._at = None
            return
        mask &= KNOWN_BITS  # also keeps the number of different masks bounded
        if before is not None and 0 < now - before <= MAX_GAP_SECONDS:
            self.seconds[mask] = self.seconds.get(mask, 0.0) + now - before
        self.rises.take(mask, now)

    def missed(self, until: float) -> None:
        """The read failed: what was before can't be joined to what comes next; rest until ``until``."""
        self._at = None
        self.rests_until = until

    def by_mask(self) -> dict[int, float]:
        """A copy of the seconds per bitmask, safe against the sampler's own writing."""
        return dict(self.seconds)


class Sampler:
    """Reads every watched GPU ``frequency`` times a second from the first :meth:`watch` to :meth:`close`."""

    def __init__(self, frequency: float = DEFAULT_FREQUENCY, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1 / frequency
        self._monotonic = monotonic
        self._watched: tuple[Watched, ...] = ()
        self._turn: _Turn | None = None
        self._lock = threading.Lock()
        self._closed = False

    def watch(self, watched: Watched) -> None:
        """Begin to sample a GPU; may be called from any thread, and again for the same GPU."""
        with self._lock:
            if watched not in self._watched:
                self._watched = (*self._watched, watched)
            if self._turn is None and not self._closed:
                self._succeed()
                threading.Thread(target=self._look_after, name="gpu-sampler-watch", daemon=True).start()

    def close(self) -> None:
        """Let the threads end; doesn't wait for one that hangs."""
        with self._lock:
            self._closed = True
            self._turn = None

    def _succeed(self) -> None:
        turn = self._turn = _Turn()
        threading.Thread(target=self._run, args=(turn,), name="gpu-sampler", daemon=True).start()

    def _look_after(self) -> None:
        seen: tuple[_Turn | None, int] = (None, 0)
        while True:
            time.sleep(WATCH_SECONDS)
            with self._lock:
                turn = self._turn
                if turn is None:
                    return
                if turn.reading and seen == (turn, turn.reads):
                    self._succeed()
            seen = (turn, turn.reads)

    def _run(self, turn: _Turn) -> None:
        due = self._monotonic()
        while self._turn is turn:
            now = self._monotonic()
            for watched in self._watched:
                # The end of one read is the beginning of the next: a clock read costs as much as the counting.
                now = self._sample(watched, turn, now)
                if self._turn is not turn:
                    return
            # A turn that ran late doesn't make the next ones hurry.
            due = max(due + self._interval, now)
            time.sleep(due - now)

    def _sample(self, watched: Watched, turn: _Turn, start: float) -> float:
        """Read one GPU, beginning at ``start``; when that was over."""
        read = watched.read
        if read is None or start < watched.rests_until or not watched.lock.acquire(blocking=False):
            return start
        turn.reads += 1
        watched.began, turn.reading = time.monotonic(), True
        try:
            mask = read()
        except PartError:
            now = self._monotonic()
            watched.missed(start + REST_SECONDS)
        except Exception:
            now = self._monotonic()
            if not watched.told:  # once: it would be every second
                watched.told = True
                log.exception("a GPU can't be sampled")
            watched.missed(start + REST_SECONDS)
        else:
            now = self._monotonic()
            watched.take(mask, now)
            if now - start > SLOW_READ_SECONDS:
                # It may take a twentieth of the thread's time, not more.
                watched.rests_until = now + 20 * (now - start)
        finally:
            watched.began, turn.reading = None, False
            watched.lock.release()
        return now


class _Turn:
    """One sampling thread's term; it ends when another takes over."""

    def __init__(self) -> None:
        self.reads = 0
        self.reading = False
