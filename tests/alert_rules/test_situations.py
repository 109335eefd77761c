"""Every situation, played under the real collectors and the real rules: what fires is what the situation says."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pyrometer_simulator.situations.model import SCRAPE_INTERVALS, Situation
from pyrometer_simulator.situations.outcome import NOT_PLAYED, all_situations, cells_of, outcomes, page
from pyrometer_simulator.situations.recording import STALE, Recording, notation
from pyrometer_simulator.situations.verdict import Rules, needed_words
from pyrometer_simulator.stack import Stack

PAGE = Path(__file__).resolve().parents[2] / "docs/situations.md"
EVERY = all_situations()
# promtool's start is dear, and a failure should say which situations it is about.
TOGETHER = 5
# Each situation is played once here, and by `make situations` at all intervals. Scrapes and evaluations are dear, so
# most situations have few: five of six are scraped every 30 s, and the others as Prometheus does by default.
INTERVALS = (15, 30, 30, 30, 30, 30)
FASTEST_OF = 128


def _interval(number: int) -> int:
    return SCRAPE_INTERVALS[0] if number % FASTEST_OF == FASTEST_OF - 1 else INTERVALS[number % len(INTERVALS)]


def _played() -> Iterator[tuple[list[Situation], int]]:
    for interval in SCRAPE_INTERVALS:
        chosen = [situation for number, situation in enumerate(EVERY) if _interval(number) == interval]
        for start in range(0, len(chosen), TOGETHER):
            yield chosen[start : start + TOGETHER], interval


def _id(value: object) -> str:
    return value[0].name if isinstance(value, list) else f"{value} s"


PLAYED = list(_played())


@pytest.fixture(scope="session")
def rules() -> Rules:
    return Rules()


@pytest.mark.timeout(1200)  # half a minute of CPU, which takes long beside other work
@pytest.mark.parametrize(("situations", "interval"), PLAYED, ids=_id)
def test_a_situation_wakes_whom_it_should(
    stack: Stack, rules: Rules, situations: Sequence[Situation], interval: int
) -> None:
    played = outcomes(stack.promtool, situations, [interval], rules)
    wrong = [f"{each.situation.name}: {what}" for each in played for what in each.objections()]
    assert wrong == []
    told = cells_of(PAGE.read_text(encoding="utf-8"))
    cells = {(each.situation.name, interval): each.cell() for each in played}
    stale = {key: cell for key, cell in cells.items() if told.get(key) != cell}
    assert stale == {}, "run make situations"


def test_the_page_has_all_situations_in_order() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(EVERY, cells_of(text)) == text


def test_the_page_has_every_situation_played_at_every_interval() -> None:
    told = cells_of(PAGE.read_text(encoding="utf-8"))
    assert [key for key, cell in told.items() if cell == NOT_PLAYED] == []


def test_names_of_situations_are_different() -> None:
    names = [each.name for each in EVERY]
    assert sorted(set(names)) == sorted(names)


def test_a_series_that_is_no_longer_served_is_stale_and_one_that_comes_late_has_a_gap() -> None:
    recording = Recording({"node": "n"}, {"a", "b"})
    for text in (b'# HELP a\na{x="1"} 1\nc 3\n', b'a{x="1"} 1\nb 2e-05\n', None, b"b 3\n"):
        recording.take(text)
    assert dict(recording.series()) == {
        'a{x="1",node="n"}': "1x1 stale",
        'b{node="n"}': "_ 0.000020 stale 3",
        'up{node="n"}': "1x1 0 1",
    }
    assert notation([STALE, STALE]) == "stale stale"


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        ('a{b="(c or", d="}"}[5m]', {"a"}),
        ("a unless b", {"a"}),
        ("a and on (x) b or c unless d", {"a", "c"}),
        ("sum((a unless b) * c)", {"sum", "a", "c"}),
        ("(a or (b and c)) > 1", {"a", "b"}),
        ('absent(up{job="node"}) # or down', {"absent", "up"}),
    ],
)
def test_a_rule_needs_one_of_the_metrics_that_it_does_not_only_restrict_itself_to(expr: str, words: set[str]) -> None:
    assert needed_words(expr) == words
