"""The service's own metrics in a registry of their own; these definitions drive /metrics and docs/metrics.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

# From "the settle time" to "an outage of Slack": docs/design.md asks for fault to Slack in 10 s, of which 1 s is ours.
_LATENCY_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)

GaugeSource = Callable[[], dict[str, dict[tuple[tuple[str, str], ...], float]]]


@dataclass(frozen=True)
class Family:
    """One metric: `type` is counter, gauge or histogram; `labels` are those beyond the target's."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()


def _family(kind: str) -> Callable[..., Family]:
    return lambda name, help_, *labels: Family(name, kind, help_, labels)


_counter, _gauge, _histogram = map(_family, ("counter", "gauge", "histogram"))

WEBHOOKS = _counter("pyrometer_alerting_webhook_requests_total", "Webhook calls by answer.", "code")
REJECTED = _counter(
    "pyrometer_alerting_webhook_rejected_total",
    "Webhook calls with a malformed body or without the right credentials.",
    "reason",
)
ALERTS = _counter(
    "pyrometer_alerting_alerts_total",
    "Alerts received, by outcome: applied, stale (out of order), repeated, or asked (an end in doubt).",
    "outcome",
)
SLACK_CALLS = _counter("pyrometer_alerting_slack_calls_total", "Calls by method and outcome.", "method", "outcome")
OUTLET_CALLS = _counter(
    "pyrometer_alerting_outlet_calls_total",
    "Notices sent to outlets besides Slack, by outcome: ok, an HTTP or SMTP status, or the failure's name.",
    *("outlet", "kind", "outcome"),
)
DIAGNOSES = _counter("pyrometer_alerting_diagnoses_total", "Diagnoses by outcome.", "outcome")
JUDGEMENTS = _counter(
    "pyrometer_alerting_judgements_total",
    "People's judgements of a diagnosis in Slack: right or wrong.",
    "judgement",
)
SIGNATURES = _counter(
    "pyrometer_alerting_signatures_total",
    "Examinations of a run's MFU curve: named, unknown, too_few_batches, no_answer or error.",
    "outcome",
)
CORRECTIONS = _counter(
    "pyrometer_alerting_reconcile_corrections_total",
    "Corrections after polling Alertmanager: closed, refired, undelivered, missed, watchdog; not_ended, which"
    " was posted as resolved while it was active; refilled and lost after a loss of the database.",
    "kind",
)
PICTURES = _counter("pyrometer_alerting_pictures_total", "Pictures for messages: made or failed.", "outcome")
LATENCY = _histogram(
    "pyrometer_alerting_webhook_to_slack_seconds",
    "From the webhook's arrival to Slack's answer, for first posts.",
)
INCIDENT = _gauge(
    "pyrometer_incident_start_timestamp_seconds",
    "When the trouble of an incident that is open now began: the culprit, its cause and how sure the diagnosis is,"
    " who acknowledged it, and the address of its message on the service's page. At most 50, the worst and newest.",
    *("cluster", "id", "alert", "severity", "run", "job_id", "node", "gpu", "part", "cause", "confidence"),
    *("acknowledged", "link"),
)
INCIDENT_LOST = _gauge(
    "pyrometer_incident_lost_gpu_hours",
    "GPU-hours that the run has lost to an open incident so far, relative to its expected MFU; absent while unknown.",
    *("cluster", "id", "alert", "run", "job_id", "part", "cause"),
)
PAGE = _gauge(
    "pyrometer_alerting_page_info",
    "1; the URL of the service's page as browsers reach it, from which boards link to incidents and runbooks.",
    "url",
)
GIVEN_UP = _gauge(
    "pyrometer_alerting_given_up_info",
    "1 for each message that Slack or an outlet refused for good within a day: the incident, what it is about, the"
    " channel or outlet, and the code. At most 50. A change of the incident tries again, and so does a replay.",
    *("incident", "about", "channel", "reason"),
)
POLICY_ACTIONS = _counter(
    "pyrometer_policy_actions_total",
    "What the policy did to nodes. action: drain, return, webhook, ask, ask_return; result: done, refused, overtaken,"
    " unknown, ended, asked, would (a dry run). Kept in the database.",
    *("action", "result"),
)
POLICY_HELD = _gauge(
    "pyrometer_policy_nodes_held_back",
    "Nodes that a rule would take out of service now but a limit holds back: per_hour, percent, keep, unknown_node,"
    " questions. Absent while the findings are unknown.",
    *("cluster", "limit"),
)
POLICY_NODE = _gauge(
    "pyrometer_policy_node_since_timestamp_seconds",
    "When the policy drained a node that it still keeps out of service, with the rule and the reason.",
    *("cluster", "node", "rule", "reason"),
)
POLICY_MODE = _gauge("pyrometer_policy_mode_info", "1; dry-run or on. Absent without rules.", "mode")
POLICY_LOOKED = _gauge(
    "pyrometer_policy_last_look_timestamp_seconds",
    "When Prometheus and every scheduler last answered the policy; absent without rules or before the first time.",
)
POLICY = (POLICY_HELD, POLICY_NODE, POLICY_MODE, POLICY_LOOKED)
GAUGES = (
    *POLICY,
    PAGE,
    GIVEN_UP,
    INCIDENT,
    INCIDENT_LOST,
    _gauge(
        "pyrometer_alerting_config_last_reload_successful",
        "1 if the last reload of routing, secrets and web configuration succeeded, 0 while the previous ones are in"
        " use.",
    ),
    _gauge("pyrometer_alerting_incidents_open", "Incidents firing now.", "severity"),
    _gauge("pyrometer_alerting_outbox_depth", "Messages and replies waiting for Slack."),
    _gauge("pyrometer_alerting_outbox_oldest_age_seconds", "Age of the oldest waiting message; 0 without one."),
    _gauge("pyrometer_alerting_outbox_dead", "Messages that Slack refused for good."),
    _gauge("pyrometer_alerting_outlet_depth", "Notices waiting for this outlet.", "outlet"),
    _gauge(
        "pyrometer_alerting_outlet_oldest_age_seconds",
        "Age of the oldest notice waiting for this outlet; 0 without one.",
        "outlet",
    ),
    _gauge("pyrometer_alerting_outlet_dead", "Notices that this outlet refused for good.", "outlet"),
    _gauge(
        "pyrometer_alerting_outlet_blocked",
        "1 while this outlet refuses everything until somebody acts, with the reason.",
        *("outlet", "reason"),
    ),
    _gauge("pyrometer_alerting_slack_blocked", "1 while nothing can be sent, with Slack's error code.", "reason"),
    _gauge(
        "pyrometer_alerting_channel_unreachable",
        "1 for each routed channel that cannot be reached, with Slack's error code.",
        *("channel", "reason"),
    ),
    _gauge(
        "pyrometer_alerting_socket_mode_connected",
        "1 while connected for clicks and commands; absent without an app token.",
    ),
    _gauge(
        "pyrometer_alerting_watchdog_last_seen_timestamp_seconds",
        "When the Watchdog alert last arrived; absent before the first one.",
    ),
    _gauge(
        "pyrometer_alerting_leader",
        "1 while this process applies deliveries and sends messages; 0 where another one on the same storage does:"
        " sqlite, or PostgreSQL's address without user and password.",
        "storage",
    ),
    _gauge("pyrometer_alerting_inbox_depth", "Deliveries that were answered but not yet applied."),
    _gauge(
        "pyrometer_alerting_store_writable",
        "1 while the service's database can be written, 0 while /-/ready refuses.",
    ),
    _gauge(
        "pyrometer_alerting_backup_last_success_timestamp_seconds",
        "When the newest daily copy of the database was made; absent before the first one.",
    ),
    _gauge(
        "pyrometer_run_signature",
        "Confidence, 0-1, that a run's MFU curve has this signature now.",
        *("cluster", "run", "job_id", "signature"),
    ),
)
FAMILIES = (
    POLICY_ACTIONS,
    *(WEBHOOKS, REJECTED, ALERTS, SLACK_CALLS, OUTLET_CALLS, DIAGNOSES),
    *(JUDGEMENTS, SIGNATURES, CORRECTIONS, PICTURES, LATENCY),
    *GAUGES,
)


class Metrics:
    """All counters and histograms; gauges are read from their sources at each scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.webhooks = self._counter(WEBHOOKS)
        self.rejected = self._counter(REJECTED)
        self.alerts = self._counter(ALERTS)
        self.slack_calls = self._counter(SLACK_CALLS)
        self.outlet_calls = self._counter(OUTLET_CALLS)
        self.diagnoses = self._counter(DIAGNOSES)
        self.judgements = self._counter(JUDGEMENTS)
        self.signatures = self._counter(SIGNATURES)
        self.corrections = self._counter(CORRECTIONS)
        self.pictures = self._counter(PICTURES)
        self.latency = Histogram(LATENCY.name, LATENCY.help, buckets=_LATENCY_BUCKETS, registry=self.registry)

    def serve_gauges(self, source: GaugeSource) -> None:
        """Read {name: {labels: value}} from `source` at each scrape."""
        self.registry.register(_Gauges(source))

    def render(self, *, as_openmetrics: bool = False) -> bytes:
        """Return the text of /metrics: format 0.0.4, or OpenMetrics 1.0."""
        if as_openmetrics:
            return bytes(openmetrics.generate_latest(self.registry))  # type: ignore[no-untyped-call]
        return generate_latest(self.registry)

    def _counter(self, family: Family) -> Counter:
        return Counter(family.name, family.help, family.labels, registry=self.registry)


class _Gauges(Collector):
    def __init__(self, source: GaugeSource) -> None:
        self._source = source

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing at registration: the store must not be read then."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield one family per gauge that has a value, and one per counter that the database keeps."""
        by_name = {family.name: family for family in (*GAUGES, POLICY_ACTIONS)}
        for name, values in self._source().items():
            kind = CounterMetricFamily if by_name[name].type == "counter" else GaugeMetricFamily
            family_metric = kind(name, by_name[name].help, labels=by_name[name].labels)
            for key, value in values.items():
                labels = dict(key)
                family_metric.add_metric([labels[label] for label in by_name[name].labels], value)
            yield family_metric
