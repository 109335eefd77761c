"""Read flags, the optional configuration file, and secrets from files or the environment; check all of them.

The file has the flags' names, nested at the dots; a flag wins over the file:

    slack:
      channel: "#gpu-alerts"
      bot-token-file: /etc/pyrometer/slack-bot-token
    prometheus:
      url: http://127.0.0.1:9090
    notice: SIMULATED CLUSTER
"""

from __future__ import annotations

import argparse
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timezone, tzinfo
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyrometer_alerting.app.shared import check_address
from pyrometer_alerting.channel import first_steps
from pyrometer_alerting.channel.digest.scheduler import WEEKDAYS, Schedule
from pyrometer_alerting.model.links import is_web_url
from pyrometer_kit import logs
from pyrometer_kit.command_line import add_version_flag
from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import Address, Flags, address
from pyrometer_kit.yamlfile import entries, read, read_text

PROG = "pyrometer-alerting"
# A healthy Prometheus answers at once; one that needs longer is overloaded, and the message does not wait for it.
QUERY_SECONDS = 3.0
DIGEST_SECONDS = 30.0  # a digest queries months, and no one waits for it
STRUCTURED = ("routing", "slack-users", "outlets")  # sections without a flag, read elsewhere
TOKEN_VARIABLE = "PYROMETER_SLACK_BOT_TOKEN"  # noqa: S105 - the name of a variable, not a token
APP_TOKEN_VARIABLE = "PYROMETER_SLACK_APP_TOKEN"  # noqa: S105
SLACK_API_URL = "https://slack.com/api/"

COMMANDS: Mapping[str, str] = {
    "check-config": "check these flags and the configuration file without starting the service",
    "check-slack": "ask Slack about token, scopes, channels and Socket Mode, and report what is missing",
    "check-outlets": "send a test incident to pagers, Teams, e-mail and webhooks, and report which accepted it",
    "digest": "print the digest of the last day or week as of now",
    "explain": "print every fact, weight and query behind a diagnosis",
    "replay": "list or retry messages that Slack or an outlet refused for good",
}
_DEFAULTS: Mapping[str, str] = {
    "web.listen-address": "127.0.0.1:9937",
    "web.external-url": "",
    "web.config.file": "",
    "web.bearer-token-file": "",
    "prometheus.url": "",
    "prometheus.external-url": "",
    "alertmanager.url": "",
    "alertmanager.external-url": "",
    "grafana.url": "",
    "grafana.logs": "",
    "runbook.url": "",
    "slack.api-url": SLACK_API_URL,
    "slack.bot-token-file": "",
    "slack.app-token-file": "",
    "slack.channel": "",
    "slack.charts": "auto",
    "scheduler": first_steps.SLURM,
    "policy.file": "",
    "storage.path": "./pyrometer-alerting",
    "storage.url": "",
    "storage.password-file": "",
    "digest.daily": "",
    "digest.weekly": "",
    "digest.timezone": "UTC",
    "log.level": "info",
    "log.format": "logfmt",
    "notice": "",
}
_HELP: Mapping[str, str] = {
    "web.listen-address": "address to listen on, for Alertmanager, the page and /metrics",
    "web.external-url": "address at which browsers reach this service, for links to its page and runbooks; by default"
    " this host's name and port",
    "web.config.file": "TLS and basic authentication, as in Prometheus' exporter-toolkit",
    "web.bearer-token-file": "file with the token that Alertmanager must present (authorization.credentials_file);"
    " a second line holds the next token",
    "prometheus.url": "Prometheus' address, for the causes of training alerts; without it no causes are looked up",
    "prometheus.external-url": "Prometheus' address as browsers reach it, for links",
    "runbook.url": "base of the runbooks' paths (docs/alerts.md#...), for a copy of your own; by default this service"
    " serves them below /runbooks",
    "slack.charts": "auto (Slack's chart block, or a picture if it is refused), picture, or off",
    "alertmanager.url": "Alertmanager's address, polled for what its webhook does not deliver; several with commas",
    "alertmanager.external-url": "Alertmanager's address as browsers reach it, for links; by default the first of"
    " --alertmanager.url",
    "grafana.url": "Grafana's address, for links to the boards",
    "grafana.logs": "uid of a Loki data source in that Grafana, for links to the node's logs of the incident's minute",
    "slack.api-url": "base of Slack's Web API; change it only for tests and the demo",
    "slack.bot-token-file": f"file with the bot token (xoxb-...), or set {TOKEN_VARIABLE}; "
    "without either, messages go to the terminal and the page",
    "slack.app-token-file": f"file with the app-level token (xapp-...) for buttons, or set {APP_TOKEN_VARIABLE};"
    " slack-users in the configuration file lists who may use them",
    "slack.channel": "channel id (C0123456789) or #name; the bot must be a member",
    "scheduler": "whose command takes a node out of service, for the first step that a message names: slurm, kubernetes"
    " or none; by cluster as in slurm,lab=kubernetes, where the one without a name is that of all others",
    "digest.daily": "when to send the daily digest, such as 09:00; empty sends none",
    "digest.weekly": "when to send the weekly digest, such as mon 09:00; empty sends none",
    "digest.timezone": "time zone of these times and of the months, such as Europe/Zurich",
    "policy.file": "file with the findings that drain a node (docs/policy.md); without it no node is ever drained",
    "storage.path": "folder of the database; created if missing",
    "storage.url": "PostgreSQL's address, postgresql://user@host/database, instead of the folder: several of these"
    " services then share one database, and one of them leads (docs/howto/two-alerting-services.md)",
    "storage.password-file": "file with the password for --storage.url; without it PGPASSFILE, as for every client of"
    " PostgreSQL",
    "log.level": "debug, info, warn or error",
    "log.format": "logfmt or json",
    "notice": "text shown on every message and page, such as SIMULATED CLUSTER",
}
_CHOICES = {
    "slack.charts": ("auto", "picture", "off"),
    "log.level": logs.LEVELS,
    "log.format": logs.FORMATS,
}


@dataclass(frozen=True)
class Settings:
    """All settings of the service; `slack_token` is empty without one and never shown."""

    address: Address
    external_url: str
    web_config: Path | None
    bearer_file: Path | None
    prometheus_url: str
    alertmanager_urls: tuple[str, ...]
    alertmanager_external_url: str
    grafana_url: str
    grafana_logs: str
    prometheus_external_url: str
    runbook_url: str
    charts: str
    slack_api_url: str
    slack_token: str
    slack_app_token: str
    slack_channel: str
    storage_path: Path
    schedules: tuple[Schedule, ...]
    zone: tzinfo
    log_level: str
    log_format: str
    notice: str
    scheduler: str = first_steps.SLURM
    policy_file: Path | None = None
    config_file: Path | None = None
    storage_url: str = ""
    storage_password: str = ""
    read_slack_token: Callable[[], str] = str
    read_app_token: Callable[[], str] = str
    """Return the token that is in the file now; empty if it cannot be used."""

    def __repr__(self) -> str:
        """Return a text without secrets."""
        return f"Settings(address={self.address!r}, slack_channel={self.slack_channel!r})"


def load(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read flags, file and secrets.

    Raises:
        UsageError: a setting is wrong; the message is one line.
    """
    options = vars(_parser().parse_args(list(arguments)))
    config_file = options.pop("config.file")
    from_file = _from_file(Path(config_file)) if config_file else {}
    flags = {name: value for name, value in options.items() if value is not None}
    values = {**_DEFAULTS, **from_file, **flags}
    for name, choices in _CHOICES.items():
        if values[name] not in choices:
            raise UsageError(f"--{name}={values[name]}: must be one of {', '.join(choices)}")
    for given in values["scheduler"].split(","):
        if given.rpartition("=")[2].strip() not in first_steps.SCHEDULERS:
            most = ", ".join(first_steps.SCHEDULERS)
            raise UsageError(
                f"--scheduler={values['scheduler']}: {given!r} must be one of {most}, or CLUSTER= and one of them"
            )
    return replace(_settings(values, environment), config_file=Path(config_file) if config_file else None)


def _parser() -> Flags:
    parser = Flags(
        PROG, "Receive alerts from Alertmanager and post incidents to Slack. Without a command, run the service."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    width = max(map(len, COMMANDS))
    parser.epilog = "\n".join(
        ["commands, each with its own --help:", *(f"  {name:{width}}  {said}" for name, said in COMMANDS.items())]
    )
    for name, default in _DEFAULTS.items():
        suffix = f" (default: {default})" if default else ""
        parser.add_argument(f"--{name}", dest=name, metavar=_metavar(name), help=_HELP[name] + suffix)
    add_version_flag(parser, PROG)
    parser.add_argument("--config.file", dest="config.file", metavar="FILE", help="YAML file with these settings")
    return parser


def _metavar(name: str) -> str:
    """Return the placeholder of a flag's value: its choices, or the type that the end of its name implies."""
    if name in _CHOICES:
        return "{" + ",".join(_CHOICES[name]) + "}"
    kinds = {"url": "URL", "file": "FILE", "address": "HOST:PORT", "path": "FOLDER"}
    return kinds.get(re.split(r"[.-]", name)[-1], "VALUE")


def _from_file(path: Path) -> dict[str, str]:
    values = {}
    for entry in entries({name: node for name, node in read(path).items() if name not in STRUCTURED}):
        if entry.path not in _DEFAULTS:
            raise UsageError(f"{entry.place}: unknown setting {entry.path}; known are {', '.join(sorted(_DEFAULTS))}")
        values[entry.path] = entry.value
    return values


def _settings(values: Mapping[str, str], environment: Mapping[str, str]) -> Settings:
    token = _token("slack.bot-token-file", values, environment, TOKEN_VARIABLE, "xoxb-")
    app_token = _token("slack.app-token-file", values, environment, APP_TOKEN_VARIABLE, "xapp-")
    if app_token and not token:
        raise UsageError("--slack.app-token-file: buttons need a bot token as well (--slack.bot-token-file)")
    if token and not values["slack.channel"]:
        raise UsageError("--slack.channel is missing: name a channel that the bot is a member of, best by its id")
    api_url = _url("slack.api-url", values["slack.api-url"])
    bearer = values["web.bearer-token-file"]
    alertmanagers = _urls("alertmanager.url", values["alertmanager.url"])
    return Settings(
        address=_address(values["web.listen-address"]),
        external_url=_url("web.external-url", values["web.external-url"]).rstrip("/"),
        web_config=Path(values["web.config.file"]) if values["web.config.file"] else None,
        bearer_file=Path(bearer) if bearer else None,
        prometheus_url=_url("prometheus.url", values["prometheus.url"]),
        alertmanager_urls=alertmanagers,
        alertmanager_external_url=_url("alertmanager.external-url", values["alertmanager.external-url"])
        or next(iter(alertmanagers), ""),
        grafana_url=_url("grafana.url", values["grafana.url"]),
        grafana_logs=values["grafana.logs"],
        prometheus_external_url=_url("prometheus.external-url", values["prometheus.external-url"]),
        runbook_url=_url("runbook.url", values["runbook.url"]),
        charts=values["slack.charts"],
        slack_api_url=api_url if api_url.endswith("/") else f"{api_url}/",
        slack_token=token,
        slack_app_token=app_token,
        slack_channel=values["slack.channel"],
        storage_path=Path(values["storage.path"]),
        schedules=_schedules(values["digest.daily"], values["digest.weekly"]),
        zone=_zone(values["digest.timezone"]),
        log_level=values["log.level"],
        log_format=values["log.format"],
        notice=values["notice"],
        scheduler=values["scheduler"],
        policy_file=Path(values["policy.file"]) if values["policy.file"] else None,
        storage_url=values["storage.url"],
        storage_password=storage_password(values["storage.url"], values["storage.password-file"]),
        read_slack_token=partial(_new_token, "slack.bot-token-file", values, environment, TOKEN_VARIABLE, "xoxb-"),
        read_app_token=partial(_new_token, "slack.app-token-file", values, environment, APP_TOKEN_VARIABLE, "xapp-"),
    )


def _schedules(daily: str, weekly: str) -> tuple[Schedule, ...]:
    """Parse `09:00` and `mon 09:00`."""
    schedules = []
    if daily:
        schedules.append(Schedule("daily", _minutes("digest.daily", daily, daily)))
    if weekly:
        day, _, clock = weekly.strip().lower().partition(" ")
        if day[:3] not in WEEKDAYS:
            raise UsageError(f"--digest.weekly={weekly}: expected a weekday and a time, such as mon 09:00")
        schedules.append(Schedule("weekly", _minutes("digest.weekly", weekly, clock), WEEKDAYS.index(day[:3])))
    return tuple(schedules)


def _minutes(name: str, value: str, clock: str) -> int:
    match = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", clock.strip(), re.ASCII)
    if match is None:
        raise UsageError(f"--{name}={value}: expected a time of the day, such as 09:00")
    return 60 * int(match[1]) + int(match[2])


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        if name == "UTC":
            return timezone.utc  # a machine without a time zone database
        raise UsageError(f"--digest.timezone={name}: not a time zone; expected one such as Europe/Zurich") from None


def _address(value: str) -> Address:
    try:
        return address(value)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--web.listen-address: {error}") from None


def _url(name: str, value: str) -> str:
    """Check that it is an absolute http(s) URL or empty; the error never repeats a password in it."""
    if not value:
        return ""
    try:
        port_is_good = urlsplit(value).port != 0
    except ValueError:
        port_is_good = False
    if not is_web_url(value) or not port_is_good:
        address = value.rpartition("@")[2]
        raise UsageError(f"--{name}={address}: expected an address such as http://127.0.0.1:9090")
    return value


def _urls(name: str, value: str) -> tuple[str, ...]:
    return tuple(_url(name, part.strip()) for part in value.split(",") if part.strip())


def _token(name: str, values: Mapping[str, str], environment: Mapping[str, str], variable: str, prefix: str) -> str:
    file = values[name]
    where = f"--{name}={file}" if file else variable
    token = secret(name, Path(file)) if file else environment.get(variable, "").strip()
    if not file and not token:
        return ""
    if not token.startswith(prefix) or not token.isascii() or any(char.isspace() for char in token):
        kind, page = (
            ("a bot token", "OAuth & Permissions") if prefix == "xoxb-" else ("an app token", "Basic Information")
        )
        raise UsageError(f"{where}: not {kind}: it must start with {prefix} (Slack app, {page})")
    return token


def _new_token(name: str, values: Mapping[str, str], environment: Mapping[str, str], variable: str, prefix: str) -> str:
    """Return the token that is in the file now; empty while it cannot be used: it may be half written."""
    try:
        return _token(name, values, environment, variable, prefix)
    except UsageError:
        return ""


def storage_password(url: str, file: str) -> str:
    """Return the password for the database's server; empty without one.

    Raises:
        UsageError: the file cannot be used, or has no server to be for; the address is none, or has a password.
    """
    if file and not url:
        raise UsageError("--storage.password-file: it is for --storage.url, which is missing")
    if url:
        check_address(url)
    return secret("storage.password-file", Path(file)) if file else ""


def bearer_tokens(path: Path) -> list[str]:
    """Return one token, or two so that they can be rotated without a gap: one per line.

    Raises:
        UsageError: the file cannot be used, or has more tokens.
    """
    tokens = secret("web.bearer-token-file", path).split()
    if len(tokens) > 2 or not all(token.isascii() for token in tokens):
        raise UsageError(f"--web.bearer-token-file={path}: expected one token, or two on a line each")
    return tokens


def secret(name: str, path: Path) -> str:
    """Return the content of a secret file.

    Raises:
        UsageError: the file is missing, empty, or readable by everyone on the machine.
    """
    return read_secret(f"--{name}={path}", path)


def read_secret(where: str, path: Path) -> str:
    """Return the content of a secret file; errors begin with `where` it is named.

    Raises:
        UsageError: the file is missing, empty, or readable by everyone on the machine.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UsageError(f"{where}: {os.strerror(error.errno or 0)}") from None
    if not stat.S_ISREG(mode):
        raise UsageError(f"{where}: not a file")
    if mode & stat.S_IROTH:
        raise UsageError(f"{where}: everyone on this machine can read it: chmod 600 {path}")
    try:
        content = read_text(path).strip()
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    if not content:
        raise UsageError(f"{where}: the file is empty: put the secret into it")
    return content
