"""Two real Prometheus on one exporter, scrapes cut off halfway, and restarts: each has every batch once."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyrometer
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.stack import StackError, find_stack
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


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  loopback
        return answer.read()


def wait_for(url: str) -> None:
    deadline = time.monotonic() + 40
    while True:
        try:
            get(url)
        except OSError:
            assert time.monotonic() < deadline, f"{url} does not answer"
            time.sleep(0.1)
        else:
            return


@contextlib.contextmanager
def program(*command: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with open(log, "ab") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.kill()


class Exporter:
    """The node exporter with its train collector, which can be ended and started again."""

    def __init__(self, folder: Path, port: int) -> None:
        others = ("gpu", "nic", "kernel")
        self._command = [
            sys.executable, "-m", "pyrometer_exporters.node.main", f"--web.listen-address=127.0.0.1:{port}",
            f"--path.rings={folder / 'rings'}", f"--path.state={folder / 'state'}",
            *(f"--no-collector.{name}" for name in others),
        ]  # fmt: skip
        self._log = folder / "exporter.log"
        self._url = f"http://127.0.0.1:{port}/-/ready"
        self._running = contextlib.ExitStack()

    def start(self) -> None:
        self.process = self._running.enter_context(program(*self._command, log=self._log))
        wait_for(self._url)

    def restart(self, number: int) -> None:
        os.kill(self.process.pid, number)
        self.process.wait(timeout=20)
        self.start()

    def stop(self) -> None:
        self._running.close()


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


class Prometheus:
    def __init__(self, folder: Path, consumer: str, target: int) -> None:
        self._url = ""
        self._folder = folder / consumer
        self._folder.mkdir()
        (self._folder / "prometheus.yaml").write_text(CONFIG.format(consumer=consumer, port=target))
        self._log = folder / f"{consumer}.log"

    @contextlib.contextmanager
    def running(self, binary: Path) -> Iterator[None]:
        flags = [f"--config.file={self._folder / 'prometheus.yaml'}", f"--storage.tsdb.path={self._folder / 'data'}"]
        with running(binary, lambda _port: flags, self._log) as self._url:
            yield

    def query(self, query: str) -> list[Any]:
        url = f"{self._url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        found: list[Any] = json.loads(get(url))["data"]["result"]
        return found

    def batches(self) -> list[tuple[float, int]]:
        """Timestamp and number of each batch that it has stored."""
        (series,) = self.query('pyrometer_train_batch_step{run="live"}[10m]')
        return [(at, int(value)) for at, value in series["values"]]

    def refused(self) -> float:
        names = "prometheus_target_scrapes_sample_(out_of_order|duplicate_timestamp|out_of_bounds)_total"
        metrics = get(f"{self._url}/metrics").decode().splitlines()
        return sum(float(line.split()[-1]) for line in metrics if re.match(names, line))


def train(run: pyrometer.Run, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with run.step():
            time.sleep(STEP_SECONDS)
            run.record(loss=1.0)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[Exporter, Cutter, Prometheus, Prometheus, pyrometer.Run]]:
    try:
        stack = find_stack(lambda _: None)
    except StackError as error:
        pytest.skip(str(error))
    (tmp_path / "state").mkdir()
    port = free_port()  # the same after each restart
    run = pyrometer.start("live", rings=str(tmp_path / "rings"), rank=0, world_size=1)
    exporter, cutter = Exporter(tmp_path, port), Cutter(port)
    cutter.start()
    first, second = Prometheus(tmp_path, "prom-a", port), Prometheus(tmp_path, "prom-b", cutter.port)
    exporter.start()
    with first.running(stack.prometheus), second.running(stack.prometheus):
        yield exporter, cutter, first, second, run
    exporter.stop()
    cutter.close()
    run.close()


def test_no_batch_is_lost_and_none_comes_twice(
    scene: tuple[Exporter, Cutter, Prometheus, Prometheus, pyrometer.Run],
) -> None:
    exporter, cutter, first, second, run = scene
    train(run, 4)
    for _ in range(CUTS):
        cutter.to_cut = 1
        train(run, 2.5)
    exporter.restart(signal.SIGTERM)
    train(run, 3)
    refused_before = [one.refused() for one in (first, second)]
    # Killed before it could know that its last answer was taken, the exporter serves that once more, with the same
    # timestamps: Prometheus has them, refuses them, and nothing is stored twice.
    exporter.restart(signal.SIGKILL)
    train(run, 4)
    steps = run.steps_finished()
    deadline = time.monotonic() + 15
    while min(len(one.batches()) for one in (first, second)) < steps and time.monotonic() < deadline:
        time.sleep(0.5)

    assert cutter.cut == CUTS
    assert refused_before == [0, 0]
    for one in (first, second):
        stored = one.batches()
        assert [number for _, number in stored] == list(range(steps))
        assert [at for at, _ in stored] == sorted({at for at, _ in stored})
    assert first.batches() == second.batches(), "both have the same timestamps"
