"""`pyrometer-alerting`: check everything, start, wait for a signal, stop."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyrometer_alerting.app import commands, outlet_settings, settings, shared
from pyrometer_alerting.app.service import Service
from pyrometer_alerting.app.settings import DIGEST_SECONDS, PROG, QUERY_SECONDS, Settings
from pyrometer_alerting.channel import runbooks
from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.courier import TERMINAL
from pyrometer_alerting.channel.digest.scheduler import Digests
from pyrometer_alerting.channel.slack import Slack, WebSlack
from pyrometer_alerting.channel.terminal import TerminalSlack
from pyrometer_alerting.incidents.alertmanager import Alertmanager
from pyrometer_alerting.incidents.storage.store import Store, StoreError
from pyrometer_alerting.model import routing
from pyrometer_alerting.model.links import without_credentials
from pyrometer_alerting.policy import rules
from pyrometer_kit import logs, webconfig
from pyrometer_kit.auth import BearerTokens
from pyrometer_kit.clock import SystemClock
from pyrometer_kit.errors import UsageError, fail
from pyrometer_kit.flags import Address
from pyrometer_kit.http_thread import ServerThread
from pyrometer_kit.own_names import OwnNames
from pyrometer_kit.prometheus import HttpPrometheus
from pyrometer_kit.reload import FileWatch, WebConfigReload

if TYPE_CHECKING:
    from pyrometer_alerting.app.replica import Replica

RELOAD_SECONDS = 1.0
_QUIET = ("PIL", "asyncio", "matplotlib", "requests", "slack_sdk", "urllib3", "websocket", "websockets")
_log = logging.getLogger("pyrometer_alerting.app.main")  # not __main__ when run with -m


def main() -> None:
    """Run the console script."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(arguments: Sequence[str], environment: Mapping[str, str], stop: threading.Event | None = None) -> int:
    """Run until a signal or ``stop``; return 2, after one line on stderr, when something must be changed first."""
    try:
        command = commands.find(arguments, environment)
        if command is not None:
            return command()
        chosen = settings.load(arguments, environment)
        logs.set_up(chosen.log_level, chosen.log_format, _QUIET)
        configuration = _Configuration(chosen)
        service = _replica(chosen, configuration) if chosen.storage_url else _service(chosen, configuration)
    except UsageError as error:
        return fail(PROG, error)
    except StoreError as error:
        return fail(PROG, UsageError(f"{error}: {shared.way_out(error)}"))
    names = OwnNames([urlsplit(chosen.external_url).hostname or "", chosen.address.host])
    server = ServerThread(service.routes(), configuration.web, service.rejected, names)
    try:
        port = server.start(chosen.address)
    except UsageError as error:
        service.stop()
        return fail(PROG, error)
    service.start()
    _log.info("listening on %s:%d, messages go to %s", chosen.address.host, port, _destination(chosen))
    if not configuration.web.asks_login:
        _log.warning("%s", _without_login(chosen, is_closed=bool(configuration.tokens.tokens)))
    _wait(stop or threading.Event(), _Reloader(configuration, service))
    server.stop()
    service.stop()
    return 0


class _Configuration:
    """Everything that is reloaded without a restart: web configuration, tokens, routing, people, policy."""

    def __init__(self, chosen: Settings) -> None:
        self.web = webconfig.load(chosen.web_config)
        self.tokens = BearerTokens()
        self.policy = rules.Policy()
        self._chosen = chosen
        self._web_reload = WebConfigReload(chosen.web_config, self.web)
        secrets = [chosen.bearer_file, *outlet_settings.secret_files(chosen.config_file)]
        self._secrets = FileWatch(filter(None, secrets))
        self.read()  # before anything is opened

    def changed(self) -> bool:
        """Return whether a secret or certificate was replaced since the last call."""
        return any([self._secrets.changed(), self._web_reload.changed()])

    def read(self) -> tuple[routing.Routing, frozenset[str]]:
        """Put web configuration and tokens in force; return the routing and the people: either all or none.

        Raises:
            UsageError: One of them is invalid.
        """
        chosen = self._chosen
        users = routing.load_users(chosen.config_file)
        if chosen.slack_app_token and not users:
            raise UsageError("--slack.app-token-file: slack-users in --config.file must say who may press buttons")
        routes = routing.load(chosen.config_file, _channel(chosen))
        policy = rules.load(chosen.policy_file)
        fresh = self._web_reload.read()
        tokens = settings.bearer_tokens(chosen.bearer_file) if chosen.bearer_file is not None else []
        self._web_reload.apply(fresh)
        self.tokens.tokens = tokens
        self.policy = policy if tokens or self.web.asks_login else policy.that_asks()
        return routes, users


def _replica(chosen: Settings, configuration: _Configuration) -> Replica:
    server = shared.server_of(chosen.storage_url, chosen.storage_password)
    return shared.replica(server, lambda store: _service(chosen, configuration, store), _destination(chosen))


def _service(chosen: Settings, configuration: _Configuration, store: Store | None = None) -> Service:
    slack: Slack = (
        WebSlack(chosen.slack_token, chosen.slack_api_url, chosen.read_slack_token)
        if chosen.slack_token
        else TerminalSlack(sys.stdout)
    )
    return Service(
        Store(chosen.storage_path) if store is None else store,
        slack,
        _channel(chosen),
        prometheus=_prometheus(chosen, QUERY_SECONDS),
        style=style(chosen, encrypted=configuration.web.tls is not None),
        clock=SystemClock(),
        tokens=configuration.tokens,
        alertmanagers=[Alertmanager(url) for url in chosen.alertmanager_urls],
        reload=configuration.read,
        outlets=lambda: outlet_settings.load(chosen.config_file),
        app_token=chosen.slack_app_token,
        read_app_token=chosen.read_app_token,
        digests=Digests(chosen.schedules, chosen.zone, _prometheus(chosen, DIGEST_SECONDS)),
        page_url=_page_url(chosen, encrypted=configuration.web.tls is not None),
        policy=lambda: configuration.policy,
        facts=HttpPrometheus(chosen.prometheus_url, QUERY_SECONDS, whole=True) if chosen.prometheus_url else None,
    )


def _channel(chosen: Settings) -> str:
    return chosen.slack_channel if chosen.slack_token else TERMINAL


def style(chosen: Settings, *, encrypted: bool = False) -> Style:
    """Return the style shared by all messages, with the addresses that browsers can reach.

    They may differ from our own. ``encrypted``: whether we serve TLS ourselves.
    """
    own_runbooks = f"{_page_url(chosen, encrypted=encrypted)}{runbooks.BASE}"
    return Style(
        notice=chosen.notice,
        grafana_url=without_credentials(chosen.grafana_url),
        logs=chosen.grafana_logs,
        prometheus_url=without_credentials(chosen.prometheus_external_url),
        runbook_url=chosen.runbook_url or own_runbooks,
        charts=chosen.charts,
        scheduler=chosen.scheduler,
        alertmanager_url=without_credentials(chosen.alertmanager_external_url),
    )


def _page_url(chosen: Settings, *, encrypted: bool) -> str:
    """Return the address of our page for browsers, without a password: it is in messages and in labels."""
    return without_credentials(chosen.external_url) or _own_url(chosen.address, encrypted)


def _own_url(listening: Address, encrypted: bool) -> str:
    """Return this service's address by this host's name, as Prometheus guesses its own."""
    everywhere = listening.host in ("", "0.0.0.0", "::")  # noqa: S104  it is compared, not bound
    host = socket.gethostname() if everywhere else listening.host
    return f"http{'s' if encrypted else ''}://{f'[{host}]' if ':' in host else host}:{listening.port}"


def _prometheus(chosen: Settings, seconds: float) -> HttpPrometheus | None:
    return HttpPrometheus(chosen.prometheus_url, seconds) if chosen.prometheus_url else None


def _destination(chosen: Settings) -> str:
    if not chosen.slack_token:
        return "this terminal (no Slack token)"
    return f"{chosen.slack_channel} at {urlsplit(chosen.slack_api_url).hostname}"


class _Reloader:
    """Reloads the configuration: on SIGHUP, and on its own when a secret or certificate changes."""

    def __init__(self, configuration: _Configuration, service: Service | Replica) -> None:
        self._configuration, self._service = configuration, service
        self.asked = threading.Event()

    def check(self) -> None:
        """Reload if it was asked for or a file was replaced, and log the outcome."""
        if not self._configuration.changed() and not self.asked.is_set():
            return
        self.asked.clear()
        try:
            self._service.reload()
            _log.info("reload: done")
        except UsageError as error:
            _log.error("reload: %s; keeping the previous configuration", error)


def _without_login(chosen: Settings, *, is_closed: bool) -> str:
    """Return what a client may do that nobody knows; `is_closed`: the webhook asks for a token."""
    may = "read incidents, the audit log and metrics"
    if not is_closed:
        may += " and post alerts, which page people"
        may += "; ends are asked of Alertmanager" if chosen.alertmanager_urls else ", and ends, which are believed"
    if chosen.policy_file is not None and not is_closed:
        may += "; the policy asks people instead of acting"
    return f"nobody has to log in: whoever reaches this port may {may} (--web.config.file, --web.bearer-token-file)"


def _wait(stop: threading.Event, reloader: _Reloader) -> None:
    """Wait for SIGTERM or SIGINT; only the main thread receives signals, tests set the event."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: stop.set())
        signal.signal(signal.SIGHUP, lambda _number, _frame: reloader.asked.set())
    while not stop.wait(RELOAD_SECONDS):
        reloader.check()


if __name__ == "__main__":
    main()
