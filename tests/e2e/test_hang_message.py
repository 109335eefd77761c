"""The message on a hung job of 32 ranks as people read it, from real exporters, Prometheus, rules and alerting service.

NCCL is simulated: its RAS socket and a file of its Inspector. Ranks 0 and 21 are processes with the client.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrometer_kit.http_client import get_json
from pyrometer_simulator.demo.hardware import FIB_TRIE, node_address
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.nccl.job import Job, layouts
from pyrometer_simulator.nccl.ras_server import RasJob, RasServer
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.shipped import start_alerting
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.torch_jobs.monitoring import Monitoring
from pyrometer_simulator.torch_jobs.spec import node_name

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(330)]

RANKS, PER_NODE, NODES, STUCK = 32, 8, 4, 21
CHANNEL = "gpu-alerts"
STEP_SECONDS = 0.5

RANK = """
import os, sys, time
import dataloader, pyrometer
rank, flag = int(sys.argv[1]), sys.argv[2]
run = pyrometer.start("llama", rank=rank, local_rank=rank % 8, gpu=rank % 8, world_size=32, stacks=True)
while True:
    with run.step():
        with run.part("forward"):
            dataloader.next_batch(rank == 21 and os.path.exists(flag))
        with run.part("wait"):
            time.sleep(1e6 if rank != 21 and os.path.exists(flag) else 0.2)
"""
# Its 88th line is where a batch never comes.
DATALOADER = (
    "import time\n" + "\n" * 84 + "def next_batch(never):\n    time.sleep(0.2)\n    time.sleep(1e6 if never else 0)\n"
)
INSPECTOR = """nccl_bus_bandwidth_gbs{{{labels}}} 350.2
nccl_collective_exec_time_microseconds{{{labels}}} 740.1
"""
LABELS = (
    'version="v5.1",slurm_job_id="",node="gpu-003",gpu="GPU5",comm_name="data-parallel",n_nodes="4",nranks="32",'
    'collective="AllReduce",message_size="134-135MB",algo_proto="RING_SIMPLE"'
)


class Cluster:
    """Four nodes with a hung job, and the channel that hears of it."""

    def __init__(self, folder: Path, processes: Processes, slack: FakeSlack) -> None:
        self.folder, self.processes, self.slack = folder, processes, slack
        self.flag = folder / "stop"
        self.job = Job(layouts(RANKS)[0], layers=1)
        (folder / "dataloader.py").write_text(DATALOADER)
        (folder / "rank.py").write_text(RANK)
        self.pids = {rank: self._start_rank(rank) for rank in (0, STUCK)}
        self.ras = RasJob(self.job, lambda node: node_address(node + 1), per_node=PER_NODE, first_pid=self.pids[0])

    def _start_rank(self, rank: int) -> int:
        rings = self.folder / node_name(rank // PER_NODE) / "rings"
        rings.mkdir(parents=True)
        command = [sys.executable, str(self.folder / "rank.py"), str(rank), str(self.flag)]
        return self.processes.start(f"rank-{rank}", command, env={"PYROMETER_RINGS": str(rings)}).pid

    def watch(self, address: tuple[str, int]) -> Monitoring:
        flags = {}
        for index in range(NODES):
            proc = self.folder / node_name(index) / "proc"
            (proc / "net").mkdir(parents=True)
            (proc / "net/fib_trie").write_text(FIB_TRIE.format(address=node_address(index + 1)))
            for name in ("locks", *map(str, self.pids.values())):
                (proc / name).symlink_to(f"/proc/{name}")
            flags[node_name(index)] = [f"--collector.nccl.address={address[0]}:{address[1]}", f"--path.procfs={proc}"]
        (self.folder / "inspector").mkdir()
        flags[node_name(STUCK // PER_NODE)].append(f"--collector.nccl.inspector-directory={self.folder / 'inspector'}")
        self.write_inspector()
        return Monitoring.start(self.folder, self.processes, NODES, flags)

    def write_inspector(self) -> None:
        path = self.folder / "inspector/nccl_inspector_metrics_GPU-5.prom"
        path.write_text(INSPECTOR.format(labels=LABELS))

    def start_alerting(self, prometheus: str) -> str:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        start_alerting(
            self.folder, self.processes, port, self.slack, channel=CHANNEL, prometheus=prometheus, alertmanager=url
        )
        self.processes.wait_until_ready({"alerting": f"{url}/-/healthy"})
        return url

    def hang(self) -> None:
        """Let the rank stop in its forward pass, and all others in the next collective."""
        program = self.job.programs[STUCK]
        place = next(at for at, operation in enumerate(program) if operation.do == "compute")
        self.job.stop(STUCK, (self.job.steps(STUCK) + 1) * len(program) + place)
        self.flag.touch()


@contextlib.contextmanager
def training(job: Job) -> Iterator[None]:
    end = threading.Event()

    def train() -> None:
        while not end.wait(STEP_SECONDS):
            job.run()

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    yield
    end.set()
    thread.join()


def deliver(prometheus: str, alerting: str, alertname: str) -> None:
    """Do as Alertmanager does: pass the alert that fires on to the service."""
    found = get_json(f"{prometheus}/api/v1/alerts")["data"]["alerts"]
    alerts = [
        {
            "status": "firing", "labels": one["labels"], "annotations": one["annotations"], "startsAt": one["activeAt"],
            "endsAt": "0001-01-01T00:00:00Z", "generatorURL": prometheus, "fingerprint": f"{number:016x}",
        }
        for number, one in enumerate(found)
        if one["state"] == "firing" and one["labels"]["alertname"] == alertname
    ]  # fmt: skip
    body = {
        "version": "4", "groupKey": alertname, "status": "firing", "receiver": "pyrometer", "groupLabels": {},
        "commonLabels": {}, "commonAnnotations": {}, "externalURL": alerting, "truncatedAlerts": 0, "alerts": alerts,
    }  # fmt: skip
    host = alerting.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.request("POST", "/api/v1/alertmanager", json.dumps(body), {"Content-Type": "application/json"})
    assert connection.getresponse().status == 200
    connection.close()


def test_the_message_names_rank_node_gpu_collective_group_part_and_line(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with contextlib.ExitStack() as opened:
        slack = opened.enter_context(FakeSlack(channel_names=[CHANNEL]))
        cluster = Cluster(tmp_path, opened.enter_context(Processes(tmp_path / "logs")), slack)
        server = opened.enter_context(RasServer(cluster.ras))
        opened.enter_context(training(cluster.job))
        monitoring = cluster.watch(server.address)
        prometheus = monitoring.prometheus.url
        alerting = cluster.start_alerting(prometheus)
        until(lambda: monitoring.prometheus.value("min(pyrometer_train_steps_total) > 15") is not None, 90)
        until(lambda: monitoring.prometheus.value("pyrometer_nccl_job_info") is not None, 60)
        cluster.hang()
        began = time.time()
        until(lambda: _named(monitoring), 150)
        cluster.write_inspector()  # as the plugin goes on doing
        seconds = time.time() - began
        deliver(prometheus, alerting, "NcclHang")
        wanted = re.compile(
            r"31 of 32 ranks wait in AllReduce ([\d,]+) of the data-parallel group; rank 21 \(gpu-003 GPU 5\) launched "
            r"([\d,]+) and is in forward at dataloader\.py:88 for (\d+ s|\d+ min)"
        )
        until(lambda: wanted.search(said(slack)) is not None, 60)
    found = wanted.search(said(slack))
    assert found is not None, said(slack)
    sys.stdout.write(found[0])  # shown by pytest -s
    assert int(found[1].replace(",", "")) - int(found[2].replace(",", "")) == 1
    assert seconds <= 90


def _named(monitoring: Monitoring) -> bool:
    monitoring.look()
    return any((one.alertname, one.rank) == ("NcclHang", str(STUCK)) for one in monitoring.first_seen)


def said(slack: FakeSlack) -> str:
    """Return all that the channel shows."""
    return json.dumps(slack.messages(CHANNEL), ensure_ascii=False)


def until(done: object, seconds: float) -> None:
    assert callable(done)
    end = time.monotonic() + seconds
    while time.monotonic() < end and not done():
        time.sleep(1)
