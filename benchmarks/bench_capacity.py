"""Measure what a cluster of N nodes costs the monitoring host: series, samples/s, memory, disk, CPU and rule time.

Run: .venv/bin/python benchmarks/bench_capacity.py [--nodes 64] [--interval 5] [--store prometheus|victoria] [--disk]

A real node exporter over simulated hardware (8 GPUs, 8 HCAs, 8 ranks) is recorded once; a light server then answers for
every node with that text, its values moved on at each round and its UUIDs changed, already compressed, so that nearly
all the time goes to the store. The store is real, with the project's own configuration and rules. `--store victoria`
is vmagent, VictoriaMetrics and vmalert, from PATH or the cache of `make test-compose`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

from harness import exit_on_signals
from recorded_cluster import CLUSTER, Answers, get, lay_out, record, serve

from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.cache import cache_folder

# Metrics of vmalert about the evaluations of a rule group.
MEAN = (
    "sum by (group) (rate(vmalert_iteration_duration_seconds_sum[2m]))"
    " / (sum by (group) (rate(vmalert_iteration_duration_seconds_count[2m])) > 0)"
)
GROUPS = {"prometheus": "prometheus_rule_group_last_duration_seconds", "victoria": MEAN}


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
        found = json.loads(get(f"{self.url}/api/v1/query?query={urllib.parse.quote(query)}"))["data"]["result"]
        return float(found[0]["value"][1]) if found else float("nan")


def prometheus(store: Store, _interval: int) -> dict[str, str]:
    command = [
        str(find_stack().prometheus),
        "--config.file=prometheus.yaml",
        "--storage.tsdb.path=data",
        f"--web.listen-address=127.0.0.1:{store.port}",
        "--web.enable-admin-api",
        "--web.enable-lifecycle",
        "--storage.tsdb.retention.time=60d",
    ]
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
    def tool(name: str) -> str:
        return shutil.which(name) or str(cache_folder() / "victoria-metrics/usr/bin" / name)

    ports = {name: free_port() for name in ("vmagent", "vmalert")}
    store.start(
        "victoria",
        [
            tool("victoria-metrics"),
            "-storageDataPath=data",
            f"-httpListenAddr=127.0.0.1:{store.port}",
            "-search.latencyOffset=0s",
            "-search.maxStalenessInterval=5m",
        ],
    )
    store.processes.wait_until_ready({"victoria": f"{store.url}/health"})
    own = [{"targets": [f"127.0.0.1:{port}" for port in (store.port, *ports.values())]}]
    (store.folder / "targets/victoria.yaml").write_text(json.dumps(own))
    store.start(
        "vmagent",
        [
            tool("vmagent"),
            "-promscrape.config=scrape.yaml",
            f"-remoteWrite.url={store.url}/api/v1/write",
            f"-httpListenAddr=127.0.0.1:{ports['vmagent']}",
            "-remoteWrite.tmpDataPath=vmagent",
        ],
    )
    store.start(
        "vmalert",
        [
            tool("vmalert"),
            "-rule=rules/*.rules.yaml",
            f"-datasource.url={store.url}",
            f"-remoteWrite.url={store.url}",
            f"-httpListenAddr=127.0.0.1:{ports['vmalert']}",
            f"-evaluationInterval={interval}s",
            "-rule.evalDelay=0s",
            "-notifier.blackhole",
        ],
    )
    return {
        "series": 'max(vm_cache_entries{type="storage/hour_metric_ids"})',
        "samples/s": "sum(rate(vm_rows_inserted_total[1m]))",
        "slowest rule group, s": f"max({MEAN})",
        "all rule groups, s": f"sum({MEAN})",
        "missed rule evaluations": "sum(vmalert_iteration_missed_total)",
        "slowest scrape, s": 'max(scrape_duration_seconds{job="node"})',
    }


def proc(pid: int) -> tuple[float, float]:
    """Return resident megabytes and CPU seconds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6, (int(fields[11]) + int(fields[12])) / ticks


def disk(store: Store, kind: str) -> dict[str, float]:
    """Return bytes per sample and per series on disk."""
    if kind == "victoria":
        get(f"{store.url}/internal/force_flush")
        rows = store.value('sum(vm_rows{type=~"storage/.*"})')
        return {
            "bytes/sample": store.value('sum(vm_data_size_bytes{type=~"storage/.*"})') / rows,
            "index bytes/series": store.value('sum(vm_data_size_bytes{type=~"indexdb/.*"})')
            / store.value('max(vm_cache_entries{type="storage/hour_metric_ids"})'),
        }
    request = urllib.request.Request(f"{store.url}/api/v1/admin/tsdb/snapshot", method="POST")
    with urllib.request.urlopen(request, timeout=120) as answer:
        name = json.load(answer)["data"]["name"]
    (block,) = (store.folder / "data/snapshots" / name).iterdir()
    stats = json.loads((block / "meta.json").read_text())["stats"]
    chunks = sum(path.stat().st_size for path in (block / "chunks").iterdir())
    return {
        "bytes/sample": chunks / stats["numSamples"],
        "index bytes/series": (block / "index").stat().st_size / stats["numSeries"],
    }


def print_groups(store: Store, seconds: str) -> None:
    """Return the slowest rule groups."""
    found = json.loads(get(f"{store.url}/api/v1/query?query={urllib.parse.quote(f'topk(8, {seconds})')}"))
    for each in found["data"]["result"]:
        name = each["metric"].get("group") or each["metric"]["rule_group"].rpartition(";")[2]
        print(f"  {name:32} {float(each['value'][1]):8.3f} s")


def measure(folder: Path, flags: argparse.Namespace) -> dict[str, float]:
    text = record(folder)
    lay_out(folder, flags.nodes, flags.interval, serve(Answers(text, flags.nodes, flags.interval)))
    found: dict[str, float] = {"nodes": flags.nodes, "interval, s": flags.interval}
    found["samples a node"] = sum(not line.startswith("#") for line in text.splitlines())
    with Processes(folder) as processes:
        store = Store(folder, processes)
        queries = {"prometheus": prometheus, "victoria": victoria}[flags.store](store, flags.interval)
        time.sleep(max(30.0, 3.0 * flags.interval))
        before = {name: proc(pid)[1] for name, pid in store.pids.items()}
        start = time.monotonic()
        time.sleep(flags.seconds)
        seconds = time.monotonic() - start
        for name, pid in store.pids.items():
            memory, cpu = proc(pid)
            found[f"{name}, MB"] = memory
            found[f"{name}, cores"] = (cpu - before[name]) / seconds
        found |= {what: store.value(query) for what, query in queries.items()}
        if flags.disk:
            found |= disk(store, flags.store)
        if flags.groups:
            print_groups(store, GROUPS[flags.store])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--interval", type=int, default=5, help="of scrapes and rules, in seconds")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long is measured, after the start")
    parser.add_argument("--store", choices=("prometheus", "victoria"), default="prometheus")
    parser.add_argument(
        "--disk", action="store_true", help="bytes a sample as well; truest with --interval 1 --seconds 160"
    )
    parser.add_argument("--groups", action="store_true", help="print the slowest rule groups as well")
    flags = parser.parse_args()
    exit_on_signals()
    folder = Path(tempfile.mkdtemp(prefix="bench-capacity-"))
    try:
        for what, value in measure(folder, flags).items():
            print(f"{what:28} {value:12,.6g}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
