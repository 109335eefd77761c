"""Text that a screen cuts is found, in titles, cells and tiles, and so is a first row below the screen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from tools.screenshots.browser import Browser, BrowserError, Page, find_chromium
from tools.screenshots.legible import BELOW, CUT_TEXT, SCROLL
from tools.screenshots.reading import OVERLAPS, SCREEN_TEXT

CUT = "overflow:hidden;text-overflow:ellipsis;white-space:nowrap;width:60px"


FRAME = "display:block;height:600px;overflow-y:auto"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    try:
        program = find_chromium()
    except BrowserError as error:
        pytest.skip(str(error))
    with Browser(program) as browser:
        yield browser.page(800, 600)


def panel(title: str, inside: str, style: str = "") -> str:
    head = f'<div data-testid="data-testid Panel header x"><h2 style="{CUT};width:200px">{title}</h2></div>'
    return f'<section data-viz-panel-key="p" style="position:relative;{style}">{head}{inside}</section>'


def seen(page: Page, body: str) -> tuple[list[str], object]:
    page.open(f"data:text/html,{quote(f'<body>{body}</body>')}")
    while not page.evaluate("document.readyState === 'complete' && document.body.innerText.length > 0"):
        page.wait(0.05)
    return json.loads(str(page.evaluate(CUT_TEXT))), page.evaluate(BELOW)


def test_what_fits_is_no_finding(page: Page) -> None:
    assert seen(page, panel("Nodes", '<div style="overflow:hidden"><span>gpu-300</span></div>')) == ([], 0)


@pytest.mark.parametrize(
    ("title", "inside", "found"),
    [
        ("A title that is far too long for its panel", "<p>1</p>", "A title that is far too long for its pan"),
        ("GPUs", f'<div style="{CUT}">gpu-300-0017-rack-12 GPU 3</div>', "gpu-300-0017-rack-12 GPU 3"),
        ("GPUs", f'<div style="{CUT}"><a><b>gpu-300-0017-rack-12 GPU 3</b></a></div>', "gpu-300-0017-rack-12 GPU 3"),
    ],
)
def test_a_cut_title_or_name_is_found(title: str, inside: str, found: str, page: Page) -> None:
    ((told,), _) = seen(page, panel(title, inside))
    assert told == f"{title}: {found}"


def test_a_first_row_that_ends_below_the_screen_is_found(page: Page) -> None:
    assert seen(page, panel("Nodes", "", "height:900px")) == ([], 1)


def test_a_table_that_scrolls_is_not_cut(page: Page) -> None:
    assert seen(page, panel("T", f'<div style="{CUT};overflow:auto">gpu-300-0017-rack-12 GPU 3</div>'))[0] == []


def test_the_text_on_the_screen_is_read_and_that_below_it_is_not(page: Page) -> None:
    seen(page, panel("Runs", "<p>llama waits</p>") + panel("Far", "<p>unseen</p>", "margin-top:900px"))
    assert json.loads(str(page.evaluate(SCREEN_TEXT))) == [["Runs", "Runs llama waits"]]


def test_texts_over_each_other_are_found_and_those_beside_each_other_are_not(page: Page) -> None:
    over = '<b style="position:absolute;top:50px;left:9px">gpu-300</b>'
    other = '<i style="position:absolute;top:%dpx;left:20px">gpu-301</i>'
    for top, found in ((52, ["Racks: gpu-300 over gpu-301"]), (90, [])):
        seen(page, panel("Racks", over + other % top, "height:200px"))
        assert json.loads(str(page.evaluate(OVERLAPS))) == found


@pytest.mark.parametrize("outer", ["<style>body{overflow-y:auto}</style>%s", f'<main style="{FRAME}">%s</main>'])
def test_what_is_cut_below_the_screen_is_found_once_it_is_scrolled_to(outer: str, page: Page) -> None:
    inside = f'<div style="{CUT}">gpu-300-0017-rack-12 GPU 3</div>'
    boards = panel("Near", "<p>llama</p>", "height:900px") + panel("Far", inside, "height:900px")
    cut, _ = seen(page, outer % boards)
    assert cut == []
    screens = []
    while page.evaluate(SCROLL):
        screens.append(json.loads(str(page.evaluate(CUT_TEXT))))
    assert ["Far: gpu-300-0017-rack-12 GPU 3"] in screens
    assert len(screens) == 3
