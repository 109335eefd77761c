"""`pyrometer-alerting`: check everything, start, wait for a signal, stop."""

from __future__ import annotations

import logging
import os
import signal
import ssl
import sys
import threading
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from pyrometer_alerting import logs, webconfig
from pyrometer_alerting.app import commands, settings
from pyrometer_alerting.app.service import Service
from pyrometer_alerting.app.settings import Settings
from pyrometer_alerting.clock import SystemClock
from pyrometer_alerting.deliver.courier import TERMINAL
from pyrometer_alerting.deliver.slack import Slack, WebSlack
from pyrometer_alerting.deliver.terminal import TerminalSlack
from pyrometer_alerting.model import routing
from pyrometer_alerting.model.links import without_credentials
from pyrometer_alerting.prometheus import DIGEST_SECONDS, HttpPrometheus
from pyrometer_alerting.render.messages import Style
from pyrometer_alerting.server import HttpServer
from pyrometer_alerting.sources.alertmanager import HttpAlertmanager
from pyrometer_alerting.state.store import Store, StoreError
from pyrometer_alerting.yamlfile import SettingsError

RELOAD_SECONDS = 1.0
_log = logging.getLogger("pyrometer_alerting.app.main")  # not __main__ when run with -m


def main() -> None:
    """Run the console script."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(arguments: Sequence[str], environment: Mapping[str, str], stop: threading.Event | None = None) -> int:
    """Run until a signal (or `stop`); return 2 after one line on stderr if the settings must be changed."""
    try:
        command = commands.find(arguments, environment)
        if command is not None:
            return command()
        chosen = settings.load(arguments, environment)
        tls, users = webconfig.load(chosen.web_config) if chosen.web_config is not None else (None, {})
        logs.configure(chosen.log_level, chosen.log_format)
        service = _service(chosen, _authenticator(chosen, users))
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
    _wait(stop or threading.Event(), _Reloader(chosen, service, tls))
    server.stop()
    service.stop()
    return 0


def _service(chosen: Settings, auth: webconfig.Authenticator) -> Service:
    slack: Slack = (
        WebSlack(chosen.slack_token, chosen.slack_api_url) if chosen.slack_token else TerminalSlack(sys.stdout)
    )
    channel = chosen.slack_channel if chosen.slack_token else TERMINAL

    def read() -> tuple[routing.Routing, frozenset[str]]:
        users = routing.load_users(chosen.config_file)
        if chosen.slack_app_token and not users:
            raise SettingsError("--slack.app-token-file: slack-users in --config.file must say who may press buttons")
        return routing.load(chosen.config_file, channel), users

    read()  # checks the file before anything is opened
    return Service(
        Store(chosen.storage_path),
        slack,
        channel,
        prometheus=HttpPrometheus(chosen.prometheus_url) if chosen.prometheus_url else None,
        style=style(chosen),
        clock=SystemClock(),
        auth=auth,
        alertmanagers=[HttpAlertmanager(url) for url in chosen.alertmanager_urls],
        reload=read,
        app_token=chosen.slack_app_token,
    )


def style(chosen: Settings) -> Style:
    """Return what all messages share; links lead where browsers reach, which may differ from our own addresses."""
    return Style(
        notice=chosen.notice,
        grafana_url=without_credentials(chosen.grafana_url),
        prometheus_url=without_credentials(chosen.prometheus_external_url),
        runbook_url=chosen.runbook_url,
        charts=chosen.charts,
        alertmanager_url=without_credentials(chosen.alertmanager_external_url),
    )


def _digest_prometheus(chosen: Settings) -> HttpPrometheus | None:
    """Return a client with a long timeout, for digests, which query a whole month."""
    return HttpPrometheus(chosen.prometheus_url, DIGEST_SECONDS) if chosen.prometheus_url else None


def _destination(chosen: Settings) -> str:
    if not chosen.slack_token:
        return "this terminal (no Slack token)"
    return f"{chosen.slack_channel} at {urlsplit(chosen.slack_api_url).hostname}"


def _authenticator(chosen: Settings, users: Mapping[str, bytes]) -> webconfig.Authenticator:
    web_config, bearer_file = chosen.web_config, chosen.bearer_file
    return webconfig.Authenticator(
        users,
        settings.bearer_tokens(bearer_file) if bearer_file is not None else (),
        (lambda: settings.bearer_tokens(bearer_file)) if bearer_file is not None else None,
        (lambda: webconfig.load(web_config)[1]) if web_config is not None else None,
    )


class _Reloader:
    """Reloads routing, secrets and certificates: on SIGHUP, and whenever a secret or certificate file changes."""

    def __init__(self, chosen: Settings, service: Service, tls: ssl.SSLContext | None) -> None:
        self._service, self._tls, self._web_config = service, tls, chosen.web_config
        self._watched = webconfig.Watched(chosen.web_config, *filter(None, [chosen.bearer_file]))
        self.asked = threading.Event()

    def look(self) -> None:
        """Reload if requested or if a file was replaced."""
        if not self._watched.changed() and not self.asked.is_set():
            return
        self.asked.clear()
        try:
            self._service.reload()
            if self._tls is not None and self._web_config is not None:
                webconfig.renew(self._tls, self._web_config)
            _log.info("reload: done")
        except SettingsError as error:
            _log.error("reload: %s: keeping the present configuration", error)


def _wait(stop: threading.Event, reloader: _Reloader) -> None:
    """Wait for SIGTERM or SIGINT; only the main thread receives signals, tests set the event."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: stop.set())
        signal.signal(signal.SIGHUP, lambda _number, _frame: reloader.asked.set())
    while not stop.wait(RELOAD_SECONDS):
        reloader.look()


if __name__ == "__main__":
    main()
