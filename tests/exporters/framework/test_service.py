"""The exporter as a real process, as systemd and operators see it."""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import signal
import socket
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tools.metrics_page import OWN_FAMILIES

from pyrometer_exporters.framework import service
from pyrometer_kit.http_message import Request

Start = Callable[..., Any]


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--unknown"], "unrecognized arguments: --unknown"),
        (["--web.listen=x"], "unrecognized arguments"),
        (["--web.listen-address=nonsense"], "is not host:port, such as 127.0.0.1:9935"),
        (["--web.listen-address=192.0.2.1:1"], "can't listen on 192.0.2.1:1"),
        (["--web.listen-address=a..b:1"], "can't listen on a..b:1"),
        (["--log.level=loud"], "invalid choice: 'loud'"),
        (["--web.config.file=/nowhere/web.yml"], "can't read /nowhere/web.yml: No such file or directory"),
        (["--web.config.file={tmp}/bad.yml"], "/bad.yml:2: not valid YAML"),
        (["--web.config.file={tmp}/users.yml"], "basic_auth_users.prom is not a bcrypt hash"),
        (["--path.state={tmp}/bad.yml"], "can't write to"),
        (["--collector.gpu.device-exclude=("], "'(' is not a regular expression"),
        (["--collector.nic.device-exclude=("], "'(' is not a regular expression"),
    ],
    ids=str,
)
def test_an_unusable_flag_ends_in_one_line_and_status_2(
    exporter: Start, tmp_path: Path, flags: list[str], says: str
) -> None:
    (tmp_path / "bad.yml").write_text("a: 1\n\tb: 2\n")
    (tmp_path / "users.yml").write_text("basic_auth_users: {prom: hunter2}\n")
    process = exporter(*(flag.format(tmp=tmp_path) for flag in flags))
    out, err = process.popen.communicate(timeout=30)
    lines = [line for line in err.splitlines() if not line.startswith("time=")]
    assert process.popen.returncode == 2, err
    assert out == ""
    assert len(lines) == 1, err
    assert lines[0].startswith("pyrometer-node-exporter: ")
    assert says in lines[0]
    assert "hunter2" not in err
    assert "Traceback" not in err


def test_a_port_in_use(exporter: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = exporter(f"--web.listen-address=127.0.0.1:{taken.getsockname()[1]}")
        _, err = process.popen.communicate(timeout=30)
    lines = [line for line in err.splitlines() if not line.startswith("time=")]
    assert process.popen.returncode == 2
    assert len(lines) == 1
    assert "the port is in use by another program; give another address" in lines[0]


def test_on_a_node_with_nothing_it_starts_serves_and_says_what_is_absent(exporter: Start) -> None:
    process = exporter().wait_ready()
    status, text = process.get("/metrics")
    found = samples(text)
    assert status == 200
    for collector in ("train", "gpu", "nic"):
        if ("pyrometer_collector_success", collector) not in found:
            continue  # not part of this build
        assert found["pyrometer_collector_success", collector] == 1
        downs = [key for key in found if key[0] == "pyrometer_down_reason_info" and key[1] == collector]
        assert downs, f"{collector} says nothing of what it lacks"
    assert found["pyrometer_down_reason_info", "train", "rings", "no_rings"] == 1
    assert ("process_resident_memory_bytes",) in found
    status, page = process.get("/")
    assert status == 200
    assert "no training rank has reported here yet" in page
    assert process.get("/-/healthy") == (200, "healthy\n")
    assert process.get("/-/ready") == (200, "ready\n")
    assert process.get("/batches") == (200, "# EOF\n")
    assert process.get("/metrics/")[0] == 404
    code, seconds = process.terminate()
    assert code == 0
    assert seconds < 10
    log = "".join(process.log)
    assert "Traceback" not in log
    assert log.count("no_rings") == 1, "told once, not on every scrape"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_on_a_signal_with_status_0_even_with_connections_open(exporter: Start, number: int) -> None:
    process = exporter().wait_ready()
    idle = [socket.create_connection(("127.0.0.1", process.port)) for _ in range(5)]
    idle[0].sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert idle[0].recv(12) == b"HTTP/1.1 200"
    code, seconds = process.terminate(number)
    for one in idle:
        one.close()
    assert (code, seconds < 10) == (0, True)
    assert "Traceback" not in "".join(process.log)


def test_hostile_ring_names_break_no_page(exporter: Start, tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    for name in (b"\xff.ring", b'"\n<script>.ring'):
        Path(os.fsdecode(os.fsencode(rings) + b"/" + name)).touch()
    process = exporter(f"--path.rings={rings}").wait_ready()
    status, text = process.get("/metrics")
    assert status == 200
    assert ("pyrometer_down_reason_info", "train", "?.ring", "bad_ring") in samples(text)
    status, page = process.get("/")
    assert status == 200
    assert "<script>" not in page
    process.terminate()
    assert "Traceback" not in "".join(process.log)


def test_logs_as_json(exporter: Start) -> None:
    process = exporter("--log.format=json", "--log.level=debug").wait_ready()
    process.get("/metrics")
    process.terminate()
    lines = "".join(process.log).splitlines()
    assert all({"time", "level", "source", "msg"} <= json.loads(line).keys() for line in lines)


def test_basic_auth_in_a_real_process(exporter: Start, tmp_path: Path) -> None:
    import base64

    import bcrypt

    hashed = bcrypt.hashpw(b"hunter2", bcrypt.gensalt(4)).decode()
    (tmp_path / "web.yml").write_text(f"basic_auth_users: {{prom: '{hashed}'}}")
    process = exporter(f"--web.config.file={tmp_path}/web.yml").wait_ready()
    assert process.get("/metrics")[0] == 401
    good = "Basic " + base64.b64encode(b"prom:hunter2").decode()
    assert process.get("/metrics", Authorization=good)[0] == 200
    assert process.get("/batches")[0] == 401
    process.terminate()
    assert "hunter2" not in "".join(process.log)


MISBEHAVING = """
import sys, threading, time, types
from pyrometer_exporters.framework import service
from pyrometer_exporters.framework.collector import CollectorSpec, Reply
from pyrometer_exporters.framework.metrics import Family

VALUE = Family("x_value", "gauge", "A value.", ("who",))
GATHERINGS = Family("x_gatherings_total", "counter", "Gatherings.")
tries = []

class Hangs:
    def collect(self, until):
        threading.Event().wait()
    def endpoints(self):
        return {"/hangs": lambda query: threading.Event().wait()}
    def close(self):
        threading.Event().wait()

class Fine:
    n = 0
    def collect(self, until):
        Fine.n += 1
        time.sleep(0.05)
        return [VALUE.sample(1, "fine"), GATHERINGS.sample(Fine.n)]
    def close(self):
        pass

def not_at_first(context):
    tries.append(1)
    if len(tries) < 3:
        raise RuntimeError("driver not loaded yet")
    return Fine()

service.discover = lambda package: [
    CollectorSpec("hangs", "hangs", (VALUE,), lambda context: Hangs(), deadline_seconds=HANG, default_enabled=False),
    CollectorSpec("fine", "is fine", (VALUE,), lambda context: Fine()),
    CollectorSpec("later", "can be built later", (VALUE,), not_at_first, default_enabled=False),
]
sys.exit(service.run(service.Exporter("x-exporter", "X", types.ModuleType("x"), "127.0.0.1:0")))
"""


@pytest.fixture
def misbehaving(exporter: Start, tmp_path: Path) -> Start:
    def start(*flags: str, hang: float = 0.3) -> Any:
        script = tmp_path / "exporter.py"
        script.write_text(textwrap.dedent(MISBEHAVING).replace("HANG", str(hang)))
        return exporter(*flags, command=(str(script),)).wait_ready()

    return start


def test_a_hung_collector_neither_hides_others_nor_keeps_the_process_from_ending(misbehaving: Start) -> None:
    process = misbehaving("--collector.hangs", hang=5)
    began = time.monotonic()
    status, text = process.get("/metrics", X_Prometheus_Scrape_Timeout_Seconds="3")
    found = samples(text)
    assert status == 200
    # The first collection, made at the start without anyone's timeout, may still have been under way.
    assert time.monotonic() - began < 15
    assert found["x_value", "fine"] == 1
    assert found["pyrometer_collector_success", "hangs"] == 0
    code, seconds = process.terminate()
    assert code == 0
    assert seconds < 10


@pytest.mark.parametrize(("timeout", "seconds"), [("3", 2.5), ("10", 9.5), ("600", 60.0), ("soon", 9.5)])
def test_an_answer_is_on_its_way_before_prometheus_gives_up(timeout: str, seconds: float) -> None:
    request = Request("GET", "/metrics", headers={"x-prometheus-scrape-timeout-seconds": timeout})
    assert service._scrape_seconds(request) == seconds


def test_endpoints_that_hang_do_not_starve_scrapes(misbehaving: Start) -> None:
    process = misbehaving("--collector.hangs")
    hanging = [socket.create_connection(("127.0.0.1", process.port)) for _ in range(40)]
    for one in hanging:
        one.sendall(b"GET /hangs HTTP/1.1\r\n\r\n")
    began = time.monotonic()
    assert process.get("/metrics")[0] == 200
    assert time.monotonic() - began < 10
    code, seconds = process.terminate()
    for one in hanging:
        one.close()
    assert (code, seconds < 10) == (0, True)


def test_a_collector_that_cannot_be_built_is_down_until_it_can(misbehaving: Start) -> None:
    process = misbehaving("--collector.later")
    states = []
    for _ in range(6):
        found = samples(process.get("/metrics")[1])
        assert found["pyrometer_collector_success", "fine"] == 1
        states.append(found["pyrometer_collector_success", "later"])
    assert states[-1] == 1
    process.terminate()


def test_parallel_scrapes_share_one_gathering_and_none_is_refused(misbehaving: Start) -> None:
    process = misbehaving()
    process.get("/metrics")
    before = samples(process.get("/metrics")[1])["x_gatherings_total",]
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda _: process.get("/metrics"), range(100)))
    assert {status for status, _ in answers} == {200}
    gatherings = max(samples(text)["x_gatherings_total",] for _, text in answers) - before
    assert gatherings < 30
    process.terminate()


def test_a_state_folder_that_cannot_be_written_is_told_and_everything_is_served(exporter: Start) -> None:
    process = exporter("--path.state=/proc/nowhere").wait_ready()
    found = samples(process.get("/metrics")[1])
    assert found["pyrometer_exporter_state_writable",] == 0
    assert found["pyrometer_collector_success", "nic"] == 1
    assert found["pyrometer_collector_success", "train"] == 1
    assert process.terminate()[0] == 0
    log = "".join(process.log)
    assert log.count("--path.state: can't write to /proc/nowhere") == 1
    assert "Traceback" not in log


def test_it_says_of_itself_what_is_on_the_golden_page(
    exporter: Start, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    (tmp_path / "web.yml").write_text("{}\n")
    process = exporter(f"--path.state={tmp_path}/state", f"--web.config.file={tmp_path}/web.yml").wait_ready()
    names = {family.name for family in OWN_FAMILIES}
    lines = [
        line
        for line in process.get("/metrics")[1].splitlines(keepends=True)
        if line.partition("{")[0].partition(" ")[0] in names and ("collector=" not in line or '"train"' in line)
    ]
    text = re.sub(r"(_seconds\{.*\}) .*", r"\1 SECONDS", "".join(lines))
    golden(re.sub(r'version="[^"]*"', 'version="VERSION"', text), "golden/service.txt")
