"""Follow a heartbeat that Alertmanager has and that does not arrive here: the rule or route that takes it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyrometer_alerting.incidents.alertmanager import ActiveAlert, Alertmanager, AlertmanagerError
from pyrometer_alerting.incidents.upstream import Upstream
from pyrometer_kit.alertmanager_config import OUR_MATCHER, Configuration


def obstacle(
    heartbeat: ActiveAlert, upstream: Upstream, alertmanagers: Sequence[Alertmanager], receivers: Collection[str]
) -> str:
    """Return what keeps this heartbeat from us and how to mend it; empty where Alertmanager does send it here.

    Args:
        heartbeat: as Alertmanager has it.
        upstream: the poll that it is from.
        alertmanagers: are asked for their configuration.
        receivers: those by which we were ever told something; none before the first.
    """
    configuration = upstream.configuration or _configuration(alertmanagers)
    source = next((found for name in heartbeat.inhibited_by for found in upstream.known(name)), None)
    if source is not None:
        rule = configuration and configuration.inhibition(heartbeat.labels, source.labels)
        by = source.labels.get("alertname", "another alert")
        named = f" (inhibit_rules: {rule})" if rule else ""
        return f"{by} inhibits it{named}: give that rule's targets the matcher {OUR_MATCHER.replace('=~', '!~')}"
    if heartbeat.muted:
        return "it is silenced or inhibited there"
    if intervals := heartbeat.muted_by(receivers):
        return f"it is muted by {' and '.join(intervals)}"
    if not heartbeat.receivers or set(receivers) & set(heartbeat.receivers):
        return ""
    if not receivers and configuration is not None and configuration.has_webhook(heartbeat.receivers):
        return ""
    routes = " and ".join(map(str, configuration.routes(heartbeat.labels))) if configuration is not None else "a route"
    remedy = f'put the route with {OUR_MATCHER} before that one, or add component!="stack" to its matchers'
    return f"{routes} leads it to {' and '.join(heartbeat.receivers)}: {remedy}"


def _configuration(alertmanagers: Sequence[Alertmanager]) -> Configuration | None:
    for alertmanager in alertmanagers:
        try:
            if (configuration := alertmanager.configuration()) is not None:
                return configuration
        except AlertmanagerError:
            continue
    return None
