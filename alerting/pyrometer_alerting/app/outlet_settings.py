"""The `outlets` part of the configuration file: places besides Slack that get incidents.

outlets:
  - name: oncall
    kind: pagerduty
    key-file: /etc/pyrometer/pagerduty-key
    severities: [critical]
    match: {cluster: [prod-a, prod-b], component: gpu}
  - name: operators
    kind: email
    server: smtp.example.com:587
    from: pyrometer@example.com
    to: [operators@example.com]
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from pyrometer_alerting.app.settings import read_secret
from pyrometer_alerting.channel.outlets import opsgenie, pagerduty, webhook
from pyrometer_alerting.channel.outlets.email import IMPLICIT, NONE, STARTTLS, Email, Server
from pyrometer_alerting.channel.outlets.http import Endpoint
from pyrometer_alerting.channel.outlets.notice import Entry, Outlet
from pyrometer_alerting.channel.outlets.opsgenie import Opsgenie
from pyrometer_alerting.channel.outlets.pagerduty import PagerDuty
from pyrometer_alerting.channel.outlets.teams import Teams
from pyrometer_alerting.channel.outlets.webhook import Webhook
from pyrometer_alerting.model.links import is_web_url
from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import LOOPBACK, address
from pyrometer_kit.yamlfile import Node, read

SEVERITIES = ("critical", "warning")
_COMMON = ("name", "kind", "severities", "match", "labels")
_ADDRESS = re.compile(r"(?:[^<>@\r\n,]*<)?[^<>@\s,]+@[^<>@\s,]+>?")
Fields = Mapping[str, Node]


def load(path: Path | None) -> tuple[Entry, ...]:
    """Read the outlets and their secrets from the configuration file.

    Raises:
        UsageError: a setting is wrong; the message names file and line, but no secret.
    """
    root = read(path).get("outlets") if path is not None else None
    entries = [_entry(node) for node in root.items()] if root is not None else []
    for index, entry in enumerate(entries):
        if root is not None and entry.name in {other.name for other in entries[:index]}:
            raise UsageError(f"{root.items()[index].place}: outlet {entry.name} is given twice")
    return tuple(entries)


def secret_files(path: Path | None) -> list[Path]:
    """Return the files with secrets that the outlets name, which are read again when they change.

    Raises:
        UsageError: the configuration file is wrong.
    """
    root = read(path).get("outlets") if path is not None else None
    fields = [node.fields() for node in root.items()] if root is not None else []
    return [Path(node.text()) for settings in fields for name, node in settings.items() if name.endswith("-file")]


def _entry(node: Node) -> Entry:
    kind = _required(node, node.fields(), "kind").text()
    if kind not in _KINDS:
        raise UsageError(f"{node.place}: unknown kind {kind}; known are {', '.join(sorted(_KINDS))}")
    names, build = _KINDS[kind]
    fields = node.fields((*_COMMON, *names))
    name = _required(node, fields, "name").text()
    if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,60}", name):
        raise UsageError(f"{fields['name'].place}: {name}: expected a name of letters, digits, '-', '_' and '.'")
    labels = frozenset(item.text() for item in fields["labels"].items()) if "labels" in fields else None
    return Entry(name, kind, build(node, fields), _severities(fields), _match(fields), labels)


def _severities(fields: Fields) -> frozenset[str]:
    if "severities" not in fields:
        return frozenset(SEVERITIES)
    chosen = fields["severities"].items()
    for item in chosen:
        if item.text() not in SEVERITIES:
            raise UsageError(f"{item.place}: {item.text()} must be one of {', '.join(SEVERITIES)}")
    return frozenset(item.text() for item in chosen)


def _match(fields: Fields) -> dict[str, frozenset[str]]:
    if "match" not in fields:
        return {}
    return {
        name: frozenset(item.text() for item in (node.items() if isinstance(node.value, list) else [node]))
        for name, node in fields["match"].fields().items()
    }


def _webhook(node: Node, fields: Fields) -> Outlet:
    secret = _secret(node, fields, "secret-file")
    try:
        key = webhook.key_of(secret)
    except ValueError:
        raise UsageError(f"{fields['secret-file'].place}: the part after whsec_ in the file is not base64") from None
    return Webhook(_endpoint(node, fields, secret), key)


def _pagerduty(node: Node, fields: Fields) -> Outlet:
    key = _secret(node, fields, "key-file")
    return PagerDuty(_endpoint(node, fields, key, pagerduty.URL), key)


def _opsgenie(node: Node, fields: Fields) -> Outlet:
    key = _secret(node, fields, "key-file")
    return Opsgenie(_endpoint(node, fields, key, opsgenie.URL), key)


def _teams(node: Node, fields: Fields) -> Outlet:
    return Teams(_endpoint(node, fields, ""))


def _email(node: Node, fields: Fields) -> Outlet:
    where = _required(node, fields, "server")
    try:
        host = address(where.text())
    except argparse.ArgumentTypeError:
        raise UsageError(f"{where.place}: {where.text()}: expected HOST:PORT, such as smtp.example.com:587") from None
    tls = fields["tls"].text() if "tls" in fields else STARTTLS
    if tls not in (STARTTLS, IMPLICIT, NONE):
        raise UsageError(f"{fields['tls'].place}: {tls} must be one of {STARTTLS}, {IMPLICIT}, {NONE}")
    if tls == NONE and host.host not in LOOPBACK:
        raise UsageError(f"{fields['tls'].place}: without TLS only a server on this machine may be used")
    user = fields["user"].text() if "user" in fields else ""
    if bool(user) != ("password-file" in fields):
        raise UsageError(f"{node.place}: user and password-file must be given together")
    password = _secret(node, fields, "password-file") if user else ""
    recipients = [_mailbox(item) for item in _required(node, fields, "to").items()]
    if not recipients:
        raise UsageError(f"{fields['to'].place}: expected at least one address")
    server = Server(host.host, host.port, tls, user, password, _ca_file(fields))
    return Email(server, _mailbox(_required(node, fields, "from")), tuple(recipients))


def _mailbox(node: Node) -> str:
    if not _ADDRESS.fullmatch(node.text()):
        raise UsageError(f"{node.place}: {node.text()}: expected an address such as operators@example.com")
    return node.text()


def _endpoint(node: Node, fields: Fields, secret: str, default: str = "") -> Endpoint:
    """Return the outlet's address: its own, or the one in its file, where the address is a secret."""
    url, place, hidden = default, node.place, [secret]
    if "url-file" in fields:
        url, place = _secret(node, fields, "url-file"), fields["url-file"].place
        hidden.append(url)
    elif "url" in fields:
        url, place = fields["url"].text(), fields["url"].place
    if not url:
        raise UsageError(f"{node.place}: an outlet of this kind needs url-file, a file with its address")
    if not is_web_url(url):
        raise UsageError(f"{place}: expected an address such as https://example.com/hook")
    scheme, _, rest = url.partition("://")
    if scheme != "https" and re.split(r"[:/]", rest)[0] not in LOOPBACK:
        raise UsageError(
            f"{place}: expected an https address: otherwise incidents and secrets would be sent in plain text"
        )
    return Endpoint(url.rstrip("/") if url == default else url, _ca_file(fields), tuple(filter(None, hidden)))


def _ca_file(fields: Fields) -> str:
    if "ca-file" not in fields:
        return ""
    path = Path(fields["ca-file"].text())
    if not path.is_file():
        raise UsageError(f"{fields['ca-file'].place}: {path}: no such file")
    return str(path)


def _secret(node: Node, fields: Fields, name: str) -> str:
    given = _required(node, fields, name)
    return read_secret(f"{given.place}: {name} {given.text()}", Path(given.text()))


def _required(node: Node, fields: Fields, name: str) -> Node:
    if name not in fields or fields[name].value == "":
        raise UsageError(f"{node.place}: an outlet of this kind needs {name}")
    return fields[name]


_KINDS: Mapping[str, tuple[tuple[str, ...], Callable[[Node, Fields], Outlet]]] = {
    "webhook": (("url", "url-file", "secret-file", "ca-file"), _webhook),
    "pagerduty": (("url", "key-file", "ca-file"), _pagerduty),
    "opsgenie": (("url", "key-file", "ca-file"), _opsgenie),
    "teams": (("url-file", "ca-file"), _teams),
    "email": (("server", "tls", "user", "password-file", "ca-file", "from", "to"), _email),
}
