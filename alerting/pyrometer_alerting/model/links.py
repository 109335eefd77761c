"""Build the links in messages: http and https only, from configured bases or a rule's own runbook."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from urllib.parse import quote, urlencode, urlsplit

from pyrometer_alerting.model import text
from pyrometer_alerting.model.incident import Incident, part_of
from pyrometer_kit.promql import quoted

MAX_URL = 1000
BEFORE_SECONDS = 15 * 60  # a board opens with some healthy time before the trouble
AFTER_SECONDS = 10 * 60
# A path such as `docs/alerts.md#trainmfudropped`, as our rules have it; nothing that could leave the base.
_PROJECT_PATH = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:#[A-Za-z0-9_-]*)?")


def is_web_url(url: str) -> bool:
    """Return whether this is an absolute http(s) URL with a host and nothing that could end Slack's link markup."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(host) and not re.search(r"[\s<>|\"'`\\]", url)


def without_credentials(url: str) -> str:
    """Return the URL without its user name and password, fit to be shown."""
    before, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{before}{separator}{host.rpartition('@')[2]}{slash}{path}"


def runbook_url(runbook: str, base: str = "") -> str:
    """Return the runbook annotation as a link for mrkdwn: a web address unchanged, a project path below the base.

    Empty if it is neither.
    """
    url = text.clean(runbook)
    if is_web_url(base) and _PROJECT_PATH.fullmatch(url):
        url = f"{base.rstrip('/')}/{url}"
    return text.escape(url) if is_web_url(url) and len(url) <= MAX_URL else ""


def board_links(incident: Incident, grafana_url: str) -> list[tuple[str, str]]:
    """Return (name, URL for mrkdwn) of the boards that show this incident at its time."""
    if not is_web_url(grafana_url):
        return []
    labels = incident.newest().labels
    # Without its job the board would show the newest run of that name.
    run = {"cluster": incident.cluster, "run": incident.run} | ({"job_id": incident.job_id} if incident.job_id else {})
    boards = [
        ("Run", "pyrometer-training-run", run, bool(incident.run)),
        ("Node", "pyrometer-node", {"cluster": incident.cluster, "node": labels.get("node", "")}, "node" in labels),
        ("Fabric", "pyrometer-fabric", {"cluster": incident.cluster}, _is_fabric(incident)),
    ]
    for index, node in enumerate(_blamed_nodes(incident)[:2], start=1):
        if node != labels.get("node"):
            boards.append((f"Suspect {index}", "pyrometer-node", {"cluster": incident.cluster, "node": node}, True))
    boards.append(("Compare", "pyrometer-compare-runs", run, bool(incident.run)))
    links = [
        (name, _board(grafana_url, uid, variables, incident)) for name, uid, variables, applies in boards if applies
    ]
    return [(name, url) for name, url in links if len(url) <= MAX_URL]


def tracker_links(incident: Incident) -> list[tuple[str, str]]:
    """Return (name, URL for mrkdwn) of the run's pages in trackers; whatever a job wrote, only web addresses."""
    given = incident.diagnosis.run_links if incident.diagnosis is not None else ()
    names = {"wandb": "W&amp;B", "mlflow": "MLflow"}
    return [
        (names.get(name) or text.mrkdwn(name, 20), text.escape(url))
        for name, url in given
        if is_web_url(url) and len(url) <= MAX_URL
    ]


def alertmanager_link(incident: Incident, alertmanager_url: str) -> str:
    """Return a link to the incident's alerts in Alertmanager, where they can be silenced; empty without a base."""
    if not is_web_url(alertmanager_url):
        return ""
    name = text.clean(incident.alertname)[:200]
    matcher = quote(f"{{alertname={quoted(name)}}}", safe="")
    address = f"{alertmanager_url.rstrip('/')}/#/alerts?filter={matcher}"
    return text.escape(address) if len(address) <= MAX_URL else ""


def prometheus_link(incident: Incident, base: str) -> str:
    """Return a link to every batch of the incident's run around its start, in Prometheus; empty without a base."""
    if not is_web_url(base) or not incident.run:
        return ""
    names = {"cluster": incident.cluster, "run": incident.run}
    labels = ",".join(f"{name}={quoted(text.clean(value)[:200])}" for name, value in names.items())
    end = datetime.fromtimestamp((incident.resolved_at or incident.started_at) + AFTER_SECONDS, tz=timezone.utc)
    query = {
        "g0.expr": f"pyrometer_train_batch_mfu_ratio{{{labels}}}",
        "g0.tab": "graph",
        "g0.range_input": "30m",
        "g0.end_input": end.strftime("%Y-%m-%d %H:%M:%S"),
    }
    address = f"{base.rstrip('/')}/graph?{urlencode(query, quote_via=quote)}"
    return text.escape(address) if len(address) <= MAX_URL else ""


def _is_fabric(incident: Incident) -> bool:
    """Return whether a switch or a rail is meant: by the alert, the shared domain or the first cause."""
    causes = incident.diagnosis.causes[:1] if incident.diagnosis is not None else ()
    parts = [incident.domain, part_of(incident.newest().labels), *(cause.part for cause in causes)]
    return any(part.startswith(("switch ", "rail ")) for part in parts)


def _blamed_nodes(incident: Incident) -> list[str]:
    causes = incident.diagnosis.causes if incident.diagnosis is not None else ()
    return list(dict.fromkeys(cause.labels["node"] for cause in causes if cause.labels and "node" in cause.labels))


def _board(base: str, uid: str, variables: dict[str, str], incident: Incident) -> str:
    start = int((incident.began - BEFORE_SECONDS) * 1000)
    end = "now" if incident.resolved_at is None else int((incident.resolved_at + AFTER_SECONDS) * 1000)
    query = {f"var-{name}": text.clean(value)[:200] for name, value in variables.items()}
    address = f"{base.rstrip('/')}/d/{uid}?{urlencode({**query, 'from': start, 'to': end}, quote_via=quote)}"
    return text.escape(address)


LOGS_BEFORE_SECONDS = 300.0
LONGEST_NAME = 200


def log_links(incident: Incident, grafana_url: str, datasource: str) -> list[tuple[str, str]]:
    """Return (name, URL for mrkdwn) of the node's logs around the minute in which the trouble began.

    The labels are those that docs/dashboards.md asks for. Empty without a data source, and without a node.
    """
    node = _node(incident)
    if not datasource or not node or not is_web_url(grafana_url):
        return []
    links = []
    for name, source in (("Kernel log", "kernel"), ("Trainer log", "trainer")):
        labels = {"cluster": incident.cluster, "node": node, "source": source}
        query = ", ".join(f"{label}={quoted(text.clean(value)[:LONGEST_NAME])}" for label, value in labels.items())
        links.append((name, _explore(grafana_url, datasource, f"{{{query}}}", incident.began)))
    return [(name, url) for name, url in links if len(url) <= MAX_URL]


def _node(incident: Incident) -> str:
    """Return the node that is to blame, else the alert's own."""
    causes = incident.diagnosis.causes[:1] if incident.diagnosis is not None else ()
    blamed = [cause.labels["node"] for cause in causes if cause.labels and "node" in cause.labels]
    return blamed[0] if blamed else incident.newest().labels.get("node", "")


def _explore(grafana_url: str, datasource: str, query: str, began: float) -> str:
    pane = {
        "datasource": datasource,
        "queries": [{"refId": "A", "expr": query}],
        "range": {
            "from": str(int((began - LOGS_BEFORE_SECONDS) * 1000)),
            "to": str(int((began + AFTER_SECONDS) * 1000)),
        },
    }
    panes = json.dumps({"logs": pane}, separators=(",", ":"), ensure_ascii=False)
    query_string = urlencode({"schemaVersion": 1, "orgId": 1, "panes": panes}, quote_via=quote)
    return text.escape(f"{grafana_url.rstrip('/')}/explore?{query_string}")
