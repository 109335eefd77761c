"""Alerts and queries as pages, where Prometheus and Alertmanager are built without any, as Debian's are.

Their addresses are those of links in messages: `/graph?g0.expr=...`, and `/#/alerts?filter=...`, whose part after
the `#` a server never gets.
"""

from __future__ import annotations

import calendar
import html
import re
import time
from collections.abc import Mapping

from pyrometer_kit.prometheus import PrometheusError
from pyrometer_simulator.demo.drawn.panels import content
from pyrometer_simulator.demo.drawn.query import Asker, Window
from pyrometer_simulator.demo.drawn.server import RANGE_SECONDS, STYLE
from pyrometer_simulator.http_call import call
from pyrometer_simulator.http_server import HttpServer, Request, Response

EXAMPLE = "pyrometer_train_batch_mfu_ratio"
_SIZE = (1300, 420)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_ALERTS = {
    "type": "table",
    "targets": [{"refId": "A", "expr": "ALERTS", "instant": True}],
    "fieldConfig": {"defaults": {"noValue": " "}},
    "transformations": [
        {"id": "organize", "options": {
            "excludeByName": {"Value": True, "cluster": True, "uuid": True},
            "indexByName": {"alertname": 0, "alertstate": 1, "severity": 2, "node": 3, "gpu": 4, "device": 5, "run": 6},
            "renameByName": {"alertname": "alert", "alertstate": "state"},
        }},
        {"id": "sortBy", "options": {"sort": [{"field": "alert"}]}},
    ],
}  # fmt: skip


def has_pages(url: str) -> bool:
    """Return whether a Prometheus or an Alertmanager has pages of its own."""
    try:
        reply = call(f"{url}/query", seconds=2)
        first = reply if reply.status == 200 else call(f"{url}/", seconds=2)
    except OSError:
        return False
    return first.status == 200 and b"does not include a web" not in first.body


class QueryPages:
    """Answers requests for both pages; ``amtool`` is the command that silences an alert."""

    def __init__(self, prometheus: str, amtool: str) -> None:
        self._asker = Asker(prometheus)
        self._amtool = amtool

    def server(self, port: int) -> HttpServer:
        """Return a server of the pages. Raises OSError where the port is taken."""
        return HttpServer(self.respond, port=port)

    def respond(self, request: Request) -> Response:
        """Return the page of a request."""
        expr = request.query.get("g0.expr", "").strip()
        try:
            inside = self._graph(expr, request.query) if expr else self._alerts()
        except PrometheusError as error:
            inside = html.escape(str(error))
        page = (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>Alerts and queries</title>"
            f"<style>{STYLE.read_text()}</style><nav><a href='/'>Alerts</a>"
            f"<a href='/graph?g0.expr={EXAMPLE}'>Queries</a></nav><form action=/graph><input name=g0.expr size=120 "
            f"placeholder='a query, such as {EXAMPLE}' value='{html.escape(expr, quote=True)}'> "
            f"<input name=g0.range_input size=4 value='{html.escape(request.query.get('g0.range_input', '5m'))}'> "
            f"<button>Ask Prometheus</button></form>{inside}</html>"
        )
        return Response(page.encode(), content_type="text/html; charset=utf-8")

    def _alerts(self) -> str:
        """Raise PrometheusError."""
        now = time.time()
        table = content(_ALERTS, self._asker, Window(now - RANGE_SECONDS, now), _SIZE)
        silence = f"{self._amtool} silence add alertname=NAME --duration=2h --comment=WHY"
        return (
            f"<h1>Alerts of Prometheus now</h1><section>{table}</section><p class=words>Watchdog always fires: it is "
            f"the heartbeat. To silence an alert: <code>{html.escape(silence)}</code></p>"
        )

    def _graph(self, expr: str, query: Mapping[str, str]) -> str:
        """Raise PrometheusError."""
        window = _window(query)
        targets = [{"refId": "A", "expr": expr}]
        picture = content({"type": "timeseries", "targets": targets}, self._asker, window, _SIZE)
        values = content({"type": "table", "targets": [targets[0] | {"instant": True}]}, self._asker, window, _SIZE)
        when = time.strftime("%H:%M:%S", time.localtime(window.end))
        return f"<section>{picture}</section><h1>At {when}</h1><section>{values}</section>"


def _window(query: Mapping[str, str]) -> Window:
    """Return the range asked for: its end in UTC and its length such as `30m`, else the last five minutes."""
    now = time.time()
    try:
        end = calendar.timegm(time.strptime(query.get("g0.end_input", ""), "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        end = int(now)
    length = re.fullmatch(r"(\d{1,5})([smhd])", query.get("g0.range_input", ""))
    seconds = int(length[1]) * _UNITS[length[2]] if length else RANGE_SECONDS
    return Window(end - max(seconds, 60), min(end, now))
