"""Follow our alerts through an Alertmanager: where its routes lead, and which of them its inhibitions hide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyrometer_exporters.commands.doctor.stack_asking import some
from pyrometer_kit.alertmanager_config import COMPONENTS, OUR_MATCHER, Configuration, parse
from pyrometer_kit.errors import HttpError
from pyrometer_kit.finding import Finding
from pyrometer_kit.http_client import get_json

SETUP = "docs/howto/existing-stack.md"
PREFIXES = (
    "its address ends with its prefix: --web.route-prefix, /alertmanager of Mimir, /api/alertmanager/grafana of Grafana"
)
# As our rules set them; `node` and `cluster` stand for whatever else tells one alert from another.
_EXAMPLE = {"alertname": "GpuThrottledThermal", "component": "gpu", "cluster": "a"}


def findings(url: str) -> Iterator[Finding]:
    """Yield what the Alertmanager at ``url`` does with the heartbeat and with our alerts.

    Raises:
        HttpError: there was no usable answer.
    """
    status = _status(url)
    yield Finding("ok", f"Alertmanager {status['versionInfo']['version']} answers")
    fired = get_json(url, "/api/v2/alerts?active=true&inhibited=true&silenced=true")
    try:
        configuration = parse(str((status.get("config") or {}).get("original") or ""))
    except ValueError:
        configuration = None
        yield Finding("note", "Alertmanager shows no configuration", "look at its routes and inhibitions yourself")
    yield from _heartbeat(fired, configuration)
    if configuration is not None:
        yield from _routes(configuration)
        yield from _inhibitions(configuration)


def _status(url: str) -> Mapping[str, Any]:
    try:
        return dict(get_json(url, "/api/v2/status"))
    except HttpError as error:
        if error.status == 404:
            raise HttpError(f"{error} ({PREFIXES})", error.reason, status=error.status) from None
        raise


def _heartbeat(fired: Sequence[Mapping[str, Any]], configuration: Configuration | None) -> Iterator[Finding]:
    """Yield where the heartbeat goes, or the rule or route that takes it."""
    watchdogs = [alert for alert in fired if alert["labels"].get("alertname") == "Watchdog"]
    ours = [alert for alert in watchdogs if alert["labels"].get("component") == "stack"] or watchdogs
    if not ours:
        yield Finding("missing", "Alertmanager has no Watchdog alert from Prometheus", "compare the addresses")
        return
    receivers = sorted({str(receiver["name"]) for alert in ours for receiver in alert["receivers"]})
    hidden = [alert for alert in ours if alert.get("status", {}).get("inhibitedBy")]
    silenced = [alert for alert in ours if alert.get("status", {}).get("silencedBy")]
    labels = {str(name): str(value) for name, value in ours[0]["labels"].items()}
    if hidden:
        yield Finding("missing", f"the heartbeat Watchdog is inhibited {_by(hidden[0], fired, configuration)}",
                      f"give that rule's targets the matcher {OUR_MATCHER.replace('=~', '!~')}: {SETUP}")  # fmt: skip
    elif silenced:
        yield Finding("missing", "the heartbeat Watchdog is silenced in Alertmanager", "expire that silence")
    elif configuration is None or configuration.has_webhook(receivers):
        yield Finding("ok", f"Alertmanager has the Watchdog alert, for {some(receivers)}")
    else:
        route = some([str(route) for route in configuration.routes(labels)])
        what = f"Alertmanager routes Watchdog to {some(receivers)} by {route}, and no receiver there has a webhook"
        do = f'put the route for {OUR_MATCHER} before it, or add component!="stack" to its matchers: {SETUP}'
        yield Finding("missing", what, do)


def _by(alert: Mapping[str, Any], fired: Sequence[Mapping[str, Any]], configuration: Configuration | None) -> str:
    sources = [each for each in fired if each.get("fingerprint") in alert["status"]["inhibitedBy"]]
    if not sources:
        return "in Alertmanager"
    rule = configuration.inhibition(alert["labels"], sources[0]["labels"]) if configuration is not None else None
    return f"by {sources[0]['labels'].get('alertname', 'another alert')}{f' (inhibit_rules: {rule})' if rule else ''}"


def _routes(configuration: Configuration) -> Iterator[Finding]:
    """Yield the components whose alerts reach no webhook, with the route that takes them."""
    lost: dict[str, list[str]] = {}
    for component in COMPONENTS:
        routes = configuration.routes({**_EXAMPLE, "alertname": "Any", "component": component, "severity": "critical"})
        if not configuration.has_webhook(route.receiver for route in routes):
            for route in routes:
                lost.setdefault(f"{route.receiver} by {route}", []).append(component)
    for where, components in lost.items():
        what = f"Alertmanager routes our alerts (component {some(components)}) to {where}, which has no webhook"
        yield Finding("missing", what, f"add the route and the receiver with the path /api/v1/alertmanager: {SETUP}")


def _inhibitions(configuration: Configuration) -> Iterator[Finding]:
    """Yield the rules by which a critical alert about one node hides a warning about any other."""
    target = {**_EXAMPLE, "severity": "warning", "node": "gpu-002"}
    source = {**_EXAMPLE, "severity": "critical", "node": "gpu-001"}
    rules = [str(rule) for rule in configuration.inhibitions if rule.mutes(target, source)]
    for rule in rules:
        what = f"an inhibition of Alertmanager's hides our alerts of one node while another has the same ({rule})"
        do = f"add {OUR_MATCHER.replace('=~', '!~')} to its target_matchers; the service shows them as hidden meanwhile"
        yield Finding("note", what, do)
