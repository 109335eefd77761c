"""Ask a Prometheus, an Alertmanager, a Grafana and the alerting service whether everything of Pyrometer arrives.

For those who add Pyrometer to what they run already: each part is asked on its own, and what is missing comes with the
next step.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from pyrometer_exporters.commands.doctor import stack_alertmanager as routing
from pyrometer_exporters.commands.doctor import stack_rules
from pyrometer_exporters.commands.doctor.stack_asking import some, values
from pyrometer_exporters.commands.doctor.stack_scrapes import batches, down, interval, latency, scrapes
from pyrometer_kit.errors import HttpError
from pyrometer_kit.finding import Finding
from pyrometer_kit.http_client import get, get_json
from pyrometer_kit.prometheus import PrometheusError

# The Watchdog is sent each minute; two may be lost to a restart.
HEARTBEAT_SECONDS = 180.0
SETUP = "docs/howto/existing-stack.md"
OUR_TAG = "pyrometer"
# The version that VictoriaMetrics names as its own (its app/vmselect).
VICTORIA = "2.24.0"
# Mimir and VictoriaMetrics have no such page: 404, 400.
ELSEWHERE = (400, 404)
OTHER_JOBS = {"cluster": "cluster", "host": "host", "alerting": "alerting"}
# Each of them is for this.
USES = {"cluster": "queue, fabric, goodput", "host": "disks and pressure", "alerting": "incidents on boards"}
HEARTBEAT = "pyrometer_alerting_watchdog_last_seen_timestamp_seconds"


class Stack(NamedTuple):
    """The addresses to ask, and the names that the site gave our jobs; an empty address is not asked.

    Attributes:
        prometheus: or anything with its API.
        rules: what evaluates the rules, where that is another program: vmalert.
        alertmanager: its own address, not that of the alerting service.
        grafana: with a user and a password in the address, or with ``grafana_token``.
        grafana_token: of a service account that may view.
        alerting: the alerting service.
        node_job: our exporters' job; ``batches_job`` has the same targets with the path /batches.
        other_jobs: those that not everybody has, by our names: ``cluster``, ``host``, ``alerting``.
    """

    prometheus: str
    alertmanager: str = ""
    grafana: str = ""
    grafana_token: str = ""
    alerting: str = ""
    node_job: str = "node"
    batches_job: str = "batches"
    rules: str = ""
    other_jobs: Mapping[str, str] = OTHER_JOBS


def check(stack: Stack, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Yield what each part says, in the order in which an alert travels; a part that fails hides no other."""
    yield from _asked(lambda: _prometheus(stack), "Prometheus")
    for name, url, flag, ask in (
        ("Alertmanager", stack.alertmanager, "--alertmanager.url", lambda: routing.findings(stack.alertmanager)),
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
    build = get_json(stack.prometheus, "/api/v1/status/buildinfo")["data"]
    # VictoriaMetrics names a version of Prometheus that Grafana knows, and nothing else.
    victoria = set(build) == {"version"} and build["version"] == VICTORIA
    name = "VictoriaMetrics" if victoria else f"{build.get('application') or 'Prometheus'} {build['version']}"
    yield Finding("ok", f"{name} answers")
    jobs = {labels.get("job", ""): count for labels, count in values(stack.prometheus, "count by (job) (up)")}
    rewrite = f"rename yours, or write rules and boards for your names (pyrometer-dashboards rules --job-node; {SETUP})"
    scraped: float | None = None
    for job, use in ((stack.node_job, "rewrite"), (stack.batches_job, "")):
        if job in jobs:
            yield from down(stack.prometheus, job, int(jobs[job]))
            measured = interval(stack.prometheus, job)
            scraped = measured if job == stack.node_job else scraped
            yield from scrapes(job, measured)
        else:
            how = rewrite if use else "scrape the same targets a second time with metrics_path /batches"
            what = f"Prometheus has no target of job {job} (it has {some(filter(None, jobs)) or 'none at all'})"
            yield Finding("missing", what, how)
    absent = []
    for job, name in stack.other_jobs.items():
        if name in jobs:
            yield from down(stack.prometheus, name, int(jobs[name]), () if job == "alerting" else ("cluster",))
        else:
            absent.append(f"{name}: {USES[job]}")
    if absent:
        yield Finding("note", f"jobs without a target, and what is absent without them: {'; '.join(absent)}", SETUP)
    yield from batches(stack.prometheus)
    if victoria:
        yield from latency(stack.prometheus)
    yield from _rules(stack, scraped, victoria=victoria)
    if stack.rules:
        return
    yield from _sending(stack.prometheus)


def _rules(stack: Stack, scraped: float | None, *, victoria: bool) -> Iterator[Finding]:
    ours = stack_rules.groups(stack.rules or stack.prometheus)
    if ours:
        yield from stack_rules.findings(ours, scraped)
    elif victoria and not stack.rules:
        yield Finding(
            "note", "rules: not asked, as VictoriaMetrics evaluates none", "give --rules.url, vmalert's address"
        )
    else:
        what = f"{'the server of --rules.url' if stack.rules else 'Prometheus'} has none of our rules"
        yield Finding("missing", what, f"add alert_rules/*.rules.yaml to rule_files: {SETUP}")


def _sending(url: str) -> Iterator[Finding]:
    try:
        active = get_json(url, "/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
    except HttpError as error:
        if error.status not in ELSEWHERE:
            raise
        yield Finding(
            "note", "where alerts are sent: not told by this server", "whatever evaluates the rules sends them"
        )
        return
    if active:
        yield Finding("ok", f"Prometheus sends alerts to {some(str(receiver['url']) for receiver in active)}")
    else:
        yield Finding(
            "missing", "Prometheus sends alerts nowhere", "add your Alertmanager under alerting: alertmanagers"
        )


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


def _samples(text: str) -> dict[str, float]:
    """Return the samples without labels of a page of metrics."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415  where a service is asked

    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {sample.name: sample.value for sample in samples if not sample.labels}


def as_json(findings: list[Finding]) -> str:
    """Return the findings as one JSON document."""
    document: Any = {"findings": [finding._asdict() for finding in findings]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
