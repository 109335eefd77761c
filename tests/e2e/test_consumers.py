"""Two real Prometheus on one exporter, scrapes cut off halfway, and restarts: each has every batch once."""

from __future__ import annotations

import contextlib
import re
import select
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyrometer
from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.stack.prometheus import running

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

STEP_SECONDS = 0.1
CUTS = 3

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 900ms}}
scrape_configs:
  - job_name: batches
    metrics_path: /batches
    params: {{consumer: [{consumer}]}}
    honor_timestamps: true
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class Exporter:
    """The node exporter with its train collector, which can be ended and started again."""

    def __init__(self, folder: Path, port: int, processes: Processes) -> None:
        others = ("gpu", "nic", "kernel")
        self._command = [
            sys.executable, "-m", "pyrometer_exporters.node.main", f"--web.listen-address=127.0.0.1:{port}",
            f"--path.rings={folder / 'rings'}", f"--path.state={folder / 'state'}",
            *(f"--no-collector.{name}" for name in others),
        ]  # fmt: skip
        self._url = f"http://127.0.0.1:{port}/-/ready"
        self._processes = processes

    def start(self) -> None:
        self.process = self._processes.start("exporter", self._command, dispensable=True)
        self._processes.wait_until_ready({"exporter": self._url})

    def restart(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(timeout=20)
        self.start()


class Cutter(threading.Thread):
    """Stands between a Prometheus and the exporter; on demand it lets only the beginning of an answer through."""

    def __init__(self, target: int) -> None:
        super().__init__(daemon=True)
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.to_cut = 0
        self.cut = 0

    def run(self) -> None:
        with contextlib.suppress(OSError):  # closed: the test is over
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as server:
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if client in ready:
                    asked = client.recv(65536)
                    if not asked:
                        return
                    server.sendall(asked)
                elif self.to_cut:
                    # 100 bytes are not even the header. The rest stays unread, as with a scraper that has given up.
                    client.sendall(server.recv(100))
                    self.to_cut -= 1
                    self.cut += 1
                    client.recv(1)  # until it hangs up
                    return
                else:
                    answer = server.recv(65536)
                    if not answer:
                        return
                    client.sendall(answer)


@contextlib.contextmanager
def scraping(folder: Path, stack: Stack, consumer: str, target: int) -> Iterator[Prometheus]:
    """Yield a Prometheus that asks for batches as this consumer."""
    configuration = folder / f"{consumer}.yaml"
    configuration.write_text(CONFIG.format(consumer=consumer, port=target))
    flags = [f"--config.file={configuration}", f"--storage.tsdb.path={folder / consumer}"]
    with running(stack.prometheus, lambda _port: flags, folder / f"{consumer}.log") as url:
        yield Prometheus(url)


def batches(of: Prometheus) -> list[tuple[float, int]]:
    """Timestamp and number of each batch that it has stored."""
    samples = of.samples('pyrometer_train_batch_step{run="live"}[10m]', time.time())
    return [(at, int(value)) for at, value in samples]


def refused(by: Prometheus) -> float:
    names = "prometheus_target_scrapes_sample_(out_of_order|duplicate_timestamp|out_of_bounds)_total"
    with urllib.request.urlopen(f"{by.url}/metrics", timeout=5) as answer:  # noqa: S310  loopback
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if re.match(names, line))


def train(run: pyrometer.Run, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with run.step():
            time.sleep(STEP_SECONDS)
            run.record(loss=1.0)


def test_no_batch_is_lost_and_none_comes_twice(tmp_path: Path, stack: Stack) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "logs").mkdir()
    port = free_port()  # the same after each restart
    with contextlib.ExitStack() as opened:
        exporter = Exporter(tmp_path, port, opened.enter_context(Processes(tmp_path / "logs")))
        run = opened.enter_context(
            contextlib.closing(pyrometer.start("live", rings=str(tmp_path / "rings"), rank=0, world_size=1))
        )
        cutter = opened.enter_context(contextlib.closing(Cutter(port)))
        cutter.start()
        exporter.start()
        both = [
            opened.enter_context(scraping(tmp_path, stack, consumer, target))
            for consumer, target in (("prom-a", port), ("prom-b", cutter.port))
        ]
        train(run, 4)
        for _ in range(CUTS):
            cutter.to_cut = 1
            train(run, 2.5)
        exporter.restart(signal.SIGTERM)
        train(run, 3)
        refused_before = [refused(each) for each in both]
        # Killed before it could know that its last answer was taken, the exporter serves that once more, with the same
        # timestamps: Prometheus has them, refuses them, and nothing is stored twice.
        exporter.restart(signal.SIGKILL)
        train(run, 4)
        steps = run.steps_finished()
        deadline = time.monotonic() + 15
        while min(len(batches(each)) for each in both) < steps and time.monotonic() < deadline:
            time.sleep(0.5)
        stored = [batches(each) for each in both]

    assert cutter.cut == CUTS
    assert refused_before == [0, 0]
    for found in stored:
        assert [number for _, number in found] == list(range(steps))
        assert [at for at, _ in found] == sorted({at for at, _ in found})
    assert stored[0] == stored[1], "both have the same timestamps"
