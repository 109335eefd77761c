"""The page about keeping batches: its blocks as they are, on a real VictoriaMetrics."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.http_call import call
from pyrometer_simulator.pair.pages import Hosts, blocks
from pyrometer_simulator.stack.cache import cache_folder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
PAGE = blocks(ROOT / "docs/howto/keep-batches.md")
DAY = 86_400.0
RECORD = 'run:pyrometer_train_batch_mfu_ratio:window1m{run="r",stat="p50"}'
BATCH = 'pyrometer_train_batch_step{run="r"}'


def program(name: str) -> str:
    found = shutil.which(name) or str(cache_folder() / "victoria-metrics/usr/bin" / name)
    if not os.access(found, os.X_OK):
        pytest.skip(f"no {name}: it is in Debian's package victoria-metrics; its folder on PATH")
    return found


@dataclass
class Stores:
    hosts: Hosts

    def write(self, name: str, lines: list[tuple[str, float, float]]) -> None:
        body = "\n".join(f"{series} {value} {at * 1000:.0f}" for series, value, at in lines).encode()
        self._ask(name, "/api/v1/import/prometheus", body)
        self._ask(name, "/internal/force_flush")

    def samples(self, name: str, series: str, days: float) -> list[tuple[float, float]]:
        self._ask(name, "/internal/force_flush")
        asked = urllib.parse.urlencode({"match[]": series, "start": f"{time.time() - days * DAY:.0f}"})
        answer = self._ask(name, f"/api/v1/export?{asked}")
        rows = [json.loads(line) for line in answer.splitlines()]
        return [pair for row in rows for pair in zip(row["timestamps"], row["values"], strict=True)]

    def copy(self) -> None:
        command = self.hosts.local(PAGE["copy"], {}).replace("vmctl ", f"{program('vmctl')} ", 1)
        subprocess.run(command, shell=True, check=True, capture_output=True, timeout=60)  # noqa: S602  our own page

    def _ask(self, name: str, path: str, body: bytes | None = None) -> bytes:
        reply = call(f"http://127.0.0.1:{self.hosts.port(name, 8428)}{path}", body)
        assert reply.status < 300, reply
        return reply.body


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """The first store with a retention of 30 days, and the page's second one."""
    hosts, binary = Hosts("kept", "victoria"), program("victoria-metrics")
    (tmp_path / "logs").mkdir()
    with Processes(tmp_path / "logs") as processes:
        first = PAGE["kept"].replace("100y", "30d").replace("kept", "victoria")
        for name, text in (("kept", PAGE["kept"]), ("victoria", first)):
            _, *flags = hosts.command(text, {"/victoria/": tmp_path})
            processes.start(name, [binary, *flags, "-memory.allowedBytes=64MB"])
            processes.wait_until_ready({name: f"http://127.0.0.1:{hosts.port(name, 8428)}/health"})
        yield Stores(hosts)


def test_records_are_copied_once_and_batches_are_not(stores: Stores) -> None:
    now = time.time()
    records = [(RECORD, 0.4, now - 60 * minute) for minute in range(1, 1000)]
    stores.write("victoria", [*records, *((BATCH, step, now - 10 - step / 100) for step in range(500))])
    for _ in range(2):
        stores.copy()
    assert len(stores.samples("victoria", BATCH, 1)) == 500
    assert len(stores.samples("kept", RECORD, 2)) == len(records)
    assert stores.samples("kept", BATCH, 2) == []


def test_a_day_that_was_not_copied_is_made_up_for(stores: Stores) -> None:
    now = time.time()
    stores.write("victoria", [(RECORD, 0.4, now - 2.5 * DAY)])
    stores.copy()
    assert len(stores.samples("kept", RECORD, 4)) == 1


def test_the_first_store_forgets_and_the_second_does_not(stores: Stores) -> None:
    now = time.time()
    old = [(RECORD, 0.4, now - days * DAY) for days in (40, 400, 4000)]
    for name in ("victoria", "kept"):
        stores.write(name, old)
    assert stores.samples("victoria", RECORD, 5000) == []
    assert len(stores.samples("kept", RECORD, 5000)) == len(old)
