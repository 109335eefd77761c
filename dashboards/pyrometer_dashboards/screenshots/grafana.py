"""One board in a running Grafana: rendered or not, errors, save model, time, picture."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from pyrometer_dashboards.screenshots.browser import Browser, Page

Json = dict[str, Any]
# When the page last changed, and how long it was blocked: observed from its first moment.
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
# The board is answered with one number and nothing else: what is left of the time is Grafana's own start.
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
# Nothing changed for this long: the board is done.
QUIET_SECONDS = 2.0
LONGEST_SECONDS = 40.0


@dataclass(frozen=True)
class PageLoad:
    """What was seen of one board.

    Attributes:
        seconds: from navigation to the last change of the page, in a browser that had never seen Grafana.
        blocked: seconds in which the page did not react.
        problems: errors of panels, of the console and of Grafana's answers.
        save_model: what "Save" would store.
    """

    seconds: float
    blocked: float
    panels: int
    problems: list[str] = field(default_factory=list)
    save_model: Json | None = None


def board_url(url: str, uid: str, theme: str, times: tuple[str, str], variables: dict[str, str]) -> str:
    """The address of a board, alone on the page."""
    asked = {"from": times[0], "to": times[1], "theme": theme, "kiosk": "1"} | {
        f"var-{k}": v for k, v in variables.items()
    }
    return f"{url.rstrip('/')}/d/{uid}?{urlencode(asked)}"


def load_board(
    program: str, where: str, size: tuple[int, int], picture: Path | None = None, *, empty: bool = False
) -> PageLoad:
    """Open a board in a fresh browser, wait until it is drawn, and tell what was seen. Raises BrowserError.

    ``empty`` puts one number in the place of all that is on the board.
    """
    with Browser(program) as browser:
        page = browser.page(*size)
        for script in (_OBSERVE, _EMPTIED) if empty else (_OBSERVE,):
            page.ask("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        page.open(where)
        state = _settled(page)
        problems = [f"panel: {title}" for title in state["errors"]] + page.problems()
        problems += [f"{answer['status']} {answer['url']}" for answer in page.answers() if answer["status"] >= 400]
        if picture is not None:
            page.picture(picture)
        model = json.loads(str(page.evaluate(_SAVE_MODEL) or "null"))
    return PageLoad(state["changed"] / 1000, state["blocked"] / 1000, state["panels"], problems, model)


def _settled(page: Page) -> Json:
    """The page's state once nothing has changed for QUIET_SECONDS."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while True:
        page.wait(0.3)
        state: Json = json.loads(str(page.evaluate(_STATE)))
        still = state["now"] - state["changed"] > QUIET_SECONDS * 1000 and not state["loading"]
        if (state["scene"] and state["panels"] and still) or time.monotonic() > deadline:
            return state
