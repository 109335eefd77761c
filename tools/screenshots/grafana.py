"""Open one board in a running Grafana: errors, save model, load time, screenshot."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tools.screenshots.browser import Browser, Page
from tools.screenshots.legible import BELOW, CUT_TEXT, DOCK_MENU, SCROLL
from tools.screenshots.reading import OVERLAPS, SCREEN_TEXT, UNDRAWN

Json = dict[str, Any]
# Observes from the start when the page last changed, and how long it was blocked.
_OBSERVE = """
(() => {
  const seen = window.__seen = {changed: 0, blocked: 0};
  new PerformanceObserver(list => list.getEntries().forEach(entry => { seen.blocked += entry.duration; }))
    .observe({type: 'longtask', buffered: true});
  new MutationObserver(() => { seen.changed = performance.now(); })
    .observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
})()
"""
_STATE = """
JSON.stringify({
  now: performance.now(),
  changed: window.__seen ? window.__seen.changed : 0,
  blocked: window.__seen ? window.__seen.blocked : 0,
  loading: document.querySelectorAll('[aria-label="Panel loading bar"]').length,
  errors: [...document.querySelectorAll('[data-testid="data-testid Panel status error"],[aria-label="Panel status"]')]
    .map(each => (each.closest('section') || each).innerText.split('\\n')[0]),
  panels: document.querySelectorAll('[data-viz-panel-key]').length,
  scene: !!window.__grafanaSceneContext
})
"""
_SAVE_MODEL = """
(() => {
  const scene = window.__grafanaSceneContext;
  return JSON.stringify(scene && scene.getSaveModel ? scene.getSaveModel() : null);
})()
"""
# Replaces the board by a single number, so that only Grafana's own start remains to be measured.
_EMPTIED = """
(() => {
  const asked = window.fetch;
  const panel = {
    id: 1, type: 'stat', title: 'one', gridPos: {h: 4, w: 4, x: 0, y: 0}, options: {}, pluginVersion: '12.2.0',
    fieldConfig: {defaults: {}, overrides: []}, datasource: {type: 'prometheus', uid: '${datasource}'},
    targets: [{refId: 'A', expr: 'vector(1)', instant: true, range: false}],
  };
  window.fetch = async (...request) => {
    const answer = await asked(...request);
    if (!String(request[0].url || request[0]).includes('/dashboards/') || !answer.ok) return answer;
    const told = await answer.clone().json();
    const board = told.spec || told.dashboard;
    if (!board || !board.panels) return answer;
    const variables = board.templating.list.filter(each => each.type === 'datasource');
    Object.assign(board, {panels: [panel], links: [], annotations: {list: []}, templating: {list: variables}});
    return new Response(JSON.stringify(told), {status: answer.status, headers: answer.headers});
  };
})()
"""
# A board is done once nothing has changed for this long.
QUIET_SECONDS = 2.0
LONGEST_SECONDS = 40.0
# Below the first screen, where nothing but queries has to be waited for; a board on a phone has up to 20 screens.
QUIET_BELOW_SECONDS = 0.7
MOST_SCREENS = 40


@dataclass(frozen=True)
class PageLoad:
    """The outcome of opening a board.

    Attributes:
        seconds: from navigation to the last change of the page, in a browser with an empty cache.
        blocked: seconds in which the page did not react.
        problems: errors of panels, of the console and of Grafana's responses; text that can't be read.
        save_model: the board that "Save" would store.
        texts: each panel on the screen, with the text that can be read there.
    """

    seconds: float
    blocked: float
    panels: int
    problems: list[str] = field(default_factory=list)
    save_model: Json | None = None
    texts: list[tuple[str, str]] = field(default_factory=list)


def board_url(
    url: str, uid: str, theme: str, times: tuple[str, str], variables: dict[str, str], *, kiosk: bool = True
) -> str:
    """Return the address of a board, in kiosk mode or with Grafana's own head and menu."""
    parameters = {"from": times[0], "to": times[1], "theme": theme} | ({"kiosk": "1"} if kiosk else {})
    parameters |= {f"var-{k}": v for k, v in variables.items()}
    return f"{url.rstrip('/')}/d/{uid}?{urlencode(parameters)}"


def load_board(
    program: str,
    where: str,
    size: tuple[int, int],
    picture: Path | None = None,
    *,
    empty: bool = False,
    docked: bool = False,
    below: bool = False,
) -> PageLoad:
    """Open a board in a fresh browser, wait until it is drawn, and report the outcome.

    ``empty`` replaces the board's content by a single number; ``docked`` shows the menu as people leave it: open;
    ``below`` scrolls to the end afterwards, and reports what is wrong there, too.

    Raises:
        BrowserError: the browser could not be started, or stopped answering.
        OSError: the screenshot could not be written.
    """
    with Browser(program) as browser:
        page = browser.page(*size)
        for script in (_OBSERVE, *([_EMPTIED] if empty else []), *([DOCK_MENU] if docked else [])):
            page.ask("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        page.open(where)
        state = _settled(page)
        if picture is not None:
            page.picture(picture)
        model = json.loads(str(page.evaluate(_SAVE_MODEL) or "null"))
        texts = _texts(page)
        problems = [f"panel: {title}" for title in state["errors"]] + _illegible(page) + undrawn(texts)
        problems += ["the first row is not on the screen"] if page.evaluate(BELOW) else []
        problems += _below(page) if below else []
        # The errors of all screens.
        problems += page.problems()
        problems += [f"{answer['status']} {answer['url']}" for answer in page.answers() if answer["status"] >= 400]
        problems = list(dict.fromkeys(problems))
    return PageLoad(state["changed"] / 1000, state["blocked"] / 1000, state["panels"], problems, model, texts)


def undrawn(texts: Sequence[tuple[str, str]]) -> list[str]:
    """Return the panels that could not draw their answer, in Grafana's words."""
    rest = [(title, text.replace(title, "", 1).strip()) for title, text in texts]
    return [f"not drawn: {title}: {text[:60]}" for title, text in rest if text.startswith(UNDRAWN)]


def _texts(page: Page) -> list[tuple[str, str]]:
    return [(title, text) for title, text in json.loads(str(page.evaluate(SCREEN_TEXT)))]


def _illegible(page: Page) -> list[str]:
    """Return the texts that the screen cuts, and those over each other."""
    cut = [f"cut: {text}" for text in json.loads(str(page.evaluate(CUT_TEXT)))]
    return cut + [f"overlap: {text}" for text in json.loads(str(page.evaluate(OVERLAPS)))]


def _below(page: Page) -> list[str]:
    """Return what is wrong below the first screen: errors of panels, and text that can't be read."""
    found: list[str] = []
    for _ in range(MOST_SCREENS):
        if not page.evaluate(SCROLL):
            break
        state = _settled(page, QUIET_BELOW_SECONDS)
        found += [f"panel: {title}" for title in state["errors"]] + _illegible(page) + undrawn(_texts(page))
    return found


def _settled(page: Page, quiet: float = QUIET_SECONDS) -> Json:
    """Return the page's state once nothing has changed for so many seconds."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while True:
        page.wait(0.3)
        state: Json = json.loads(str(page.evaluate(_STATE)))
        still = state["now"] - state["changed"] > quiet * 1000 and not state["loading"]
        if (state["scene"] and state["panels"] and still) or time.monotonic() > deadline:
            return state
