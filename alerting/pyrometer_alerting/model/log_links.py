"""Links from an incident to its logs in Loki, by Grafana's Explore: the kernel's of its node, the trainer's of its run.

An address, with its state decoded: ``GRAFANA/explore?schemaVersion=1&orgId=1&panes={"logs": {"datasource": "loki",
"queries": [{"refId": "A", "expr": "{host=\\"gpu-042\\"}"}], "range": {"from": "1795299700000", "to": "1795300900000"}}}``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from pyrometer_alerting.model import text
from pyrometer_alerting.model.incident import Incident
from pyrometer_alerting.model.links import MAX_URL, is_web_url

# Labels as Grafana Alloy and Promtail give them to the journal and to Slurm's output: docs/howto/logs.md.
LOKI_KERNEL = '{host="{node}", transport="kernel"}'
LOKI_TRAINER = '{run="{run}"}'
BEFORE_SECONDS, AFTER_SECONDS = 300.0, 600.0
LONGEST_NAME = 200


@dataclass(frozen=True)
class Loki:
    """Where logs are: Grafana's address (empty: nowhere), the data source's uid, and a query for each kind of log."""

    url: str = ""
    datasource: str = "loki"
    kernel: str = LOKI_KERNEL
    trainer: str = LOKI_TRAINER


def log_links(incident: Incident, loki: Loki) -> list[tuple[str, str]]:
    """Return (name, URL for mrkdwn) of the logs around the minute in which the trouble began."""
    if not is_web_url(loki.url):
        return []
    node, run = _node(incident), incident.run
    wanted = [
        ("Kernel log", loki.kernel.replace("{node}", _quoted(node)) if node else ""),
        ("Trainer log", loki.trainer.replace("{run}", _quoted(run)) if run else ""),
    ]
    links = [(name, _explore(loki, query, _began(incident))) for name, query in wanted if query]
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
    """Return a label's value inside the quotes of LogQL, so that no name ends them."""
    return json.dumps(text.clean(value)[:LONGEST_NAME], ensure_ascii=False)[1:-1]


def _explore(loki: Loki, query: str, began: float) -> str:
    pane = {
        "datasource": loki.datasource,
        "queries": [{"refId": "A", "expr": query}],
        "range": {
            "from": str(int((began - BEFORE_SECONDS) * 1000)),
            "to": str(int((began + AFTER_SECONDS) * 1000)),
        },
    }
    panes = json.dumps({"logs": pane}, separators=(",", ":"), ensure_ascii=False)
    query_string = urlencode({"schemaVersion": 1, "orgId": 1, "panes": panes}, quote_via=quote)
    return text.escape(f"{loki.url.rstrip('/')}/explore?{query_string}")
