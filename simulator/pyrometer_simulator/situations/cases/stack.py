"""Situations of the monitoring itself: Prometheus, Alertmanager and the alerting service."""

from __future__ import annotations

from pyrometer_simulator.situations.host import HOST
from pyrometer_simulator.situations.model import MINUTE, Situation, Step, Within, at, within
from pyrometer_simulator.situations.services import (
    BY,
    LEADER,
    MEBIBYTE,
    OUTLET,
    REFUSED,
    RULES,
    SHARED,
    TO,
    alerting,
    alertmanager,
    prometheus,
    service,
)

# Each service has run for two minutes when something happens to it.
FAULT = 120


def _played(name: str, step: Step, **fires: Within) -> Situation:
    return Situation(name, steps=(step,), lasts=15 * MINUTE, hardware=HOST, fires=fires, fault_at=FAULT)


SITUATIONS = [
    _played("Prometheus is restarted", at(1, service(prometheus, "restart", 20.0, at=FAULT))),
    _played(
        "a twentieth of Prometheus' notifications is lost while Alertmanager is restarted",
        at(1, service(prometheus, "rise", f"prometheus_notifications_errors_total{TO}", 0.025, at=FAULT)),
    ),
    _played(
        "Slack limits the alerting service's rate for a minute",
        at(1, service(alerting, "set", "pyrometer_alerting_outbox_oldest_age_seconds", 60, at=FAULT)),
    ),
    _played(
        "Prometheus leaves evaluations of a group of rules out",
        at(1, service(prometheus, "rise", f"prometheus_rule_group_iterations_missed_total{RULES}", 0.1, at=FAULT)),
        PrometheusRulesMissed=within(240, series=1),
    ),
    _played(
        "rules fail to evaluate",
        at(1, service(prometheus, "rise", f"prometheus_rule_evaluation_failures_total{RULES}", 0.2, at=FAULT)),
        PrometheusRulesMissed=within(240, series=1),
    ),
    _played(
        "Prometheus can't reach Alertmanager",
        at(1, service(prometheus, "rise", f"prometheus_notifications_errors_total{TO}", 0.5, at=FAULT)),
        NotificationsFailing=within(480, series=1),
    ),
    _played(
        "Alertmanager can't reach the alerting service",
        at(1, service(alertmanager, "rise", f"alertmanager_notifications_failed_total{BY}", 0.2, at=FAULT)),
        NotificationsFailing=within(480, series=1),
    ),
    _played(
        "a group of rules takes nearly its whole interval",
        at(1, service(prometheus, "set", f"prometheus_rule_group_last_duration_seconds{RULES}", 4.6, at=FAULT)),
        PrometheusNearLimits=within(420, series=1),
    ),
    _played(
        "Prometheus' memory nears its limit",
        at(1, service(prometheus, "set", "process_resident_memory_bytes", 7600 * MEBIBYTE, at=FAULT)),
        PrometheusNearLimits=within(420, series=1),
    ),
    _played(
        "messages wait for Slack for minutes",
        at(1, service(alerting, "set", "pyrometer_alerting_outbox_oldest_age_seconds", 180, at=FAULT)),
        AlertingNotDelivering=within(60, series=1),
    ),
    _played(
        "a message is refused for good",
        at(1, service(alerting, "set", REFUSED, 1, at=FAULT)),
        AlertingGaveUp=within(60, series=1),
    ),
    _played(
        "the leader of two alerting services is killed, the other leads ten seconds later",
        at(1, service(alerting, "become", SHARED, 10.0, f'{LEADER}{{storage="sqlite"}}', at=FAULT)),
    ),
    _played(
        "neither of two alerting services leads: PostgreSQL is away",
        at(1, service(alerting, "become", SHARED, 3600.0, f'{LEADER}{{storage="sqlite"}}', at=FAULT)),
        AlertingNoLeader=within(150, series=1),
    ),
    _played(
        "a pager takes no notices for minutes, the mailbox beside it does",
        at(1, service(alerting, "set", f'{OUTLET}{{outlet="oncall"}}', 400, at=FAULT)),
        OutletNotDelivering=within(60, series=1),
    ),
    _played(
        "greylisting delays an e-mail for four minutes",
        at(1, service(alerting, "set", f'{OUTLET}{{outlet="night-shift"}}', 240, at=FAULT)),
    ),
    _played(
        "the policy gets no answer from its scheduler",
        at(1, service(alerting, "rise", "pyrometer_policy_last_look_timestamp_seconds", 0.0, at=FAULT)),
        PolicyNotLooking=within(360, series=1),
    ),
    _played(
        "a changed configuration of Alertmanager can't be read",
        at(1, service(alertmanager, "set", "alertmanager_config_last_reload_successful", 0, at=FAULT)),
        ReloadFailed=within(660, series=1),
    ),
]
