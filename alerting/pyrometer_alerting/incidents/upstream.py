"""Alertmanager and Prometheus polled together: which alerts fire, are muted, or are unknown right now.

With several Alertmanagers an alert is gone only when all of them have dropped it; while one is silent nothing is known.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyrometer_alerting.incidents.alertmanager import ActiveAlert, Alertmanager, AlertmanagerError, Silence
from pyrometer_alerting.model.alert_names import WATCHDOG
from pyrometer_alerting.model.incident import Alert, part_of
from pyrometer_alerting.model.text import utc
from pyrometer_kit.alertmanager_config import Configuration
from pyrometer_kit.prometheus import Prometheus, PrometheusError

_log = logging.getLogger(__name__)

FIRING = 'ALERTS{alertstate="firing"}'
# An inhibition that people wrote for one thing names it in `equal`; by these labels alone it hides what is unrelated.
_COMMON = frozenset({
    "alertname", "cluster", "component", "endpoint", "env", "environment", "job", "namespace", "prometheus",
    "prometheus_replica", "region", "replica", "service", "severity", "team", "tenant",
})  # fmt: skip


@dataclass(frozen=True)
class Upstream:
    """One poll: `views` has a mapping by fingerprint per Alertmanager that answered, `silent` names the others.

    `configuration` is Alertmanager's, asked for where it inhibits something.
    """

    views: Sequence[Mapping[str, ActiveAlert]] = ()
    silences: Mapping[str, Silence] = field(default_factory=dict)
    firing: Mapping[str, Sequence[Mapping[str, str]]] | None = None
    silent: tuple[str, ...] = ()
    configuration: Configuration | None = None

    @property
    def asked_all(self) -> bool:
        """True if at least one Alertmanager is configured and all of them answered."""
        return bool(self.views) and not self.silent

    def known(self, fingerprint: str) -> list[ActiveAlert]:
        """Return the alert as reported by each Alertmanager that has it."""
        return [view[fingerprint] for view in self.views if fingerprint in view]

    def watchdog(self, cluster: str) -> ActiveAlert | None:
        """Return a cluster's heartbeat as an Alertmanager has it."""
        found = [alert for view in self.views for alert in view.values() if alert.labels.get("alertname") == WATCHDOG]
        found.sort(key=lambda alert: alert.labels.get("component") != "stack")  # kube-prometheus has one of its own
        return next((alert for alert in found if alert.labels.get("cluster", "") == cluster), None)

    def hider(self, alert: ActiveAlert) -> ActiveAlert | None:
        """Return what inhibits an alert although it is about something else; None where nothing does.

        A rule that people wrote for our alerts joins both by a node or the like: one that is down hides what is on it.
        kube-prometheus' hides each warning while any alert of the same name is critical.
        """
        found = (source for fingerprint in alert.inhibited_by for source in self.known(fingerprint))
        return None if alert.silenced_by else next((one for one in found if not self._are_joined(one, alert)), None)

    def _are_joined(self, source: ActiveAlert, target: ActiveAlert) -> bool:
        places = ((source.labels.get(name), target.labels.get(name)) for name in ("node", "run"))
        if any(its and ours and its != ours for its, ours in places):
            return False
        rule = self.configuration and self.configuration.inhibition(target.labels, source.labels)
        names = set(rule.equal) if rule else source.labels.keys() & target.labels.keys()
        return any(
            target.labels.get(name) and target.labels[name] == source.labels.get(name) for name in names - _COMMON
        )

    def is_gone(self, alert: Alert) -> bool:
        """Return whether this alert has certainly stopped firing."""
        return self.asked_all and not self.known(alert.fingerprint) and not self.fires_in_prometheus(alert.labels)

    def fires(self, alert: Alert) -> bool:
        """Return whether this alert certainly fires."""
        everywhere = self.asked_all and len(self.known(alert.fingerprint)) == len(self.views)
        return everywhere or self.fires_in_prometheus(alert.labels)

    def fires_in_prometheus(self, labels: Mapping[str, str]) -> bool:
        """Return whether Prometheus evaluates it as firing; its labels may be fewer (external labels come later)."""
        candidates = (self.firing or {}).get(labels.get("alertname", ""), ())
        return any(is_subset(series, labels) for series in candidates)


def ask_upstream(alertmanagers: Sequence[Alertmanager], prometheus: Prometheus | None, now: float) -> Upstream:
    """Poll all sources once; the result names those that did not answer."""
    views, silent = [], []
    silences: dict[str, Silence] = {}
    configuration = None
    for number, alertmanager in enumerate(alertmanagers, start=1):
        try:
            views.append({alert.fingerprint: alert for alert in alertmanager.alerts()})
            if any(alert.silenced_by for alert in views[-1].values()):
                silences |= {silence.id: silence for silence in alertmanager.silences()}
            if configuration is None and any(alert.inhibited_by for alert in views[-1].values()):
                configuration = alertmanager.configuration()
        except AlertmanagerError as error:
            _log.warning("reconciliation: Alertmanager %d: %s", number, error)
            silent.append(f"Alertmanager {number}" if len(alertmanagers) > 1 else "Alertmanager")
    firing = _firing(prometheus, now, silent) if prometheus is not None else None
    return Upstream(views, silences, firing, tuple(silent), configuration)


def _firing(prometheus: Prometheus, now: float, silent: list[str]) -> dict[str, list[Mapping[str, str]]] | None:
    by_name: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    try:
        for series in prometheus.instant(FIRING, now):
            by_name[series.labels.get("alertname", "")].append(without_state(series.labels))
    except PrometheusError as error:
        _log.warning("reconciliation: %s", error)
        silent.append("Prometheus")
        return None
    return by_name


def without_state(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of an ALERTS series as they are on the alert."""
    return {name: value for name, value in labels.items() if name not in ("__name__", "alertstate")}


def is_subset(labels: Mapping[str, str], of: Mapping[str, str]) -> bool:
    """Return whether every label is also in the other set."""
    return labels.items() <= of.items()


def muted_note(alerts: Iterable[Alert], upstream: Upstream, receivers: Collection[str]) -> str:
    """Return `silenced by alice until ...` or `muted by weekends` for firing alerts on their way to us; else empty."""
    notes: dict[str, int] = defaultdict(int)
    total = 0
    for alert in alerts:
        reports = upstream.known(alert.fingerprint)
        total += 1
        if reports and all(report.is_muted_to(receivers) for report in reports):
            notes[_why(reports[0], upstream, receivers)] += 1
    count = sum(notes.values())
    if not count:
        return ""
    share = "" if count == total else f"{count} of {total} alerts "
    return share + "; ".join(sorted(notes)[:2])


def _why(report: ActiveAlert, upstream: Upstream, receivers: Collection[str]) -> str:
    if not report.muted:
        return f"muted by {' and '.join(report.muted_by(receivers)) or 'a time interval'}"
    if report.silenced_by:
        silence = upstream.silences.get(report.silenced_by[0])
        if silence is None:
            return "silenced"
        return f"silenced by {silence.created_by or 'someone'} until {utc(silence.ends_at)}"
    if (hider := upstream.hider(report)) is not None:
        where = part_of(hider.labels)
        name = hider.labels.get("alertname", "another alert")
        return f"hidden in Alertmanager by {name}{f' of {where}' if where else ''}"
    cause = next((found for name in report.inhibited_by for found in upstream.known(name)), None)
    return f"inhibited by {cause.labels.get('alertname', 'another alert')}" if cause else "inhibited"
