"""`pyrometer-alerting`: check everything, start, wait for a signal, stop."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from pyrometer_alerting import logs, settings, webconfig
from pyrometer_alerting.alertmanager import HttpAlertmanager
from pyrometer_alerting.clock import SystemClock
from pyrometer_alerting.messages import Style
from pyrometer_alerting.prometheus import HttpPrometheus
from pyrometer_alerting.server import HttpServer
from pyrometer_alerting.service import Service
from pyrometer_alerting.settings import Settings
from pyrometer_alerting.slack import Slack, WebSlack
from pyrometer_alerting.store import Store, StoreError
from pyrometer_alerting.terminal import TerminalSlack
from pyrometer_alerting.yamlfile import SettingsError

_log = logging.getLogger(__name__)


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(arguments: Sequence[str], environment: Mapping[str, str], stop: threading.Event | None = None) -> int:
    """Run until a signal (or `stop`); 2 with one line on stderr when something must be changed first."""
    try:
        chosen = settings.load(arguments, environment)
        tls, users = webconfig.load(chosen.web_config) if chosen.web_config is not None else (None, {})
        logs.configure(chosen.log_level, chosen.log_format)
        service = _service(chosen, webconfig.Authenticator(users, chosen.bearer_token))
    except SettingsError as error:
        print(f"pyrometer-alerting: {error}", file=sys.stderr)  # noqa: T201 - before there is a log
        return 2
    except StoreError as error:
        way_out = "choose another --storage.path"
        print(f"pyrometer-alerting: {error}: {way_out}", file=sys.stderr)  # noqa: T201 - before there is a log
        return 2
    server = HttpServer(chosen.host, chosen.port, service.handle, tls)
    try:
        server.start()
    except OSError as error:
        service.stop()
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else "cannot listen there"
        way_out = "choose another --web.listen-address or stop what holds it"
        print(f"pyrometer-alerting: {chosen.host}:{chosen.port}: {reason}: {way_out}", file=sys.stderr)  # noqa: T201
        return 2
    service.start()
    _log.info("listening on %s:%d, messages go to %s", chosen.host, server.port, _destination(chosen))
    _wait(stop or threading.Event())
    server.stop()
    service.stop()
    return 0


def _service(chosen: Settings, auth: webconfig.Authenticator) -> Service:
    slack: Slack = (
        WebSlack(chosen.slack_token, chosen.slack_api_url) if chosen.slack_token else TerminalSlack(sys.stdout)
    )
    return Service(
        Store(chosen.storage_path),
        slack,
        chosen.slack_channel if chosen.slack_token else "terminal",
        prometheus=HttpPrometheus(chosen.prometheus_url) if chosen.prometheus_url else None,
        style=Style(
            notice=chosen.notice,
            grafana_url=chosen.grafana_url,
            prometheus_url=chosen.prometheus_external_url,
            runbook_url=chosen.runbook_url,
            charts=chosen.charts,
            alertmanager_url=next(iter(chosen.alertmanager_urls), ""),
        ),
        clock=SystemClock(),
        auth=auth,
        alertmanagers=[HttpAlertmanager(url) for url in chosen.alertmanager_urls],
    )


def _destination(chosen: Settings) -> str:
    if not chosen.slack_token:
        return "this terminal (no Slack token)"
    return f"{chosen.slack_channel} at {urlsplit(chosen.slack_api_url).hostname}"


def _wait(stop: threading.Event) -> None:
    """Until SIGTERM or SIGINT; signals can only be had in the main thread, tests set the event."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: stop.set())
    stop.wait()


if __name__ == "__main__":
    main()
