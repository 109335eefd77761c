r"""Links from an incident to the logs of its node in Loki, by Grafana's Explore: the kernel's and the trainer's.

An address, decoded: ``GRAFANA/explore?schemaVersion=1&orgId=1&panes={"logs": {"datasource": "loki",
"queries": [{"refId": "A", "expr": "{node=\"gpu-042\"}"}], "range": {"from": "1795299700000"}}}``.
"""

from __future__ import annotations

import json
from urllib.parse import quote, urlencode

from pyrometer_alerting.model import text
from pyrometer_alerting.model.incident import Incident
from pyrometer_alerting.model.links import MAX_URL, is_web_url

BEFORE_SECONDS, AFTER_SECONDS = 300.0, 600.0
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
        query = ", ".join(f"{label}={_quoted(value)}" for label, value in labels.items())
        links.append((name, _explore(grafana_url, datasource, f"{{{query}}}", _began(incident))))
    return [(name, url) for name, url in links if len(url) <= MAX_URL]


def _node(incident: Incident) -> str:
    """Return the node that is to blame, else the alert's own."""
    causes = incident.diagnosis.causes[:1] if incident.diagnosis is not None else ()
    blamed = [cause.labels["node"] for cause in causes if cause.labels and "node" in cause.labels]
    return blamed[0] if blamed else incident.newest().labels.get("node", "")


def _began(incident: Incident) -> float:
    onset = incident.diagnosis.onset if incident.diagnosis is not None else None
    return min(incident.started_at, onset) if onset is not None else incident.started_at


def _quoted(value: str) -> str:
    """Return a label's value in quotes of LogQL, which no name can end."""
    return json.dumps(text.clean(value)[:LONGEST_NAME], ensure_ascii=False)


def _explore(grafana_url: str, datasource: str, query: str, began: float) -> str:
    pane = {
        "datasource": datasource,
        "queries": [{"refId": "A", "expr": query}],
        "range": {
            "from": str(int((began - BEFORE_SECONDS) * 1000)),
            "to": str(int((began + AFTER_SECONDS) * 1000)),
        },
    }
    panes = json.dumps({"logs": pane}, separators=(",", ":"), ensure_ascii=False)
    query_string = urlencode({"schemaVersion": 1, "orgId": 1, "panes": panes}, quote_via=quote)
    return text.escape(f"{grafana_url.rstrip('/')}/explore?{query_string}")
