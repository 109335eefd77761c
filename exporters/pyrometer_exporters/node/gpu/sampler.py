"""Watches the clock-event bitmask of all GPUs 20 times a second, for the reasons that the driver doesn't count.

Two threads take turns, and each looks after the other: one that finds the other still in its turn after HANGS_SECONDS
goes on without it and takes on a new partner. So a GPU that hangs holds the one thread that called it; its neighbours
miss a few reads, and are read on. (Eight threads cost six times as much, for waking up; one with another to look after
it wakes half as often again as two in turn.)

A GPU's reads by the sampler and by its own worker exclude each other by one lock, so at most one thread per hung GPU
is ever stuck, and mostly it is the sampler's: scrapes then needn't wait to know.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.gpu.clock_events import KNOWN_BITS
from pyrometer_exporters.node.gpu.driver import Link
from pyrometer_exporters.node.gpu.edges import Rises

log = logging.getLogger(__name__)

DEFAULT_FREQUENCY = 20.0
# Longer than this between two reads and nobody knows what was in between: neither throttled nor not. It is as long as
# a hung GPU can hold up its neighbours: since their last read, until the other thread's turn, until that gives up.
MAX_GAP_SECONDS = 0.25
# A read under way for this long is a hang as far as its neighbours and a scrape are concerned.
HANGS_SECONDS = 0.1
# After so long with the sampler still in that read, a scrape needn't wait to know that the GPU hangs. Before that it
# waits as for any GPU: on a machine with three busy threads for each two cores a thread that had come back from the
# driver stood still for more than a tenth of a second, and GPUs that were well were called down.
STUCK_SECONDS = 0.5
# A GPU that failed is left alone for a while: calls to a sick one can be slow.
REST_SECONDS = 1.0
# A read that takes this long (a healthy one: well under 1 ms) would slow down the others' cadence.
SLOW_READ_SECONDS = 0.02
# No driver has so many reasons: a mask with these bits is none. A device that fell off the bus reads as all ones.
NO_REASONS = 0xFFFFFFFFFFFF0000


class Watched:
    """One GPU's bitmask over time: seconds per bitmask seen, kept while the GPU comes and goes."""

    __slots__ = (
        "_at",
        "generation",
        "held_by",
        "held_since",
        "lock",
        "read",
        "rests_until",
        "rises",
        "seconds",
        "told",
    )

    def __init__(self) -> None:
        self.read: Callable[[], int] | None = None
        """Reads the bitmask; None while the GPU isn't open. Raises PartError."""
        self.generation = 0
        """The connection to the driver under which :attr:`read` may be called."""
        self.lock = threading.Lock()
        """Held while the sampler or the GPU's worker calls the driver about this GPU."""
        self.seconds: dict[int, float] = {}
        self.rises = Rises()
        self.rests_until = 0.0
        self.told = False
        self.held_by: _Turn | None = None
        """The thread that was given up because it hung in a read of this GPU."""
        self.held_since = 0.0
        """When that was, by ``time.monotonic``."""
        self._at: float | None = None

    @property
    def hangs(self) -> bool:
        """Whether the sampler is stuck in a read, for longer than a busy machine lets a thread wait."""
        stuck = self.held_by
        return stuck is not None and stuck.reading is self and time.monotonic() - self.held_since >= STUCK_SECONDS

    def take(self, mask: int, now: float) -> None:
        """Count the time since the read before as spent under ``mask``, unless that was too long ago."""
        before, self._at = self._at, now
        if mask & NO_REASONS:
            self._at = None
            return
        mask &= KNOWN_BITS  # also keeps the number of different masks bounded
        if before is not None and 0 < now - before <= MAX_GAP_SECONDS:
            self.seconds[mask] = self.seconds.get(mask, 0.0) + now - before
        if mask != self.rises.mask:
            self.rises.take(mask, now)

    def missed(self, until: float) -> None:
        """The read failed: what was before can't be joined to what comes next; rest until ``until``."""
        self._at = None
        self.rests_until = until

    def by_mask(self) -> dict[int, float]:
        """A copy of the seconds per bitmask, safe against the sampler's own writing."""
        return dict(self.seconds)


class Sampler:
    """Reads every watched GPU ``frequency`` times a second from the first :meth:`watch` to :meth:`close`.

    ``using`` gives the connection to the driver for a round of all GPUs, and raises PartError while there is none.
    """

    def __init__(
        self,
        using: Callable[[], contextlib.AbstractContextManager[Link]],
        frequency: float = DEFAULT_FREQUENCY,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._using = using
        self._interval = 1 / frequency
        self._monotonic = monotonic
        self._watched: tuple[Watched, ...] = ()
        self._lock = threading.Lock()
        self._crew: tuple[_Turn, ...] = ()
        self._baton = threading.Lock()  # whose it is has the turn; a new one each time that somebody was given up
        self._due = 0.0
        self._closed = False

    def watch(self, watched: Watched) -> None:
        """Begin to sample a GPU; may be called from any thread, and again for the same GPU."""
        with self._lock:
            if watched not in self._watched:
                self._watched = (*self._watched, watched)
            if not self._crew and not self._closed:
                self._hire()

    def forget(self, watched: Watched) -> None:
        """Sample a GPU no more, if it was."""
        with self._lock:
            self._watched = tuple(other for other in self._watched if other is not watched)

    def close(self) -> None:
        """Let the threads end; doesn't wait for one that hangs."""
        with self._lock:
            self._closed = True
            self._crew = ()

    def _hire(self) -> None:
        turn = _Turn()
        before, self._crew = self._crew, (*self._crew, turn)
        try:
            threading.Thread(target=self._run, args=(turn,), name="gpu-sampler", daemon=True).start()
        except RuntimeError:  # no thread to be had now
            self._crew = before
            raise

    def _run(self, turn: _Turn) -> None:
        while turn in self._crew:
            baton = self._baton
            if not baton.acquire(timeout=HANGS_SECONDS):
                self._go_on_without_others(turn, baton)
                continue
            try:
                due = self._take_turn(turn)
            finally:
                baton.release()
            time.sleep(max(0.0, due - self._monotonic()))

    def _take_turn(self, turn: _Turn) -> float:
        """A round of all GPUs, if ``turn`` is still one of us; when it has its next turn."""
        if len(self._crew) == 1:
            with self._lock, contextlib.suppress(RuntimeError):  # alone, then, until the next turn
                if turn in self._crew:
                    self._hire()
        if turn in self._crew:
            self._round(turn)
        # A turn that ran late doesn't make the next ones hurry.
        self._due = max(self._due + self._interval, self._monotonic())
        return self._due

    def _go_on_without_others(self, turn: _Turn, baton: threading.Lock) -> None:
        with self._lock:
            if self._baton is baton and turn in self._crew:
                self._baton = threading.Lock()
                for other in self._crew:
                    if other is not turn and other.reading is not None:
                        other.reading.held_by, other.reading.held_since = other, time.monotonic()
                self._crew = (turn,)

    def _round(self, turn: _Turn) -> None:
        now = self._monotonic()
        try:
            with self._using() as link:
                for watched in self._watched:
                    if watched.generation == link.generation:
                        # The end of one read is the beginning of the next: a clock read costs as much as the counting.
                        now = self._sample(watched, turn, now)
                        if turn not in self._crew:
                            return
        except PartError:  # not connected
            for watched in self._watched:
                watched.missed(0.0)

    def _sample(self, watched: Watched, turn: _Turn, start: float) -> float:
        """Read one GPU, beginning at ``start``; when that was over."""
        read = watched.read
        if read is None or start < watched.rests_until or not watched.lock.acquire(blocking=False):
            return start
        turn.reading = watched
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
            turn.reading = None
            watched.lock.release()
        return now


class _Turn:
    """One sampling thread, for as long as it is one of the two."""

    __slots__ = ("reading",)

    def __init__(self) -> None:
        self.reading: Watched | None = None
        """The GPU whose read is under way."""
