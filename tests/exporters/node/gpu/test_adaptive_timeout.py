"""How long a scrape waits for a GPU, and what a hung one costs the rest."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from tests.waiting import until

from pyrometer_exporters.node.gpu.adaptive_timeout import LONGEST_SECONDS, SHORTEST_SECONDS, AdaptiveTimeout
from pyrometer_kit.http_client import get
from pyrometer_simulator.nvml import SimulatedGpus


def test_a_gpu_that_was_never_read_may_take_long_to_wake() -> None:
    assert AdaptiveTimeout().seconds == LONGEST_SECONDS


def test_the_wait_follows_what_the_gpu_takes_and_forgets_slowly() -> None:
    patience = AdaptiveTimeout()
    patience.took(0.01)
    assert patience.seconds == SHORTEST_SECONDS
    patience.took(0.3)
    assert patience.seconds == pytest.approx(1.2)
    patience.took(0.01)
    assert 0.9 < patience.seconds < 1.2
    patience.took(60)
    assert patience.seconds == LONGEST_SECONDS


def test_a_gpu_that_failed_is_not_waited_for_as_one_being_woken() -> None:
    patience = AdaptiveTimeout()
    patience.failed()
    assert patience.seconds == SHORTEST_SECONDS


def test_one_hung_gpu_costs_a_scrape_a_moment_and_the_next_nothing(make_node: Any) -> None:
    node = make_node(count=4, shortest=0.5)
    healthy = [_seconds(node.scrape) for _ in range(3)]
    node.gpus[1].hang()
    took = []
    for _ in range(4):
        start = time.monotonic()
        assert node.scrape().downs == {"1": "deadline"}
        took.append(time.monotonic() - start)
    assert took[0] < LONGEST_SECONDS + max(healthy)
    assert min(took) < 0.5, "once the sampler hangs in it, no scrape waits for the GPU"


def test_a_gpu_that_gets_slower_is_missed_and_then_waited_for(make_node: Any) -> None:
    node = make_node(count=4, shortest=SHORTEST_SECONDS)
    for _ in range(2):
        node.scrape()
    node.gpus[1].slow(0.012)
    reasons: set[str] = set()
    for _ in range(50):  # once; on a busy machine others are missed as well, and more often
        downs = node.scrape().downs
        reasons |= set(downs.values())
        until(lambda: not any(gpu.member.busy for gpu in node.collector._registry.gpus))
        if not downs and node.collector._registry.gpus[1].timeout.seconds > SHORTEST_SECONDS:
            break
    assert downs == {}
    assert reasons <= {"deadline"}


def test_when_all_are_late_they_are_waited_for(make_node: Any) -> None:
    node = make_node(count=3, shortest=SHORTEST_SECONDS)
    for _ in range(2):
        node.scrape()
    for gpu in node.collector._registry.gpus:  # a loaded machine may have made some of them usually slow
        gpu.timeout = AdaptiveTimeout()
        gpu.timeout.took(0.0)
    for gpu in node.gpus:
        gpu.slow(0.008)
    assert node.scrape().downs == {}


def test_a_real_exporter_serves_seven_gpus_on_every_scrape_while_the_eighth_hangs(tmp_path: Path) -> None:
    gpus = SimulatedGpus(tmp_path / "gpus", count=8)
    gpus.write_pci_tree(tmp_path / "sys")
    with _exporter(tmp_path) as (pid, port):
        until(lambda: len(_up(port)) == 8)
        healthy = [_seconds(lambda: _up(port)) for _ in range(10)]
        gpus[3].hang()
        hanging = []
        before = _threads(pid)
        for _ in range(30):
            hanging.append(_seconds(lambda: _serves_all_but(3, port)))
        threads = _threads(pid)
        gpus[3].recover()
        until(lambda: set(_up(port).values()) == {1})
    # A loaded machine makes all scrapes slower, and slow GPUs get a thread of their own: one each, not one a scrape.
    assert max(hanging) < LONGEST_SECONDS + max(healthy)
    assert median(hanging) < SHORTEST_SECONDS + 2 * median(healthy)
    assert threads - before <= len(gpus) + 2


def _seconds(call: Callable[[], object]) -> float:
    start = time.monotonic()
    call()
    return time.monotonic() - start


def _serves_all_but(gpu: int, port: int) -> None:
    up = _up(port)
    assert {number for number, value in up.items() if value == 1} == {str(n) for n in range(8) if n != gpu}


@contextmanager
def _exporter(folder: Path) -> Iterator[tuple[int, int]]:
    """The node exporter as a process of its own, over the simulated GPUs of a folder: its pid and port."""
    flags = ["--web.listen-address=127.0.0.1:0", f"--path.sysfs={folder}/sys", f"--path.procfs={folder}/proc",
             f"--path.state={folder}/state", f"--path.kmsg={folder}/kmsg", f"--path.rings={folder}/rings"]  # fmt: skip
    command = [sys.executable, "-m", "pyrometer_simulator.node", "--gpus", str(folder / "gpus"), "--", *flags]
    log = folder / "log"
    with log.open("w") as file, subprocess.Popen(command, stderr=file) as process:
        try:
            until(lambda: "listening on" in log.read_text())
            found = re.search(r"listening on 127.0.0.1:(\d+)", log.read_text())
            assert found
            yield process.pid, int(found.group(1))
        finally:
            process.terminate()
            assert process.wait(5) == 0


def _text(port: int) -> str:
    return get(f"http://127.0.0.1:{port}/metrics").decode()


def _up(port: int) -> dict[str, int]:
    lines = [line for line in _text(port).splitlines() if line.startswith("pyrometer_gpu_up{")]
    return {line.split('"')[1]: int(line.rsplit(" ", 1)[1]) for line in lines}


def _threads(pid: int) -> int:
    found = re.search(r"^Threads:\s+(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found.group(1))
