"""Pages made just before a scraper asks: for whom, when, how old, and what a scraper without a rhythm gets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from pyrometer_exporters.framework.ahead import (
    INTERVALS,
    LEAD_SECONDS,
    MOST_LATE_SECONDS,
    MOST_LEAD_SHARE,
    MOST_SCRAPERS,
    Ahead,
    Rhythm,
)

ONE, OTHER = ("10.0.0.1", "Prometheus/3.5"), ("10.0.0.2", "Prometheus/3.5")
KNOWN_AFTER = INTERVALS + 1


class Loop(asyncio.SelectorEventLoop):
    """A loop whose time passes at once whenever it would wait."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0
        select = self._selector.select

        def pass_by(timeout: float | None) -> Any:
            self._now += timeout or 0.0
            return select(0)

        self._selector.select = pass_by

    def time(self) -> float:
        return self._now


class Pages:
    """Gatherings that take ``seconds`` each; a page is the moment at which its gathering began."""

    def __init__(self, seconds: float = 0.02) -> None:
        self.seconds = seconds
        self.began: list[float] = []
        self.fails = False

    async def gather(self, _seconds: float) -> float:
        now = asyncio.get_running_loop().time()
        self.began.append(now)
        await asyncio.sleep(self.seconds)
        if self.fails:
            raise OSError("no page")
        return now


Play = Callable[[Callable[[Ahead[float], Pages], Awaitable[None]]], None]


@pytest.fixture
def play() -> Iterator[Play]:
    loop = Loop()

    def run(scene: Callable[[Ahead[float], Pages], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            pages = Pages()
            ahead = Ahead(pages.gather)
            await scene(ahead, pages)
            ahead.close()

        loop.run_until_complete(whole())

    yield run  # type: ignore[misc]
    loop.close()


def now() -> float:
    return asyncio.get_running_loop().time()


async def at(when: float) -> None:
    await asyncio.sleep(when - now())


async def ages(ahead: Ahead[float], moments: list[float], scraper: tuple[str, str] = ONE) -> list[float]:
    """Ask at these moments; return how old each page was when it was asked for, 0 for one that was made then."""
    found = []
    for moment in moments:
        await at(moment)
        found.append(max(0.0, round(moment - await ahead.page(scraper, 9.5), 3)))
    return found


def every(seconds: float, count: int) -> list[float]:
    return [1000 + seconds * n for n in range(count)]


@pytest.mark.parametrize("interval", [1.0, 5.0, 15.0, 60.0])
def test_after_three_equal_intervals_the_page_is_ready_when_it_is_asked_for(play: Play, interval: float) -> None:
    async def scene(ahead: Ahead[float], pages: Pages) -> None:
        found = await ages(ahead, every(interval, KNOWN_AFTER + 4))
        assert found[:KNOWN_AFTER] == [0.0] * KNOWN_AFTER
        lead = LEAD_SECONDS + 2 * pages.seconds
        assert found[KNOWN_AFTER:] == [pytest.approx(lead, abs=0.002)] * 4
        assert len(pages.began) == KNOWN_AFTER + 4

    play(scene)


def test_a_request_that_only_gets_what_is_ready_does_not_wait(play: Play) -> None:
    async def scene(ahead: Ahead[float], _pages: Pages) -> None:
        await ages(ahead, every(15, KNOWN_AFTER))
        await at(1000 + 15 * KNOWN_AFTER)
        began = now()
        await ahead.page(ONE, 9.5)
        assert now() == began

    play(scene)


@pytest.mark.parametrize("interval", [0.2, 300.0])
def test_nothing_is_made_ready_for_a_rhythm_too_fast_or_too_slow(play: Play, interval: float) -> None:
    async def scene(ahead: Ahead[float], _pages: Pages) -> None:
        assert set(await ages(ahead, every(interval, 10))) == {0.0}

    play(scene)


def test_a_scraper_without_a_rhythm_gets_a_fresh_look(play: Play) -> None:
    async def scene(ahead: Ahead[float], pages: Pages) -> None:
        moments = [1000.0, *(1000 + t for t in itertools.accumulate([5, 9, 14, 6, 5, 20, 7, 5, 11]))]
        assert set(await ages(ahead, moments)) == {0.0}
        assert len(pages.began) == len(moments)

    play(scene)


def test_one_s_page_is_no_other_s(play: Play) -> None:
    async def scene(ahead: Ahead[float], _pages: Pages) -> None:
        await ages(ahead, every(15, KNOWN_AFTER))
        just_before = 1000 + 15 * KNOWN_AFTER - 0.01
        assert await ages(ahead, [just_before], OTHER) == [0.0]

    play(scene)


def test_each_of_two_scrapers_has_its_own_rhythm(play: Play) -> None:
    async def scene(ahead: Ahead[float], _pages: Pages) -> None:
        one, other = await asyncio.gather(
            ages(ahead, every(15, KNOWN_AFTER + 2)),
            ages(ahead, [7 + moment for moment in every(15, KNOWN_AFTER + 2)], OTHER),
        )
        assert min(one[KNOWN_AFTER:] + other[KNOWN_AFTER:]) > 0

    play(scene)


def test_who_comes_early_gets_a_fresh_look_and_nothing_more_is_made(play: Play) -> None:
    async def scene(ahead: Ahead[float], pages: Pages) -> None:
        await ages(ahead, every(15, KNOWN_AFTER))
        assert await ages(ahead, [1000 + 15 * KNOWN_AFTER - 5]) == [0.0]
        await asyncio.sleep(60)
        assert len(pages.began) == KNOWN_AFTER + 1

    play(scene)


def test_who_comes_late_gets_the_page_for_a_moment_and_then_a_fresh_look(play: Play) -> None:
    async def scene(ahead: Ahead[float], _pages: Pages) -> None:
        await ages(ahead, every(15, KNOWN_AFTER))
        assert (await ages(ahead, [1000 + 15 * KNOWN_AFTER + 0.9 * MOST_LATE_SECONDS]))[0] > 0.9 * MOST_LATE_SECONDS
        moments = [1100 + moment for moment in every(15, KNOWN_AFTER)]
        await ages(ahead, moments)
        assert await ages(ahead, [moments[-1] + 15 + MOST_LATE_SECONDS + 0.1]) == [0.0]

    play(scene)


def test_who_stops_asking_costs_one_gathering(play: Play) -> None:
    async def scene(ahead: Ahead[float], pages: Pages) -> None:
        await ages(ahead, every(15, KNOWN_AFTER))
        await asyncio.sleep(3600)
        assert len(pages.began) == KNOWN_AFTER + 1

    play(scene)


def test_a_slow_gathering_begins_earlier_but_never_by_more_than_its_share(play: Play) -> None:
    async def scene(ahead: Ahead[float], pages: Pages) -> None:
        pages.seconds = 1.0
        found = await ages(ahead, every(15, KNOWN_AFTER + 1))
        assert found[-1] == pytest.approx(2 + LEAD_SECONDS, abs=0.01)
        pages.seconds = 9.0
        found = await ages(ahead, [2000 + moment for moment in every(15, KNOWN_AFTER + 1)])
        assert found[-1] == pytest.approx(15 * MOST_LEAD_SHARE, abs=0.01)

    play(scene)


def test_a_gathering_that_fails_fails_its_request_and_the_next_one_is_made_anew(play: Play) -> None:
    async def scene(ahead: Ahead[float], pages: Pages) -> None:
        await ages(ahead, every(15, KNOWN_AFTER))
        pages.fails = True
        await at(1000 + 15 * KNOWN_AFTER)
        with pytest.raises(OSError, match="no page"):
            await ahead.page(ONE, 9.5)
        pages.fails = False
        assert len(await ages(ahead, [1000 + 15 * (KNOWN_AFTER + 1)])) == 1

    play(scene)


def test_no_more_scrapers_than_a_few_are_known(play: Play) -> None:
    async def scene(ahead: Ahead[float], _pages: Pages) -> None:
        for number in range(10 * MOST_SCRAPERS):
            await ahead.page((str(number), ""), 9.5)
        assert len(ahead._expected) == MOST_SCRAPERS

    play(scene)


def test_a_rhythm_is_known_with_jitter_and_lost_with_a_miss() -> None:
    rhythm = Rhythm()
    for moment in (0.0, 15.02, 29.99, 45.0):
        assert rhythm.interval is None
        rhythm.note(moment)
    assert rhythm.interval == pytest.approx(15.0)
    rhythm.note(75.0)
    assert rhythm.interval is None
