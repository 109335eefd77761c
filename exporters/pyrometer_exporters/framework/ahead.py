"""Gather just before a scraper is expected, so that its request only has to send what is ready.

Prometheus asks at a steady rhythm, within milliseconds. Three equal intervals make one known; from then on the page is
made a little before the next request, and serves that one alone::

    requests    |         |         |         |         |         |
    gathered    *         *         *         *        *|        *|   ahead of them from here on

A scraper without a rhythm, one that comes early, and everybody else get a fresh look, as does a scraper that comes too
late for its page. Whoever stops asking costs one gathering more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

Scraper = tuple[str, str]
"""A scraper's address and its User-Agent. Two that share both have no rhythm together."""

INTERVALS = 3
# Prometheus is never off by more than a few milliseconds, unless its machine is busy.
JITTER_SECONDS = 0.1
# Gathering ahead would be a large part of a shorter interval; beyond the longest, no scraper counts as regular.
SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 120.0
# Gathering starts at least this long before the request, and at most this share of the interval before it.
LEAD_SECONDS, MOST_LEAD_SHARE = 0.05, 0.25
# A page this much older than it had to be isn't served: the request is late.
MOST_LATE_SECONDS = 1.0
# More scrapers than any site has; beyond that, the one that asked longest ago is dropped.
MOST_SCRAPERS = 16


class Rhythm:
    """The moments at which one scraper asked, by a monotonic clock."""

    def __init__(self) -> None:
        self._asked: list[float] = []

    def note(self, now: float) -> None:
        """Note a request."""
        self._asked = [*self._asked[-INTERVALS:], now]

    @property
    def interval(self) -> float | None:
        """The seconds from one request to the next; None unless all of the last three were equal."""
        if len(self._asked) <= INTERVALS:
            return None
        mean = (self._asked[-1] - self._asked[0]) / INTERVALS
        steady = all(abs(b - a - mean) <= JITTER_SECONDS for a, b in zip(self._asked, self._asked[1:], strict=False))
        return mean if steady and SHORTEST_SECONDS <= mean <= LONGEST_SECONDS else None


class _Expected(Generic[T]):
    """A scraper's rhythm, and the page that is made ready for its next request."""

    def __init__(self) -> None:
        self.rhythm = Rhythm()
        self.timer: asyncio.TimerHandle | None = None
        self.page: asyncio.Future[T] | None = None
        self.until = 0.0
        """The time from which the page is too old."""

    def forget(self) -> None:
        """Drop the page and the timer that would make one."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.page = None


class Ahead(Generic[T]):
    """Makes pages by ``gather``, called with how many seconds it may take. For one event loop."""

    def __init__(self, gather: Callable[[float], Awaitable[T]]) -> None:
        self._gather = gather
        self._expected: dict[Scraper, _Expected[T]] = {}
        self._took = 0.0

    async def page(self, scraper: Scraper, seconds: float) -> T:
        """Return the page for a request of ``scraper``, which may take so many seconds."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        expected = self._known(scraper)
        ready = expected.page if now <= expected.until else None
        expected.forget()
        expected.rhythm.note(now)
        interval = expected.rhythm.interval
        if interval is not None:
            lead = min(LEAD_SECONDS + 2 * self._took, MOST_LEAD_SHARE * interval)
            expected.timer = loop.call_at(now + interval - lead, self._begin, expected, lead, seconds)
        return await (ready if ready is not None else self._gathered(seconds))

    def close(self) -> None:
        """Make nothing ready any more."""
        for expected in self._expected.values():
            expected.forget()

    def _known(self, scraper: Scraper) -> _Expected[T]:
        """Return what is known of a scraper, and note that it asks now."""
        expected = self._expected.pop(scraper, None) or _Expected()
        self._expected[scraper] = expected
        if len(self._expected) > MOST_SCRAPERS:
            self._expected.pop(next(iter(self._expected))).forget()
        return expected

    def _begin(self, expected: _Expected[T], lead: float, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        expected.timer, expected.until = None, loop.time() + lead + MOST_LATE_SECONDS
        expected.page = asyncio.ensure_future(self._gathered(seconds))
        expected.page.add_done_callback(_seen)

    async def _gathered(self, seconds: float) -> T:
        loop = asyncio.get_running_loop()
        began = loop.time()
        page = await self._gather(seconds)
        # The longest, slowly forgotten: one slow gathering in ten is to be ready in time as well.
        self._took = max(loop.time() - began, 0.9 * self._took)
        return page


def _seen(page: asyncio.Future[T]) -> None:
    """Look at an error, which asyncio would log where nobody comes for the page."""
    if not page.cancelled():
        page.exception()
