"""Prometheus or VictoriaMetrics with the project's configuration, scraping the recorded cluster of bench_scale.py.

VictoriaMetrics is vmagent, VictoriaMetrics and vmalert, from PATH or the cache of `make test-compose`.
"""

from __future__ import annotations

import json
import shutil
import urllib.parse
from pathlib import Path

from recorded_cluster import CLUSTER

from pyrometer_kit.http_client import get, get_json
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.http_call import call
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.cache import cache_folder

# Metrics of vmalert about the evaluations of a rule group.
MEAN = (
    "sum by (group) (rate(vmalert_iteration_duration_seconds_sum[2m]))"
    " / (sum by (group) (rate(vmalert_iteration_duration_seconds_count[2m])) > 0)"
)


class Store:
    """A store that scrapes and answers queries; ``pids`` by program name."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder, self.processes = folder, processes
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.pids: dict[str, int] = {}

    def start(self, name: str, command: list[str]) -> None:
        self.pids[name] = self.processes.start(name, command, cwd=self.folder, env={"PYROMETER_CLUSTER": CLUSTER}).pid

    def value(self, query: str) -> float:
        found = get_json(f"{self.url}/api/v1/query?query={urllib.parse.quote(query)}", seconds=60)["data"]["result"]
        return float(found[0]["value"][1]) if found else float("nan")


def prometheus(store: Store, _interval: int) -> dict[str, str]:
    command = [
        str(find_stack().prometheus), "--config.file=prometheus.yaml", "--storage.tsdb.path=data",
        f"--web.listen-address=127.0.0.1:{store.port}", "--web.enable-admin-api", "--web.enable-lifecycle",
        "--storage.tsdb.retention.time=60d",
    ]  # fmt: skip
    store.start("prometheus", command)
    own = [{"targets": [f"127.0.0.1:{store.port}"]}]
    (store.folder / "targets/prometheus.yaml").write_text(json.dumps(own))
    store.processes.wait_until_ready({"prometheus": f"{store.url}/-/ready"})
    return {
        "series": "prometheus_tsdb_head_series",
        "samples/s": "rate(prometheus_tsdb_head_samples_appended_total[1m])",
        "slowest rule group, s": "max(prometheus_rule_group_last_duration_seconds)",
        "all rule groups, s": "sum(prometheus_rule_group_last_duration_seconds)",
        "missed rule evaluations": "sum(prometheus_rule_group_iterations_missed_total)",
        "slowest scrape, s": 'max(scrape_duration_seconds{job="node"})',
    }


def victoria(store: Store, interval: int) -> dict[str, str]:
    def start(name: str, port: int, flags: str) -> None:
        program = shutil.which(name) or str(cache_folder() / "victoria-metrics/usr/bin" / name)
        store.start(name, [program, f"-httpListenAddr=127.0.0.1:{port}", *flags.split()])

    ports = {name: free_port() for name in ("vmagent", "vmalert")}
    query = "-search.latencyOffset=0s -search.maxStalenessInterval=5m"
    start("victoria-metrics", store.port, f"-storageDataPath=data {query}")
    store.processes.wait_until_ready({"victoria-metrics": f"{store.url}/health"})
    own = [{"targets": [f"127.0.0.1:{port}" for port in (store.port, *ports.values())]}]
    (store.folder / "targets/victoria.yaml").write_text(json.dumps(own))
    write = f"-remoteWrite.url={store.url}"
    start(
        "vmagent",
        ports["vmagent"],
        f"-promscrape.config=scrape.yaml {write}/api/v1/write -remoteWrite.tmpDataPath=agent",
    )
    rules = f"-rule=rules/*.rules.yaml -datasource.url={store.url} -notifier.blackhole"
    start("vmalert", ports["vmalert"], f"{rules} {write} -evaluationInterval={interval}s -rule.evalDelay=0s")
    return {
        "series": 'max(vm_cache_entries{type="storage/hour_metric_ids"})',
        "samples/s": "sum(rate(vm_rows_inserted_total[1m]))",
        "slowest rule group, s": f"max({MEAN})",
        "all rule groups, s": f"sum({MEAN})",
        "missed rule evaluations": "sum(vmalert_iteration_missed_total)",
        "slowest scrape, s": 'max(scrape_duration_seconds{job="node"})',
    }


def disk(store: Store, kind: str) -> dict[str, float]:
    """Return bytes per sample and per series on disk."""
    if kind == "victoria":
        get(f"{store.url}/internal/force_flush", seconds=60)
        rows = store.value('sum(vm_rows{type=~"storage/.*"})')
        return {
            "bytes/sample": store.value('sum(vm_data_size_bytes{type=~"storage/.*"})') / rows,
            "index bytes/series": store.value('sum(vm_data_size_bytes{type=~"indexdb/.*"})')
            / store.value('max(vm_cache_entries{type="storage/hour_metric_ids"})'),
        }
    reply = call(f"{store.url}/api/v1/admin/tsdb/snapshot", method="POST", seconds=120)
    name = json.loads(reply.body)["data"]["name"]
    (block,) = (store.folder / "data/snapshots" / name).iterdir()
    stats = json.loads((block / "meta.json").read_text())["stats"]
    chunks = sum(path.stat().st_size for path in (block / "chunks").iterdir())
    return {
        "bytes/sample": chunks / stats["numSamples"],
        "index bytes/series": (block / "index").stat().st_size / stats["numSeries"],
    }
