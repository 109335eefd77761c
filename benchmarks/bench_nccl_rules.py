"""Measure what the rules on collectives cost at 511 nodes: healthy, and with a hang that names 64 ranks.

Run: ``python benchmarks/bench_nccl_rules.py [--nodes 511] [--seconds 150]``. A real Prometheus scrapes the series of
all nodes and evaluates the groups of the three files nccl*.rules.yaml, five times as often as they are meant to be.
Each node has eight GPUs and Inspector's files of six kinds of collectives; RAS reports 64 communicators. While it
hangs, 64 ranks also depart from the others. Seconds are Prometheus' own of an evaluation, the least and the median.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from harness import exit_on_signals

from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.http_server import HttpServer, Response
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.shipped import project_folder
from pyrometer_simulator.stack import find_stack

JOB = 'run="llama",job_id="77"'
KINDS = [(ranks, kind) for ranks in (8, 511, 4088) for kind in ("AllReduce", "AllGather")]
FASTER = 5
LAST = "prometheus_rule_group_last_duration_seconds"


def series(nodes: int, *, hung: bool) -> Iterator[str]:
    """Yield the lines of all nodes' exporters; a hung job's GPUs spin and 64 of its ranks are behind."""
    for node in range(nodes):
        name = f'node="gpu-{node:04d}"'
        for third in (node // 250, 200 + node // 250):
            yield f'pyrometer_node_address_info{{{name},address="10.0.{third}.{node % 250}"}} 1'
        for gpu in range(8):
            of_gpu = f'{name},gpu="{gpu}"'
            yield f"DCGM_FI_DEV_GPU_UTIL{{{of_gpu}}} 100"
            yield f"DCGM_FI_DEV_POWER_USAGE{{{of_gpu}}} {180 if hung else 650}"
            yield f"DCGM_FI_DEV_ENFORCED_POWER_LIMIT{{{of_gpu}}} 700"
            yield f'pyrometer_gpu_job_info{{{of_gpu},job_id="77"}} 1'
        for ranks, kind in KINDS:
            of = (
                f'{name},{JOB},comm_ranks="{ranks}",comm_nodes="{max(1, ranks // 8)}",collective="{kind}",'
                'size_class="16-256MiB"'
            )
            for stat in ("worst", "median", "best"):
                yield f'pyrometer_nccl_collective_seconds{{{of},stat="{stat}"}} 0.02'
                yield f'pyrometer_nccl_bus_bandwidth_bytes_per_second{{{of},stat="{stat}"}} 3e11'
            for gpu in range(2 if hung and node % 16 == 0 else 0):
                own = f'{of},gpu="{gpu}",rank="{8 * node + gpu}"'
                yield f"pyrometer_nccl_rank_collective_seconds{{{own}}} 0.001"
                yield f"pyrometer_nccl_rank_bus_bandwidth_bytes_per_second{{{own}}} 1e11"
    yield f'pyrometer_nccl_standstill_seconds{{node="gpu-0000",{JOB}}} {400 if hung else 0}'
    yield f'pyrometer_nccl_longest_standstill_seconds{{node="gpu-0000",{JOB}}} 60'
    yield f'pyrometer_nccl_job_info{{node="gpu-0000",{JOB},format="json"}} 1'
    for comm in range(64):
        of = f'node="gpu-0000",{JOB},comm="0x{comm:x}"'
        yield f'pyrometer_nccl_communicator_ranks{{{of},state="ready"}} 64'
        for bound in ("min", "max"):
            yield f'pyrometer_nccl_communicator_collectives_total{{{of},collective="AllReduce",bound="{bound}"}} 6650'
        if hung:
            own = f'rank="{8 * comm}",host="10.0.0.{comm}",gpu="0",state="behind",certain="yes"'
            yield f"pyrometer_nccl_rank_behind{{{of},{own}}} 1"
            yield f"pyrometer_nccl_waiting_ranks{{{of}}} 63"


def lay_out(folder: Path, port: int, own: int) -> None:
    """Write Prometheus' configuration and the rules, to be evaluated more often."""
    for path in (project_folder() / "alert_rules").glob("nccl*.rules.yaml"):
        text = re.sub(r"interval: (\d+)s", lambda match: f"interval: {int(match[1]) // FASTER}s", path.read_text())
        (folder / path.name).write_text(text)
    config = {
        "global": {"scrape_interval": "10s", "scrape_timeout": "10s", "external_labels": {}},
        "rule_files": ["nccl*.rules.yaml"],
        "scrape_configs": [
            {"job_name": "node", "honor_labels": True, "metrics_path": "/metrics",
             "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {"cluster": "c1"}}]},
            {"job_name": "prometheus", "static_configs": [{"targets": [f"127.0.0.1:{own}"]}]},
        ],
    }  # fmt: skip
    (folder / "prometheus.yml").write_text(json.dumps(config))


def measure(url: str, seconds: float) -> dict[str, tuple[float, float]]:
    """Return the least and the median that Prometheus took for an evaluation of each group, in ms."""
    time.sleep(seconds)
    least, median = (
        Prometheus(url).values(query.format(f"{LAST}[{seconds:.0f}s]"))
        for query in ("1000 * min_over_time({})", "1000 * quantile_over_time(0.5, {})")
    )
    return {json.loads(labels)["rule_group"].rpartition(";")[2]: (least[labels], median[labels]) for labels in least}


def main() -> None:
    """Print a line for each group, healthy and hung."""
    parser = argparse.ArgumentParser(description="What do the rules on collectives cost?")
    parser.add_argument("--nodes", type=int, default=511, help="nodes of eight GPUs (%(default)s)")
    parser.add_argument("--seconds", type=float, default=150.0, help="of each measurement (%(default)s)")
    options = parser.parse_args()
    exit_on_signals()
    texts = {hung: "\n".join([*series(options.nodes, hung=hung), ""]).encode() for hung in (False, True)}
    hangs = threading.Event()
    server = HttpServer(lambda _: Response(texts[hangs.is_set()], content_type="text/plain; version=0.0.4"))
    server.start()
    with tempfile.TemporaryDirectory() as name, Processes(Path(name)) as processes:
        folder, port = Path(name), free_port()
        lay_out(folder, server.server_port, port)
        command = [
            str(find_stack().prometheus), "--config.file=prometheus.yml", "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        processes.start("prometheus", command, cwd=folder)
        processes.wait_until_ready({"prometheus": f"http://127.0.0.1:{port}/-/ready"})
        for hung, text in texts.items():
            if hung:
                hangs.set()
            time.sleep(70)  # a minute is what the rules look back on at least
            print(f"{'hung' if hung else 'healthy'}, {text.count(10)} series:")
            for group, (least, median) in sorted(measure(f"http://127.0.0.1:{port}", options.seconds).items()):
                print(f"  {group}: {least:.0f} ms at least, median {median:.0f} ms")


if __name__ == "__main__":
    main()
