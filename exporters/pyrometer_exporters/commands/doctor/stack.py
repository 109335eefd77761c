"""Ask a Prometheus, an Alertmanager, a Grafana and the alerting service whether everything of Pyrometer arrives.

For those who add Pyrometer to what they run already: each part is asked on its own, and what is missing comes with the
next step.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from pyrometer_kit.errors import HttpError
from pyrometer_kit.finding import Finding
from pyrometer_kit.http_client import get, get_json
from pyrometer_kit.prometheus import PrometheusError, answer

# As many names as fit into a line.
SHOWN = 5
# The Watchdog is sent each minute; two may be lost to a restart.
HEARTBEAT_SECONDS = 180.0
SETUP = "docs/howto/existing-stack.md"
OUR_GROUPS, OUR_TAG = "pyrometer_", "pyrometer"
HEARTBEAT = "pyrometer_alerting_watchdog_last_seen_timestamp_seconds"


class Stack(NamedTuple):
    """The addresses to ask, and the names that the site gave our jobs; an empty address is not asked.

    Attributes:
        prometheus: or anything with its API.
        alertmanager: its own address, not that of the alerting service.
        grafana: with a user and a password in the address, or with ``grafana_token``.
        grafana_token: of a service account that may view.
        alerting: the alerting service.
        node_job: our exporters' job; ``batches_job`` has the same targets with the path /batches.
    """

    prometheus: str
    alertmanager: str = ""
    grafana: str = ""
    grafana_token: str = ""
    alerting: str = ""
    node_job: str = "node"
    batches_job: str = "batches"


def check(stack: Stack, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Yield what each part says, in the order in which an alert travels; a part that fails hides no other."""
    yield from _asked(lambda: _prometheus(stack), "Prometheus")
    for name, url, flag, ask in (
        ("Alertmanager", stack.alertmanager, "--alertmanager.url", lambda: _alertmanager(stack.alertmanager)),
        ("alerting service", stack.alerting, "--alerting.url", lambda: _alerting(stack.alerting, now())),
        ("Grafana", stack.grafana, "--grafana.url", lambda: _grafana(stack)),
    ):
        if url:
            yield from _asked(ask, name)
        else:
            yield Finding("note", f"{name}: not asked", f"give {flag}")


def _asked(ask: Callable[[], Iterator[Finding]], name: str) -> Iterator[Finding]:
    try:
        yield from ask()
    except HttpError as error:
        yield Finding("missing", f"{name}: {error}", _access(error.status))
    except PrometheusError as error:
        yield Finding("missing", f"{name}: {error}")
    except (KeyError, TypeError, AttributeError, ValueError, IndexError):
        yield Finding("missing", f"{name}: an unexpected answer", "is it another program?")


def _access(status: int) -> str:
    return "put user and password into the address, or pass a token" if status in (401, 403) else ""


def _prometheus(stack: Stack) -> Iterator[Finding]:
    version = get_json(stack.prometheus, "/api/v1/status/buildinfo")["data"]["version"]
    yield Finding("ok", f"Prometheus {version} answers")
    jobs = {labels.get("job", ""): count for labels, count in _query(stack.prometheus, "count by (job) (up)")}
    rewrite = f"rename yours, or write rules and boards for your names (pyrometer-dashboards rules --job-node; {SETUP})"
    for job, use in ((stack.node_job, "rewrite"), (stack.batches_job, "")):
        if job in jobs:
            yield from _targets(stack.prometheus, job, int(jobs[job]))
        else:
            job_names = ", ".join(sorted(filter(None, jobs))[:SHOWN]) or "none at all"
            how = rewrite if use else "scrape the same targets a second time with metrics_path /batches"
            yield Finding("missing", f"Prometheus has no target of job {job} (it has {job_names})", how)
    yield from _rules(stack.prometheus)
    yield from _sending(stack.prometheus)


def _targets(url: str, job: str, count: int) -> Iterator[Finding]:
    down = [labels.get("instance", "?") for labels, _ in _query(url, f'up{{job="{job}"}} == 0')]
    if down:
        what = f"job {job}: {len(down)} of {count} targets are down ({_some(down)})"
        yield Finding("missing", what, "Prometheus' page Status > Targets has the error of each target")
    else:
        yield Finding("ok", f"job {job}: {count} targets answer")
    for label in ("cluster", "node"):
        without = [labels.get("instance", "?") for labels, _ in _query(url, f'up{{job="{job}", {label}=""}}')]
        if without:
            what = f"job {job}: {len(without)} of {count} targets have no label {label} ({_some(without)})"
            yield Finding("missing", what, f"set it in the targets' file or by relabelling: {SETUP}")


def _rules(url: str) -> Iterator[Finding]:
    groups = get_json(url, "/api/v1/rules")["data"]["groups"]
    ours = [group for group in groups if str(group["name"]).startswith(OUR_GROUPS)]
    rules = [rule for group in ours for rule in group["rules"]]
    if not rules:
        yield Finding(
            "missing", "Prometheus has none of our rules", f"add alert_rules/*.rules.yaml to rule_files: {SETUP}"
        )
        return
    failing = [f"{rule['name']}: {rule.get('lastError', '')}" for rule in rules if rule.get("health") == "err"]
    if failing:
        what = f"{len(failing)} of {len(rules)} rules fail ({_some(failing)})"
        yield Finding("missing", what, "fix each one by its error")
    slow = [group["name"] for group in ours if group.get("evaluationTime", 0) > group.get("interval", 0) > 0]
    if slow:
        what = f"{len(slow)} groups of rules take longer than their interval ({_some(slow)})"
        yield Finding("missing", what, "give Prometheus more CPU, or evaluate less often: docs/sizing.md")
    if not failing and not slow:
        yield Finding("ok", f"{len(rules)} rules in {len(ours)} groups are evaluated")


def _sending(url: str) -> Iterator[Finding]:
    if not _query(url, 'ALERTS{alertname="Watchdog", alertstate="firing"}'):
        yield Finding("missing", "the heartbeat Watchdog does not fire", "load alert_rules/stack.rules.yaml too")
    active = get_json(url, "/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
    if active:
        yield Finding("ok", f"Prometheus sends alerts to {_some([str(receiver['url']) for receiver in active])}")
    else:
        yield Finding(
            "missing", "Prometheus sends alerts nowhere", "add your Alertmanager under alerting: alertmanagers"
        )


def _alertmanager(url: str) -> Iterator[Finding]:
    status = get_json(url, "/api/v2/status")
    yield Finding("ok", f"Alertmanager {status['versionInfo']['version']} answers")
    watchdogs = get_json(url, f"/api/v2/alerts?filter={quote('alertname=Watchdog')}")
    if not watchdogs:
        yield Finding("missing", "Alertmanager has no Watchdog alert from Prometheus", "compare the addresses")
        return
    receivers = sorted({str(receiver["name"]) for alert in watchdogs for receiver in alert["receivers"]})
    configuration = str(status["config"]["original"])
    if "url_file" not in configuration and "/api/v1/alertmanager" not in configuration:
        what = f"Alertmanager routes Watchdog to {_some(receivers)}, and no receiver has the service's address"
        yield Finding("missing", what, f"add the receiver with the path /api/v1/alertmanager: {SETUP}")
    else:
        yield Finding("ok", f"Alertmanager has the Watchdog alert, for {_some(receivers)}")


def _alerting(url: str, now: float) -> Iterator[Finding]:
    get(url, "/-/ready")
    values = _samples(get(url, "/metrics").decode("utf-8", "replace"))
    seen = values.get(HEARTBEAT)
    if seen is None:
        do = "send Watchdog to it each minute, as compose/alertmanager/alertmanager.yaml does"
        yield Finding("missing", "the alerting service is ready, but no Watchdog alert has ever arrived", do)
    elif now - seen > HEARTBEAT_SECONDS:
        yield Finding("missing", f"the last Watchdog reached the alerting service {now - seen:.0f} s ago",
                      "look at Alertmanager's log")  # fmt: skip
    else:
        yield Finding("ok", f"the alerting service is ready, and Watchdog arrived {now - seen:.0f} s ago")


def _grafana(stack: Stack) -> Iterator[Finding]:
    version = get_json(stack.grafana, "/api/health").get("version", "")
    yield Finding("ok", f"Grafana {version} answers".replace("  ", " "))
    boards = get_json(stack.grafana, f"/api/search?type=dash-db&limit=500&tag={OUR_TAG}", token=stack.grafana_token)
    uids = {str(board["uid"]) for board in boards}
    if "pyrometer-overview" in uids:
        yield Finding("ok", f"Grafana has {len(uids)} of our boards")
    else:
        yield Finding("missing", "Grafana has none of our boards, or this account can't see them",
                      f"provision or import dashboards/json/: {SETUP}")  # fmt: skip


def _query(url: str, query: str) -> list[tuple[Mapping[str, str], float]]:
    document = answer(get(url, f"/api/v1/query?query={quote(query)}"))
    return [(series.labels, series.points[-1][1]) for series in document]


def _samples(text: str) -> dict[str, float]:
    """Return the samples without labels of a page of metrics."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415  where a service is asked

    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {sample.name: sample.value for sample in samples if not sample.labels}


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(sorted(names)[:SHOWN]) + more


def as_json(findings: list[Finding]) -> str:
    """Return the findings as one JSON document."""
    document: Any = {"findings": [finding._asdict() for finding in findings]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
