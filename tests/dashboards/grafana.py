"""A real Grafana with our boards, on a Prometheus that scrapes a simulated cluster for each planted fault."""

from __future__ import annotations

import contextlib
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from pyrometer_kit.http_client import get_json
from pyrometer_simulator.demo import grafana
from pyrometer_simulator.fleet.feed import Feed
from pyrometer_simulator.fleet.plan import Plan, single_faults
from pyrometer_simulator.http_server import HttpServer
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.prometheus import running

NO_GRAFANA = "no Grafana: GRAFANA_HOME is the folder of a release, or PYROMETER_GRAFANA_URL the address of one"
ROOT = Path(__file__).parents[2]
# The last of these alerts, of a pinned counter, fires after ten minutes; on a busy machine rules come late.
LONGEST_SECONDS = 780.0
# The alerts of the eight faults that have one of their own: they fire when boards show the rest of the fault as well.
_LAST_TO_FIRE = {
    "throttled-gpu": "GpuThrottledThermal", "flapping-rail": "NicLinkFlapping", "straggler": "TrainStraggler",
    "lost-gpu": "GpuLost", "memory-error": "GpuEccUncorrected", "out-of-memory": "HostOutOfMemory",
    "narrow-link": "NicLinkDegraded", "pinned-counter": "NicCounterSaturated",
}  # fmt: skip


@contextlib.contextmanager
def grafana_of_faults(home: Path, folder: Path, boards: Mapping[str, str], nodes: int) -> Iterator[str]:
    """Yield the address of a Grafana once the alerts of the faults fire.

    Args:
        home: Grafana's folder.
        folder: for data and configuration.
        boards: JSON text by file name.
        nodes: how many each cluster has.
    """
    clusters = single_faults(nodes, time.time() + 20)
    feed = HttpServer(Feed(*(Plan(nodes, cluster=name, faults=each) for name, each in clusters.items())).respond)
    feed.start()
    flags = [f"--config.file={_scraping(folder, feed.server_port)}", f"--storage.tsdb.path={folder}/data"]
    with (
        running(find_stack().prometheus, lambda _: flags, folder / "prometheus.log") as prometheus,
        grafana.running(_installed(home, folder / "boards", boards), ROOT, folder, prometheus) as url,
    ):
        _wait_for_alerts(prometheus)
        yield url
    feed.stop()


def _scraping(folder: Path, feed: int) -> Path:
    targets = {"honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{feed}"]}]}
    jobs = [{"job_name": "feed", **targets}, {"job_name": "batches", "metrics_path": "/batches", **targets}]
    timing = {"scrape_interval": "5s", "evaluation_interval": "5s"}
    rules = f"{ROOT}/alert_rules/*.rules.yaml"
    whole: dict[str, Any] = {"global": timing, "rule_files": [rules], "scrape_configs": jobs}
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(whole))
    return path


def _installed(home: Path, folder: Path, boards: Mapping[str, str]) -> grafana.Installed:
    """Return the Grafana of a folder, with these boards."""
    folder.mkdir()
    for name, text in boards.items():
        (folder / name).write_text(text, encoding="utf-8")
    found = grafana.find(ROOT, {"GRAFANA_HOME": str(home)})
    assert isinstance(found, grafana.Installed)
    return replace(found, boards=folder)


def _wait_for_alerts(prometheus: str) -> None:
    """Return once all of these alerts fire, or after LONGEST_SECONDS: then the boards say what is missing."""
    waiting, deadline = dict(_LAST_TO_FIRE), time.monotonic() + LONGEST_SECONDS
    asked = urllib.parse.urlencode({"query": 'count by (cluster, alertname) (ALERTS{alertstate="firing"})'})
    while waiting and time.monotonic() < deadline:
        time.sleep(2)
        rows = get_json(f"{prometheus}/api/v1/query?{asked}")["data"]["result"]
        fires = {(row["metric"].get("cluster"), row["metric"]["alertname"]) for row in rows}
        waiting = {cluster: alert for cluster, alert in waiting.items() if (cluster, alert) not in fires}
