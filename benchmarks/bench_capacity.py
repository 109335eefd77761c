"""What a cluster of so many nodes costs the monitoring host: series, samples/s, memory, disk, CPU and rule time.

Run: .venv/bin/python benchmarks/bench_capacity.py [--nodes 64] [--interval 5] [--store prometheus|victoria] [--disk]

A real node exporter over simulated hardware (8 GPUs, 8 HCAs, 8 ranks) is recorded once; a light server then answers for
every node with that text, its values moved on at each round and its UUIDs changed, already compressed, so that nearly
all the time goes to the store. The store is real, with the project's own configuration and rules. `--store victoria`
is vmagent, VictoriaMetrics and vmalert, from PATH or the cache of `make test-compose`.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pyrometer
from pyrometer_simulator.demo.hardware import Node
from pyrometer_simulator.demo.processes import Processes, free_port
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.cache import cache_folder

ROOT = Path(__file__).resolve().parents[1]
ROUNDS, FACES = 16, 16  # texts per face; nodes with the same face have the same UUIDs
GPUS, NODES_PER_RACK = 8, 16
SAMPLE = re.compile(r"^(\w+)(\{.*\})? (\S+)$", re.MULTILINE)


def record(folder: Path) -> str:
    """The text of one node at work."""
    node = Node(folder / "node", 1, GPUS)
    port = free_port()
    files = folder / "node"
    command = [
        sys.executable,
        "-m",
        "pyrometer_simulator.node",
        f"--gpus={files / 'gpus'}",
        "--",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--path.sysfs={files / 'sys'}",
        f"--path.procfs={files / 'proc'}",
        f"--path.rings={files / 'rings'}",
        f"--path.state={files / 'state'}",
        f"--path.kmsg={files / 'kmsg'}",
    ]
    runs = [
        pyrometer.start(
            run="llama-405b",
            rank=n,
            local_rank=n,
            world_size=4088,
            attempt=0,
            gpu=str(n),
            uuid=node.gpus[n].uuid,
            rings=str(files / "rings"),
            flops_per_token=1.0,
            tokens_per_step=1,
        )
        for n in range(GPUS)
    ]
    with Processes(folder) as processes:
        processes.start("exporter", command)
        processes.wait_until_ready({"exporter": f"http://127.0.0.1:{port}/-/ready"})
        for _ in range(5):
            node.traffic(1.0)
            for run in runs:
                with run.step():
                    pass
            text = get(f"http://127.0.0.1:{port}/metrics")
            time.sleep(0.5)
    for run in runs:
        run.close()
    return text


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        found: str = answer.read().decode()
        return found


def faces(text: str) -> list[list[bytes]]:
    """Compressed answers by face and round: what moves on in a real node moves on."""
    counters = set(re.findall(r"^# TYPE (\w+) counter", text, re.MULTILINE))

    def moved(round_: int) -> str:
        def one(found: re.Match[str]) -> str:
            name, labels, value = found[1], found[2] or "", float(found[3])
            if name in counters and value:
                value += value * 0.001 * round_
            elif value and value != 1 and "info" not in name:
                value += (hash((labels, round_)) % 7 - 3) * abs(value) * 0.002
            return f"{name}{labels} {value:.10g}"

        return SAMPLE.sub(one, text)

    texts = [moved(round_) for round_ in range(ROUNDS)]
    return [[gzip.compress(t.replace("GPU-", f"GPU-{face:02x}").encode(), 6) for t in texts] for face in range(FACES)]


def serve(answers: list[list[bytes]], interval: float) -> int:
    """Answer for all nodes, /<number>/metrics; the port."""
    ready: list[int] = []
    listening = threading.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ", 2)[1].decode()
                round_ = int(time.time() / interval) % ROUNDS
                body = answers[int(path.split("/")[1]) % FACES][round_] if path.endswith("/metrics") else b""
                kind = "text/plain; version=0.0.4" + ("\r\nContent-Encoding: gzip" if body else "")
                writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode())
                writer.write(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
        ready.append(server.sockets[0].getsockname()[1])
        listening.set()
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(run()), daemon=True).start()
    listening.wait(10)
    return ready[0]


def lay_out(folder: Path, nodes: int, interval: int, port: int) -> None:
    """The project's configuration with this interval, its rules, and a target for each node."""
    for name in ("prometheus/prometheus.yaml", "victoria/scrape.yaml"):
        text = (ROOT / "compose" / name).read_text()
        text = text.replace("interval: 5s", f"interval: {interval}s")
        text = text.replace("timeout: 4s", f"timeout: {min(4, interval)}s")
        (folder / Path(name).name).write_text(text)
    (folder / "rules").symlink_to(ROOT / "alert_rules")
    (folder / "targets").mkdir()
    groups = [
        {
            "targets": [f"127.0.0.1:{port}"],
            "labels": {
                "cluster": "bench",
                "node": f"gpu-{n:04d}",
                "rack": f"r{n // NODES_PER_RACK:03d}",
                "instance": f"gpu-{n:04d}:9935",
                "__metrics_path__": f"/{n}/metrics",
            },
        }
        for n in range(nodes)
    ]
    (folder / "targets/nodes.yaml").write_text(json.dumps(groups))


class Store:
    """Something that scrapes and answers; ``pids`` by name."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder, self.processes = folder, processes
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.pids: dict[str, int] = {}

    def start(self, name: str, command: list[str]) -> None:
        self.pids[name] = self.processes.start(name, command, cwd=self.folder, env={"PYROMETER_CLUSTER": "bench"}).pid

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
        "slowest rule group, s": 'max(vmalert_iteration_duration_seconds{quantile="0.99"})',
        "missed rule evaluations": "sum(vmalert_iteration_missed_total)",
        "slowest scrape, s": 'max(scrape_duration_seconds{job="node"})',
    }


def proc(pid: int) -> tuple[float, float]:
    """Resident megabytes, CPU seconds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6, (int(fields[11]) + int(fields[12])) / ticks


def disk(store: Store, kind: str) -> dict[str, float]:
    """Bytes a sample and bytes a series, as they lie on the disk once written."""
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


def measure(folder: Path, flags: argparse.Namespace) -> dict[str, float]:
    text = record(folder)
    lay_out(folder, flags.nodes, flags.interval, serve(faces(text), flags.interval))
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
            slowest = urllib.parse.quote("topk(8, prometheus_rule_group_last_duration_seconds)")
            print(get(f"{store.url}/api/v1/query?query={slowest}"))
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
    folder = Path(tempfile.mkdtemp(prefix="bench-capacity-"))
    try:
        for what, value in measure(folder, flags).items():
            print(f"{what:28} {value:12,.6g}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
