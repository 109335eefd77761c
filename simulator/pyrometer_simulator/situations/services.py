"""The monitoring host of a situation: what Prometheus, Alertmanager and the alerting service report about themselves.

Only the metrics that rules use, under the names that Prometheus 3.5 and Alertmanager 0.33 give them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyrometer_simulator.situations.model import Action
from pyrometer_simulator.situations.site import Site

MEBIBYTE = float(1 << 20)
RULES = '{rule_group="/etc/prometheus/rules/gpu.rules.yaml;pyrometer_gpu"}'
TO = '{alertmanager="http://localhost:9093/api/v2/alerts"}'
BY = '{integration="webhook"}'

PROMETHEUS_GAUGES = {
    'prometheus_build_info{version="3.5.0"}': 1.0,
    "prometheus_config_last_reload_successful": 1.0,
    f"prometheus_rule_group_last_duration_seconds{RULES}": 0.4,
    f"prometheus_rule_group_interval_seconds{RULES}": 5.0,
    "process_resident_memory_bytes": 3000 * MEBIBYTE,
    "go_gc_gomemlimit_bytes": 8000 * MEBIBYTE,
    "prometheus_engine_queries": 1.0,
    "prometheus_engine_queries_concurrent_max": 20.0,
}
PROMETHEUS_RATES = {
    f"prometheus_rule_group_iterations_missed_total{RULES}": 0.0,
    f"prometheus_rule_evaluation_failures_total{RULES}": 0.0,
    f"prometheus_notifications_sent_total{TO}": 0.5,
    f"prometheus_notifications_errors_total{TO}": 0.0,
    "prometheus_notifications_dropped_total": 0.0,
    "prometheus_target_scrapes_exceeded_sample_limit_total": 0.0,
}
ALERTMANAGER_GAUGES = {"alertmanager_config_last_reload_successful": 1.0}
ALERTMANAGER_RATES = {
    f"alertmanager_notifications_total{BY}": 0.2,
    f"alertmanager_notifications_failed_total{BY}": 0.0,
}
OUTLET = "pyrometer_alerting_outlet_oldest_age_seconds"
REFUSED = 'pyrometer_alerting_given_up_info{incident="1",about="GpuLost gpu-7",channel="#gpu",reason="invalid_blocks"}'
LEADER = "pyrometer_alerting_leader"
SHARED = f'{LEADER}{{storage="postgresql://db/alerting"}}'
ALERTING_GAUGES = {
    f'{LEADER}{{storage="sqlite"}}': 1.0,
    f'{OUTLET}{{outlet="oncall"}}': 0.0,
    f'{OUTLET}{{outlet="night-shift"}}': 0.0,
    "pyrometer_alerting_outbox_oldest_age_seconds": 0.0,
    REFUSED: 0.0,
    "pyrometer_alerting_config_last_reload_successful": 1.0,
    'pyrometer_policy_mode_info{mode="on"}': 1.0,
}
# A time that goes on by a second each second.
ALERTING_RATES = {"pyrometer_policy_last_look_timestamp_seconds": 1.0}


class Service:
    """A process that serves gauges, and counters that rise at rates of their own."""

    def __init__(self, site: Site, job: str, gauges: Mapping[str, float], rates: Mapping[str, float]) -> None:
        self._site = site
        self._gauges = dict(gauges)
        self._rates = dict(rates)
        self._counts = dict.fromkeys(rates, 0.0)
        self._since = site.now
        self._is_up = True
        site.serve(job, self.answer)

    def answer(self) -> bytes | None:
        """Return the text of ``/metrics``; None while the process is away."""
        if not self._is_up:
            return None
        self._count()
        values = self._gauges | self._counts
        return "".join(f"{series} {value:.3f}\n" for series, value in values.items()).encode()

    def set(self, series: str, value: float) -> None:
        """Set a gauge."""
        self._gauges[series] = value

    def become(self, series: str, seconds: float, *others: str) -> None:
        """Serve a gauge as 0 for so many seconds and as 1 after it, instead of others."""
        self._gauges = {name: value for name, value in self._gauges.items() if name not in others} | {series: 0.0}
        self._site.after(seconds, lambda: self.set(series, 1.0))

    def rise(self, series: str, rate: float) -> None:
        """Let a counter rise so much per second from now on."""
        self._count()
        self._rates[series] = rate

    def restart(self, away: float) -> None:
        """Be away for so many seconds; counters begin again at 0."""
        self._is_up = False
        self._site.after(away, self._start)

    def _start(self) -> None:
        self._is_up = True
        self._since = self._site.now
        self._counts = dict.fromkeys(self._rates, 0.0)

    def _count(self) -> None:
        passed = self._site.now - self._since
        self._since = self._site.now
        for series, rate in self._rates.items():
            self._counts[series] += rate * passed


def prometheus(site: Site) -> Service:
    """Add Prometheus itself."""
    return Service(site, "prometheus", PROMETHEUS_GAUGES, PROMETHEUS_RATES)


def alertmanager(site: Site) -> Service:
    """Add Alertmanager."""
    return Service(site, "alertmanager", ALERTMANAGER_GAUGES, ALERTMANAGER_RATES)


def alerting(site: Site) -> Service:
    """Add the alerting service."""
    return Service(site, "alerting", ALERTING_GAUGES, ALERTING_RATES)


def service(start: Callable[[Site], Service], act: str, *arguments: object, at: float) -> Action:
    """Return a step that adds a service, to which something happens at a later time, by the name of its method."""

    def add(site: Site) -> None:
        added = start(site)
        site.schedule(at, lambda: getattr(added, act)(*arguments))

    return add
