"""A page for each board, at the address that it has in Grafana: /d/<uid>?from=...&to=..., in milliseconds."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from pyrometer_kit.prometheus import PrometheusError
from pyrometer_simulator.demo.drawn.panels import content
from pyrometer_simulator.demo.drawn.query import Asker, Window
from pyrometer_simulator.http_server import HttpServer, Request, Response

FIRST = ("pyrometer-overview", "pyrometer-training-run", "pyrometer-node")
RANGE_SECONDS = 300  # the whole scenario takes about 200
_UNIT = 30  # pixels of one step of a board's grid; Grafana has 38, with larger letters
_HEAD = 48  # the title, and the names below the lines
_COLUMN = 65  # pixels of one of its 24 columns, on a screen of 1,600
_ASKERS = 4
STYLE = Path(__file__).with_name("page.css")


class DrawnBoards:
    """The server of the pages; leaving the ``with`` ends it.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, boards: Path, prometheus: str, port: int) -> None:
        found = [json.loads(path.read_text()) for path in sorted(boards.glob("*.json"))]
        by_uid = {board["uid"]: board for board in found if "uid" in board}
        self._boards = {uid: by_uid.pop(uid) for uid in FIRST} | by_uid
        self._groups = list(dict.fromkeys(map(_group, self._boards.values())))
        self._asker = Asker(prometheus)
        self._server = HttpServer(self._respond, port=port)

    def __enter__(self) -> DrawnBoards:  # noqa: PYI034  typing.Self needs Python 3.11
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.stop()

    def _respond(self, request: Request) -> Response:
        uid = FIRST[0] if request.path == "/" else request.path.removeprefix("/d/").partition("/")[0]
        board = self._boards.get(uid)
        if board is None:
            return Response(b"no such board", 404)
        try:
            page = self._page(board, request.query)
        except PrometheusError as error:
            return Response(str(error).encode(), 502)
        return Response(page.encode(), content_type="text/html; charset=utf-8")

    def _page(self, board: Mapping[str, Any], query: Mapping[str, str]) -> str:
        """Raise PrometheusError."""
        given = {name.removeprefix("var-"): value for name, value in query.items() if name.startswith("var-")}
        window = self._asker.variables(board, _window(query), given)
        panels = [panel for panel in board["panels"] if panel["type"] != "row"]
        with ThreadPoolExecutor(_ASKERS) as pool:
            drawn = list(pool.map(lambda panel: self._panel(panel, window), panels))
        heads = [
            _place(row, f"<h2>{html.escape(row['title'])}</h2>") for row in board["panels"] if row["type"] == "row"
        ]
        links, group = "", ""
        for uid, each in sorted(self._boards.items(), key=lambda item: self._groups.index(_group(item[1]))):
            links += f"<span>{html.escape(_group(each))}</span> " if _group(each) != group else ""
            links += _link(uid, each, query, on=each is board)
            group = _group(each)
        return (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(board['title'])}</title>"
            f"<style>{STYLE.read_text()}</style><nav>{links}</nav><header><h1>{html.escape(_name(board))}</h1> "
            f"{time.strftime('%H:%M:%S', time.localtime(window.start))} to "
            f"{time.strftime('%H:%M:%S', time.localtime(window.end))}. The board's own queries, drawn without Grafana: "
            f"figures, tables and lines only.</header><main>{''.join(heads + drawn)}</main></html>"
        )

    def _panel(self, panel: Mapping[str, Any], window: Window) -> str:
        grid = panel["gridPos"]
        inside = content(panel, self._asker, window, (grid["w"] * _COLUMN, grid["h"] * _UNIT - _HEAD))
        meaning = html.escape(str(panel.get("description", "")), quote=True)
        return _place(panel, f'<h3 title="{meaning}">{html.escape(panel.get("title", ""))}</h3>{inside}', "panel")


def _place(panel: Mapping[str, Any], inside: str, kind: str = "") -> str:
    grid = panel["gridPos"]
    where = f"grid-area:{grid['y'] + 1}/{grid['x'] + 1}/span {grid['h']}/span {grid['w']}"
    return f'<section class="{kind}" style="{where}">{inside}</section>'


def _group(board: Mapping[str, Any]) -> str:
    """Return the first tag of its own."""
    return str(next((tag for tag in board["tags"] if tag != "pyrometer"), ""))


def _link(uid: str, board: Mapping[str, Any], query: Mapping[str, str], *, on: bool) -> str:
    return f'<a href="/d/{uid}?{_range(query)}"{" class=on" if on else ""}>{html.escape(_name(board))}</a>'


def _name(board: Mapping[str, Any]) -> str:
    return str(board["title"]).removeprefix("Pyrometer / ")


def _range(query: Mapping[str, str]) -> str:
    return "&amp;".join(f"{name}={query[name]}" for name in ("from", "to") if query.get(name, "").isdigit())


def _window(query: Mapping[str, str]) -> Window:
    """Return the range asked for; what is not a time in milliseconds, such as `now-3h`, is the last five minutes."""
    end = int(query["to"]) / 1000 if query.get("to", "").isdigit() else time.time()
    start = int(query["from"]) / 1000 if query.get("from", "").isdigit() else end - RANGE_SECONDS
    return Window(min(start, end - 60), end)
