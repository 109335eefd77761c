"""A cluster of any size that answers scrapes: one real node exporter's text, recorded once and served for every node.

Names, UUIDs and ranks are replaced for each node; values move at each round. Besides the nodes, the batches of their
run and the cluster exporter's metrics (topology, queue, ledger) are served. Answers are compressed in advance, so that
nearly all CPU time goes to the store that scrapes.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from harness import node_exporter

import pyrometer
from pyrometer_dashboards.rule_groups import slower
from pyrometer_kit.http_client import get
from pyrometer_simulator.demo.hardware import Node
from pyrometer_simulator.fleet.openmetrics import scrape
from pyrometer_simulator.fleet.plan import Plan
from pyrometer_simulator.fleet.service_metrics import service_families
from pyrometer_simulator.fleet.training_metrics import batches

ROOT = Path(__file__).resolve().parents[1]
ROUNDS, FACES = 16, 16  # texts per face; nodes with the same face have the same UUIDs
GPUS, NODES_PER_RACK = 8, 16
RUN, ATTEMPT, CLUSTER = "llama3-70b", 1, "bench"
MORE_RUNS = ("llama3-405b", "mixtral-8x22b", "qwen3-235b", "gemma-27b", "nemotron-340b", "olmo-32b", "sft-70b")
# Gauges of measured values.
WANDERING = re.compile(
    r"_TEMP$|DEV_SM_CLOCK$|POWER_USAGE|FB_(FREE|USED)|_ACTIVE$|_OCCUPANCY$|_BYTES$|duration|_age_|resident"
)
SAMPLE = re.compile(r"^(\w+)(\{.*\})? (\S+)$", re.MULTILINE)
OF_RUN = re.compile(r'^\w+\{.*\brun=".*$\n?', re.MULTILINE)
RANK, RANKED = re.compile(r'\brank="(\d+)"'), re.compile(r'^\w+\{.*\brank="\d+".*$\n?', re.MULTILINE)
TARGET = re.compile(r'(?<=\{)cluster="[^"]*",(node="[^"]*",)?job="[^"]*",(instance="[^"]*",)?')


def record(folder: Path, *more: str) -> str:
    """Return the text of one node at work, whose exporter has ``more`` flags."""
    node = Node(folder / "node", 1, GPUS)
    files = folder / "node"
    paths = {"sysfs": "sys", "procfs": "proc", "rings": "rings", "state": "state", "kmsg": "kmsg"}
    flags = [*(f"--path.{what}={files / where}" for what, where in paths.items()), *more]
    start = ("-m", "pyrometer_simulator.node", f"--gpus={files / 'gpus'}", "--")
    with node_exporter(flags, start) as (_pid, port):
        return _worked(node, files / "rings", f"http://127.0.0.1:{port}/metrics")


def _worked(node: Node, rings: Path, url: str) -> str:
    """Return the exporter's answer after some steps of all ranks."""
    runs = [
        pyrometer.start(
            run=RUN, rank=n, local_rank=n, world_size=4088, attempt=ATTEMPT, gpu=str(n), uuid=node.gpus[n].uuid,
            rings=str(rings), flops_per_token=1.0, tokens_per_step=1,
        )
        for n in range(GPUS)
    ]  # fmt: skip
    for _ in range(5):
        node.traffic(1.0)
        for run in runs:
            with run.step():
                pass
        text = get(url, seconds=60).decode()
        time.sleep(0.5)
    for run in runs:
        run.close()
    return text


def moved(text: str, round_: int) -> str:
    """Return a node's text after so many rounds, with moved counters and measured gauges; settings are constant.

    Settings (a link's rate, lanes, limits) must not change, as thousands of alerts would report that.
    """
    counters = set(re.findall(r"^# TYPE (\w+) counter", text, re.MULTILINE))

    def one(found: re.Match[str]) -> str:
        name, labels, value = found[1], found[2] or "", float(found[3])
        if name in counters:
            value += value * 0.001 * round_
        elif WANDERING.search(name):
            value += (hash((labels, round_)) % 7 - 3) * abs(value) * 0.002
        return f"{name}{labels} {value:.10g}"

    return SAMPLE.sub(one, text)


class Answers:
    """The answers of the cluster: /<node>/metrics, with ?consumer=.. its batches, /cluster/metrics.

    Its nodes are shared evenly among so many ``runs``, each on consecutive nodes.
    """

    def __init__(self, text: str, nodes: int, interval: float, runs: int = 1) -> None:
        self._interval = interval
        rounds = [moved(text, round_) for round_ in range(ROUNDS)]
        faces = [[each.replace("GPU-", f"GPU-{face:02x}") for each in rounds] for face in range(FACES)]
        self._of_run = [["".join(OF_RUN.findall(each)) for each in face] for face in faces]
        self._rest = [[gzip.compress(OF_RUN.sub("", each).encode(), 6) for each in face] for face in faces]
        self._runs = run_names(runs)
        self._nodes = nodes
        self._plan = Plan(nodes=nodes, cluster=CLUSTER)
        self._services = service_families(self._plan, node_names(nodes))
        self._told: dict[str, float] = {}

    def body(self, path: str) -> bytes:
        who = path.split("/")[1]
        if who == "cluster":
            return self._cluster()
        if "consumer=" not in path:  # the path is a label of the target, and so the same for both jobs
            return self._node(int(who))
        run, place = self._place(int(who))
        return gzip.compress(b"") if place else self._batches(path, run)

    def _place(self, node: int) -> tuple[str, int]:
        """Return a node's run, and its place in that run."""
        number = node * len(self._runs) // self._nodes
        return self._runs[number], node + (-number * self._nodes // len(self._runs))

    def _node(self, node: int) -> bytes:
        """Return two gzip members: the text that nodes of a face share, and that of the run, each node's own."""
        face, round_ = node % FACES, int(time.time() / self._interval) % ROUNDS
        run, place = self._place(node)
        text = self._of_run[face][round_]
        if place:  # what is of the whole run is told by its first node
            text = "".join(RANKED.findall(text))
        text = RANK.sub(lambda found: f'rank="{place * GPUS + int(found[1])}"', text.replace(RUN, run))
        return self._rest[face][round_] + gzip.compress(text.encode(), 1)

    def _batches(self, path: str, run: str) -> bytes:
        now = time.time()
        start, self._told[path] = self._told.get(path, now - self._interval), now
        found = sorted(batches(self._plan, start, now), key=lambda each: each[0])
        lines = (
            f"{TARGET.sub('', series).replace(RUN, run)} {value} {at * 1000:.0f}\n"
            for series, value, at in found
            if RUN in series
        )
        return gzip.compress("".join(lines).encode(), 1)

    def _cluster(self) -> bytes:
        own = (TARGET.sub("", line) for line in scrape(self._services, time.time()) if "monitor:9936" in line)
        return gzip.compress("".join(own).encode(), 1)


def serve(answers: Answers) -> int:
    """Serve the whole cluster; yield the port."""
    ready: list[int] = []
    listening = threading.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = answers.body(head.split(b" ", 2)[1].decode())
                kind = "text/plain; version=0.0.4\r\nContent-Encoding: gzip"
                writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode())
                writer.write(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
        ready.append(server.sockets[0].getsockname()[1])
        listening.set()
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(run()), daemon=True).start()
    listening.wait(10)
    return ready[0]


def run_names(runs: int) -> list[str]:
    return [RUN, *MORE_RUNS][:runs]


def node_names(nodes: int) -> list[str]:
    return [f"gpu-{n:04d}" for n in range(nodes)]


def targets(nodes: int) -> Iterator[dict[str, str]]:
    """Return each node's labels except its address."""
    for n, name in enumerate(node_names(nodes)):
        rack = f"r{n // NODES_PER_RACK:03d}"
        yield {"cluster": CLUSTER, "node": name, "rack": rack, "instance": f"{name}:9935"}


def lay_out(folder: Path, nodes: int, interval: int, port: int) -> None:
    """Write the project's configuration with this interval, its rules, and a target for each node."""
    for name in ("prometheus/prometheus.yaml", "victoria/scrape.yaml"):
        text = (ROOT / "compose" / name).read_text()
        text = text.replace("interval: 5s", f"interval: {interval}s")
        text = text.replace("timeout: 4s", f"timeout: {min(14, interval)}s")
        (folder / Path(name).name).write_text(text)
    (folder / "rules").mkdir()
    for path in (ROOT / "alert_rules").glob("*.rules.yaml"):
        (folder / "rules" / path.name).write_text(slower(path.read_text(), interval))
    (folder / "targets").mkdir()
    at = [f"127.0.0.1:{port}"]
    groups = [
        {"targets": at, "labels": each | {"__metrics_path__": f"/{n}/metrics"}} for n, each in enumerate(targets(nodes))
    ]
    (folder / "targets/nodes.yaml").write_text(json.dumps(groups))
    own = {"cluster": CLUSTER, "instance": "monitor:9936", "__metrics_path__": "/cluster/metrics"}
    (folder / "targets/cluster.yaml").write_text(json.dumps([{"targets": at, "labels": own}]))
