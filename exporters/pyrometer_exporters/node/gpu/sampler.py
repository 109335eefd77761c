"""Sample the clock-event bitmask of all GPUs, 5 or 20 times a second, for reasons that the driver doesn't count.

20 times a second while one of them has, or had in the last ten seconds, a reason that only the sampler can measure, or
the driver's own counters show that one was throttled since the previous scrape; else 5 times, as each round wakes a
thread. ``Stretches`` says why the sums are right all the same. A pulse that comes after ten quiet seconds is off by
0.2 s at most at each of its ends, by nothing on average, and missed only if it is shorter than 0.4 s.

Two threads take turns, a round of all GPUs each; the one that holds the baton (a lock) has the turn, and each watches
the other. So a GPU that hangs holds only the thread that called it, and its neighbours miss a few reads::

    thread A   [0 1 2 3]                 [0 1 2 3 . . . . . . . . . . . . . .] returns, is no longer in the crew, ends
    thread B            [0 1 2 3]          waits for the baton |
                                           HANGS_SECONDS later: takes a new baton, dismisses A,
                                           notes that A hangs in GPU 3 |[0 1 2 - 4] hires C
    thread C                                                                       [0 1 2 - 4]

Eight threads cost six times as much, for waking up; one with another to watch it wakes half as often again as two in
turn (``benchmarks/bench_gpu.py`` measures the sampler).

One lock for each GPU keeps the sampler and the GPU's own worker from calling the driver about it at the same time. So
at most one thread per hung GPU is ever stuck, usually the sampler's, and then scrapes know without waiting.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable

from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.gpu.clock_event_counts import Rises
from pyrometer_exporters.node.gpu.clock_events import KNOWN_BITS, LASTING_BITS
from pyrometer_exporters.node.gpu.driver import Link

log = logging.getLogger(__name__)

DEFAULT_FREQUENCY = 20.0
REST_FREQUENCY = 5.0
# So long after a reason that only the sampler can measure, and after a scrape that found a driver's counter grown. It
# is more than a step of most trainings takes, with which reasons come and go.
BUSY_SECONDS = 10.0
# More time at once than this counts as neither throttled nor not. It is two stretches at rest, and how long a hung GPU
# can hold up its neighbours after that, until the other thread's turn dismisses it.
MAX_GAP_SECONDS = 0.9
# A read under way for this long is a hang as far as its neighbours and a scrape are concerned.
HANGS_SECONDS = 0.1
# After so long with the sampler still in that read, a scrape need not wait to know that the GPU hangs. Before that it
# waits as for any GPU: on a busy machine a thread that has returned from the driver can wait for a core for more than
# a tenth of a second, and healthy GPUs would be reported down.
STUCK_SECONDS = 0.5
# A GPU that failed is left alone for a while: calls to a sick one can be slow.
REST_SECONDS = 1.0
# A read that takes this long (a healthy one: well under 1 ms) would slow down the others' cadence.
SLOW_READ_SECONDS = 0.02
# No driver has so many reasons: a mask with these bits is invalid. A device that fell off the bus reads as all ones.
NO_REASONS = 0xFFFFFFFFFFFF0000


class Stretches:
    """Divide time into stretches and read each once, at a random moment in it: long ones at rest, short ones when busy.

    The whole stretch counts as what that one read shows. So the expected sum is exact whatever comes and goes, in step
    with the stretches or not, and however their length was chosen, as long as that was before they began::

        stretches  |------- 0.2 s -------|------- 0.2 s -------|- 0.05 -|- 0.05 -|- 0.05 -|- 0.05 -|
        reads           x                            x            x          x     x            x
        throttled                                 #############################
        counted                          |=====================|========|========|
                                                 0.2           +  0.05  +  0.05         of 0.29 s

    A fixed interval counts a reason that comes and goes in a multiple of it, as a power cap does with the steps of a
    training, a third too long or not at all. Counting the time since the previous read, with reads that are equally
    often, is right as well, but not where a pulse makes the reads more frequent: its begin counts in full, its end not.

    Lengths are in seconds.
    """

    __slots__ = ("_busy", "_chance", "_rest", "ends")

    def __init__(self, busy: float, rest: float, chance: Callable[[], float] = random.random) -> None:
        self._busy, self._rest, self._chance = busy, rest, chance
        self.ends = 0.0
        """When the present stretch ends, by the monotonic clock."""

    def begin(self, now: float, *, busy: bool) -> float:
        """Begin the next stretch, where the present one ends or later; return when it is to be read."""
        begins = max(self.ends, now)  # one that was read late doesn't make the next ones hurry
        length = self._busy if busy else self._rest
        self.ends = begins + length
        return begins + length * self._chance()


class SampledGpu:
    """One GPU's bitmask over time: seconds per bitmask, kept while the GPU is lost and opened again."""

    __slots__ = (
        "_counted_until",
        "busy_until",
        "generation",
        "held_by",
        "held_since",
        "lock",
        "logged",
        "read",
        "rests_until",
        "rises",
        "seconds",
        "urgent",
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
        self.logged = False
        self.held_by: _Turn | None = None
        """The thread that was dismissed because it hung in a read of this GPU."""
        self.held_since = 0.0
        """When that was, by ``time.monotonic``."""
        self.urgent = KNOWN_BITS & ~LASTING_BITS
        """The bits that are to be sampled often while they come and go."""
        self.busy_until = 0.0
        self._counted_until: float | None = None

    @property
    def hangs(self) -> bool:
        """True if the sampler has been stuck in a read for longer than a busy machine lets a thread wait."""
        stuck = self.held_by
        return stuck is not None and stuck.reading is self and time.monotonic() - self.held_since >= STUCK_SECONDS

    def take(self, mask: int, now: float, until: float = 0.0) -> None:
        """Count the time up to ``until``, or ``now`` if that is later, as spent under ``mask``, unless it is too long.

        It begins where the time that the previous read counted ended.
        """
        before, self._counted_until = self._counted_until, max(now, until)
        if mask & NO_REASONS:
            self._counted_until = None
            return
        mask &= KNOWN_BITS  # also keeps the number of different masks bounded
        if before is not None and 0 < self._counted_until - before <= MAX_GAP_SECONDS:
            self.seconds[mask] = self.seconds.get(mask, 0.0) + self._counted_until - before
        if mask & self.urgent:
            self.busy_until = now + BUSY_SECONDS
        if mask != self.rises.mask:
            self.rises.take(mask, now)

    def missed(self, until: float) -> None:
        """Note a failed read: the time until the next one doesn't count. Don't read the GPU before ``until``."""
        self._counted_until = None
        self.rests_until = until

    def by_mask(self) -> dict[int, float]:
        """Return a copy of the seconds per bitmask, safe against the sampler's own writing."""
        return dict(self.seconds)


class Sampler:
    """Reads every watched GPU from the first :meth:`watch` to :meth:`close`, ``frequency`` times a second when busy.

    ``using`` enters the connection to the driver for a round of all GPUs, and raises PartError while there is none.
    """

    def __init__(
        self,
        using: Callable[[], contextlib.AbstractContextManager[Link]],
        frequency: float = DEFAULT_FREQUENCY,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._using = using
        self._stretches = Stretches(1 / frequency, 1 / min(frequency, REST_FREQUENCY))
        self._monotonic = monotonic
        self._gpus: tuple[SampledGpu, ...] = ()
        self._lock = threading.Lock()
        self._crew: tuple[_Turn, ...] = ()
        self._baton = threading.Lock()  # its holder has the turn; replaced each time that a thread is dismissed
        self._closed = False

    def watch(self, gpu: SampledGpu) -> None:
        """Begin to sample a GPU; may be called from any thread, and again for the same GPU.

        Raises:
            RuntimeError: no thread can be started.
        """
        with self._lock:
            if gpu not in self._gpus:
                self._gpus = (*self._gpus, gpu)
            if not self._crew and not self._closed:
                self._hire()

    def forget(self, gpu: SampledGpu) -> None:
        """Stop sampling a GPU; does nothing if it isn't sampled."""
        with self._lock:
            self._gpus = tuple(other for other in self._gpus if other is not gpu)

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
        except RuntimeError:  # no thread can be started now
            self._crew = before
            raise

    def _run(self, turn: _Turn) -> None:
        while turn in self._crew:
            baton = self._baton
            if not baton.acquire(timeout=HANGS_SECONDS):
                self._dismiss_others(turn, baton)
                continue
            try:
                due = self._take_turn(turn)
            finally:
                baton.release()
            time.sleep(max(0.0, due - self._monotonic()))

    def _take_turn(self, turn: _Turn) -> float:
        """Read all GPUs, if ``turn`` is still in the crew; return when its next turn is due."""
        if len(self._crew) == 1:
            with self._lock, contextlib.suppress(RuntimeError):  # alone until the next turn, then
                if turn in self._crew:
                    self._hire()
        if turn in self._crew:
            self._round(turn)
        now = self._monotonic()
        # The one after that of the other thread, which waits for it already.
        due = self._stretches.begin(now, busy=any(gpu.busy_until > now for gpu in self._gpus))
        turn.ends = self._stretches.ends
        return due

    def _dismiss_others(self, turn: _Turn, baton: threading.Lock) -> None:
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
                for gpu in self._gpus:
                    if gpu.generation == link.generation:
                        # The end of one read is the beginning of the next: a clock read costs as much as the counting.
                        now = self._sample(gpu, turn, now)
                        if turn not in self._crew:
                            return
        except PartError:  # not connected
            for gpu in self._gpus:
                gpu.missed(0.0)

    def _sample(self, gpu: SampledGpu, turn: _Turn, start: float) -> float:
        """Read one GPU, beginning at ``start``; return when that ended."""
        read = gpu.read
        if read is None or start < gpu.rests_until or not gpu.lock.acquire(blocking=False):
            return start
        turn.reading = gpu
        try:
            mask = read()
        except PartError:
            now = self._monotonic()
            gpu.missed(start + REST_SECONDS)
        except Exception:
            now = self._monotonic()
            if not gpu.logged:  # once: it would be every second
                gpu.logged = True
                log.exception("a GPU can't be sampled")
            gpu.missed(start + REST_SECONDS)
        else:
            now = self._monotonic()
            gpu.take(mask, now, turn.ends)
            if now - start > SLOW_READ_SECONDS:
                # Limit a slow GPU to 5 % of this thread's time.
                gpu.rests_until = now + 20 * (now - start)
        finally:
            turn.reading = None
            gpu.lock.release()
        return now


class _Turn:
    """One sampling thread, for as long as it is in the crew."""

    __slots__ = ("ends", "reading")

    def __init__(self) -> None:
        self.ends = 0.0
        """When the stretch ends of which this thread makes the next read."""
        self.reading: SampledGpu | None = None
        """The GPU whose read is under way."""
