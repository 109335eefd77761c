"""A real Grafana with our boards, on a Prometheus that scrapes a simulated cluster for each planted fault."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from pyrometer_simulator.fleet.feed import Feed
from pyrometer_simulator.fleet.plan import Plan, single_faults
from pyrometer_simulator.http_server import HttpServer
from pyrometer_simulator.ports import free_port, serving
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.prometheus import running

NO_GRAFANA = "no Grafana: GRAFANA_HOME is the folder of a release, or PYROMETER_GRAFANA_URL the address of one"
RULES = Path(__file__).parents[2] / "alert_rules"
# The last of these alerts, of a pinned counter, fires after ten minutes; on a busy machine rules come late.
LONGEST_SECONDS = 780.0
# The alerts of the eight faults that have one of their own: they fire when boards show the rest of the fault as well.
_LAST_TO_FIRE = {
    "throttled-gpu": "GpuThrottledThermal", "flapping-rail": "NicLinkFlapping", "straggler": "TrainStraggler",
    "lost-gpu": "GpuLost", "memory-error": "GpuEccUncorrected", "out-of-memory": "HostOutOfMemory",
    "narrow-link": "NicLinkDegraded", "pinned-counter": "NicCounterSaturated",
}  # fmt: skip
# Nothing leaves the machine, and nobody logs in.
_QUIET = {
    "GF_AUTH_ANONYMOUS_ENABLED": "true", "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer", "GF_LOG_LEVEL": "error",
    "GF_ANALYTICS_REPORTING_ENABLED": "false", "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
    "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false", "GF_PLUGINS_PREINSTALL_DISABLED": "true",
    "GF_PLUGINS_PUBLIC_KEY_RETRIEVAL_DISABLED": "true", "GF_NEWS_NEWS_FEED_ENABLED": "false",
    "GF_SECURITY_DISABLE_GRAVATAR": "true", "GF_PLUGINS_PLUGIN_ADMIN_ENABLED": "false",
    "GF_SERVER_HTTP_ADDR": "127.0.0.1",
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
    threading.Thread(target=feed.serve_forever, daemon=True).start()
    flags = [f"--config.file={_scraping(folder, feed.server_port)}", f"--storage.tsdb.path={folder}/data"]
    with (
        running(find_stack().prometheus, lambda _: flags, folder / "prometheus.log") as prometheus,
        _grafana(home, folder, _provisioned(folder, boards, prometheus)) as url,
    ):
        _wait_for_alerts(prometheus)
        yield url
    feed.shutdown()
    feed.server_close()


def _scraping(folder: Path, feed: int) -> Path:
    targets = {"honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{feed}"]}]}
    jobs = [{"job_name": "feed", **targets}, {"job_name": "batches", "metrics_path": "/batches", **targets}]
    timing = {"scrape_interval": "5s", "evaluation_interval": "5s"}
    whole: dict[str, Any] = {"global": timing, "rule_files": [f"{RULES}/*.rules.yaml"], "scrape_configs": jobs}
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(whole))
    return path


def _provisioned(folder: Path, boards: Mapping[str, str], prometheus: str) -> Path:
    source = {"name": "Prometheus", "uid": "prometheus", "type": "prometheus", "access": "proxy", "isDefault": True}
    source |= {"url": prometheus, "jsonData": {"httpMethod": "POST", "timeInterval": "5s"}}
    provider = {"name": "pyrometer", "type": "file", "options": {"path": str(folder / "boards")}}
    root = folder / "provisioning"
    for kind, content in (("datasources", {"datasources": [source]}), ("dashboards", {"providers": [provider]})):
        (root / kind).mkdir(parents=True)
        (root / kind / "pyrometer.yaml").write_text(yaml.safe_dump({"apiVersion": 1, **content}))
    for empty in ("plugins", "alerting"):
        (root / empty).mkdir()
    (folder / "boards").mkdir()
    for name, text in boards.items():
        (folder / "boards" / name).write_text(text, encoding="utf-8")
    return root


@contextlib.contextmanager
def _grafana(home: Path, folder: Path, provisioning: Path) -> Iterator[str]:
    def start(port: int) -> subprocess.Popen[bytes]:
        own = {"GF_SERVER_HTTP_PORT": str(port), "GF_GRPC_SERVER_ADDRESS": f"127.0.0.1:{free_port()}",
               "GF_PATHS_DATA": f"{folder}/grafana", "GF_PATHS_LOGS": f"{folder}/grafana/log",
               "GF_PATHS_PROVISIONING": str(provisioning)}  # fmt: skip
        command = [str(home / "bin" / "grafana"), "server", "--homepath", str(home)]
        with (folder / "grafana.log").open("ab") as output:
            return subprocess.Popen(
                command, env={**os.environ, **_QUIET, **own}, cwd=home, stdout=output, stderr=output
            )

    # Its first start migrates a new database.
    process, port = serving(start, "/api/health", seconds=120)
    with process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_for_alerts(prometheus: str) -> None:
    """Return once all of these alerts fire, or after LONGEST_SECONDS: then the boards say what is missing."""
    waiting, deadline = dict(_LAST_TO_FIRE), time.monotonic() + LONGEST_SECONDS
    asked = urllib.parse.urlencode({"query": 'count by (cluster, alertname) (ALERTS{alertstate="firing"})'})
    while waiting and time.monotonic() < deadline:
        time.sleep(2)
        with urllib.request.urlopen(f"{prometheus}/api/v1/query?{asked}", timeout=30) as answer:  # noqa: S310
            rows = yaml.safe_load(answer)["data"]["result"]
        fires = {(row["metric"].get("cluster"), row["metric"]["alertname"]) for row in rows}
        waiting = {cluster: alert for cluster, alert in waiting.items() if (cluster, alert) not in fires}
