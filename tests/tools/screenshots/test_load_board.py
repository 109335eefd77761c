"""A page that behaves as Grafana does is looked at with a real browser: errors, save model, the empty board."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tools.screenshots import grafana
from tools.screenshots.browser import BrowserError, find_chromium

from pyrometer_simulator.http_server import HttpServer, Request, Response, json_response

_BOARD = {
    "uid": "fabric",
    "panels": [{"title": "one"}, {"title": "two"}, {"title": "three"}],
    "links": [{"title": "menu"}],
    "annotations": {"list": [{"name": "restarts"}]},
    "templating": {"list": [{"name": "datasource", "type": "datasource"}, {"name": "node", "type": "query"}]},
}
_PAGE = """<html><head><link rel="icon" href="data:,"></head><body><script>
fetch('/apis/dashboards/fabric/dto').then(answer => answer.json()).then(({spec}) => {
  for (const panel of spec.panels)
    document.body.innerHTML += `<section data-viz-panel-key="${panel.title}">${panel.title}</section>`;
  window.__grafanaSceneContext = {getSaveModel: () => spec};
  if (spec.panels.length > 1) {
    console.error('two is broken');
    document.body.innerHTML += '<div aria-label="Panel loading bar"></div>';
    fetch('/api/ds/query').then(() => document.querySelector('div').remove());
  }
});
</script></body></html>"""


def _respond(request: Request) -> Response:
    if request.path == "/d/fabric":
        return Response(_PAGE.encode(), content_type="text/html")
    return json_response({"spec": _BOARD}) if request.path.endswith("/fabric/dto") else Response(b"no", 502)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(grafana, "QUIET_SECONDS", 0.3)
    with HttpServer(_respond) as server:
        yield f"{server.url}/d/fabric"


@pytest.fixture(scope="module")
def chromium() -> str:
    try:
        return find_chromium()
    except BrowserError as error:
        pytest.skip(str(error))


def test_errors_of_console_and_answers_are_told_and_the_save_model_is_read(page: str, chromium: str) -> None:
    seen = grafana.load_board(chromium, page, (800, 600))
    assert seen.panels == 3
    assert seen.save_model == _BOARD
    assert "two is broken" in seen.problems
    assert f"502 {page.replace('/d/fabric', '/api/ds/query')}" in seen.problems
    assert seen.seconds > 0


def test_an_empty_board_keeps_nothing_but_one_number_and_its_data_source(page: str, chromium: str) -> None:
    seen = grafana.load_board(chromium, page, (800, 600), empty=True)
    assert (seen.panels, seen.problems) == (1, [])
    model = seen.save_model or {}
    assert (model["uid"], model["links"], model["annotations"]) == ("fabric", [], {"list": []})
    assert [each["name"] for each in model["templating"]["list"]] == ["datasource"]
    assert [target["expr"] for target in model["panels"][0]["targets"]] == ["vector(1)"]
