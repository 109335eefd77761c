"""The service's own metrics, in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

# From "the settle time" to "an outage of Slack": DESIGN asks for fault to Slack in 10 s, of which 1 s is ours.
_LATENCY_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)

GaugeSource = Callable[[], dict[str, dict[tuple[tuple[str, str], ...], float]]]

GAUGES = {
    "pyrometer_alerting_incidents_open": "Incidents that fire now.",
    "pyrometer_alerting_outbox_depth": "Messages and replies that wait for Slack.",
    "pyrometer_alerting_outbox_oldest_age_seconds": "Age of the oldest of them; 0 when there is none.",
    "pyrometer_alerting_outbox_dead": "Messages that Slack refused for good.",
    "pyrometer_alerting_slack_blocked": "1 while nothing can be sent, with Slack's reason.",
    "pyrometer_alerting_channel_unreachable": "1 for each channel of a route that cannot be reached, with the reason.",
    "pyrometer_alerting_socket_mode_connected": "1 while clicks and commands reach us; absent without an app token.",
    "pyrometer_run_signature": "Which known trouble a run's MFU curve looks like now: confidence, 0-1, by signature.",
    "pyrometer_alerting_watchdog_last_seen_timestamp_seconds": "When the Watchdog alert last arrived; absent before.",
}


class Metrics:
    """All counters and histograms; gauges are asked from `gauges` at each scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.webhooks = Counter(
            "pyrometer_alerting_webhook_requests_total", "Webhook calls by answer.", ["code"], registry=self.registry
        )
        self.rejected = Counter(
            "pyrometer_alerting_webhook_rejected_total",
            "Webhook calls that were not Alertmanager's, or came without the right credentials.",
            ["reason"],
            registry=self.registry,
        )
        self.alerts = Counter(
            "pyrometer_alerting_alerts_total",
            "Alerts received: applied, stale (out of order) or in a repeated delivery.",
            ["outcome"],
            registry=self.registry,
        )
        self.slack_calls = Counter(
            "pyrometer_alerting_slack_calls_total",
            "Calls by method and outcome.",
            ["method", "outcome"],
            registry=self.registry,
        )
        self.diagnoses = Counter(
            "pyrometer_alerting_diagnoses_total", "Diagnoses by outcome.", ["outcome"], registry=self.registry
        )
        self.signatures = Counter(
            "pyrometer_alerting_signatures_total",
            "Looks at the MFU curve of a run: named, unknown, too_few_batches, no_answer or error.",
            ["outcome"],
            registry=self.registry,
        )
        self.corrections = Counter(
            "pyrometer_alerting_reconcile_corrections_total",
            "What Alertmanager had not told and was set right: closed, refired, undelivered, missed, watchdog.",
            ["kind"],
            registry=self.registry,
        )
        self.pictures = Counter(
            "pyrometer_alerting_pictures_total",
            "Pictures for messages: made or failed.",
            ["outcome"],
            registry=self.registry,
        )
        self.latency = Histogram(
            "pyrometer_alerting_webhook_to_slack_seconds",
            "From the webhook's arrival to Slack's answer, for first posts.",
            buckets=_LATENCY_BUCKETS,
            registry=self.registry,
        )

    def serve_gauges(self, source: GaugeSource) -> None:
        """Ask `source` for {name: {labels: value}} at each scrape."""
        self.registry.register(_Gauges(source))

    def render(self) -> bytes:
        """The text of /metrics."""
        return generate_latest(self.registry)


class _Gauges(Collector):
    def __init__(self, source: GaugeSource) -> None:
        self._source = source

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing to check at registration: the store must not be read then."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One family per gauge that has a value."""
        for name, values in self._source().items():
            labels = [label for label, _value in next(iter(values), ())]
            family = GaugeMetricFamily(name, GAUGES[name], labels=labels)
            for key, value in values.items():
                family.add_metric([content for _label, content in key], value)
            yield family
