"""The page on TLS and passwords: its blocks are run and pasted, a real Prometheus and Alertmanager use them."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
import yaml

from pyrometer_simulator.ports import free_port
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.stack.prometheus import running

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/howto/tls.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


def block(title: str) -> str:
    found = re.findall(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, title
    return str(found[0])


class Secured(NamedTuple):
    """The folder that the page calls /etc/pyrometer, and an exporter with its files."""

    folder: Path
    exporter: str

    def pasted(self, title: str) -> Any:
        return yaml.safe_load(block(title).replace("/etc/pyrometer", str(self.folder)))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("etc-pyrometer")
    play(folder, block("authority"))
    play(folder, block("certificate").replace("gpu-001", "localhost", 1))
    hashed = play(folder, block("password")).strip().splitlines()[-1]
    text = block("web.yaml").replace("gpu-001", "localhost")
    (folder / "web.yaml").write_text(re.sub(r"prometheus: \S+", f"prometheus: {hashed}", text))
    play(folder, block("token"))
    (folder / "state").mkdir()
    flags = [f"--web.config.file={folder}/web.yaml", f"--path.state={folder}/state"]
    with served([f"{BIN}/pyrometer-node-exporter", *flags], folder / "node.log") as port:
        yield Secured(folder, f"localhost:{port}")


def play(folder: Path, commands: str) -> str:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    answer = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands], cwd=folder, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@contextlib.contextmanager
def served(command: list[str], log: Path) -> Iterator[int]:
    """Run a program on a free port until the end; it listens once this yields."""
    port = free_port()
    with log.open("ab") as output:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=output, stderr=output)
    try:
        assert eventually(lambda: listens(port)), log.read_text()
        yield port
    finally:
        process.terminate()
        process.wait(20)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def scraped(stack: Stack, secured: Secured, jobs: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the last error of each job of a Prometheus; empty where it scrapes."""
    target = {"static_configs": [{"targets": [secured.exporter]}], "scrape_interval": "10s", "scrape_timeout": "10s"}
    path = secured.folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump({"scrape_configs": [{"job_name": n, **target, **job} for n, job in jobs.items()]}))
    flags = (f"--config.file={path}", f"--storage.tsdb.path={secured.folder}/data")
    with running(stack.prometheus, lambda _port: flags, secured.folder / "prometheus.log") as url:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            found = requests.get(f"{url}/api/v1/targets", timeout=10).json()["data"]["activeTargets"]
            if len(found) == len(jobs) and all(each["health"] != "unknown" for each in found):
                return {each["labels"]["job"]: each["lastError"] for each in found}
            time.sleep(0.2)
    raise AssertionError("not every job was scraped")


def test_prometheus_scrapes_with_the_pages_lines_and_needs_each_of_them(stack: Stack, secured: Secured) -> None:
    lines = secured.pasted("in each job")
    without = {name: {other: lines[other] for other in lines if other != name} for name in lines}
    batches = {"metrics_path": "/batches", "params": {"consumer": ["a"]}}
    found = scraped(stack, secured, {"node": lines, "batches": {**lines, **batches}, **without})
    assert (found["node"], found["batches"]) == ("", "")
    assert found["scheme"] != ""
    assert "certificate signed by unknown authority" in found["tls_config"]
    assert "401" in found["basic_auth"]


def test_the_containers_health_check_notices_tls(secured: Secured) -> None:
    command = [sys.executable, ROOT / "compose/healthcheck.py", f"http://{secured.exporter}/-/ready"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout.split()[-1]) == (0, "401"), answer.stderr


def test_alertmanager_delivers_with_the_pages_lines_and_the_doctor_sees_it(stack: Stack, secured: Secured) -> None:
    command = [
        f"{BIN}/pyrometer-alerting", f"--storage.path={secured.folder}/alerting",
        f"--web.config.file={secured.folder}/web.yaml", f"--web.bearer-token-file={secured.folder}/webhook-token",
    ]  # fmt: skip
    with served(command, secured.folder / "alerting.log") as port:
        webhook = secured.pasted("in the receiver's webhook_configs")
        webhook["url"] = f"https://localhost:{port}/api/v1/alertmanager"
        with alertmanager(stack, secured.folder, webhook) as theirs:
            alert = [
                {"labels": {"alertname": "FirstAlert", "severity": "warning", "component": "stack", "cluster": "c"}}
            ]
            assert requests.post(f"{theirs}/api/v2/alerts", json=alert, timeout=10).status_code == 200
            assert eventually(lambda: "FirstAlert" in incidents(secured, port)), (secured.folder / "am.log").read_text()
            told = doctor(secured, theirs, port)
    assert "the alerting service is ready" in told, told


def incidents(secured: Secured, port: int) -> str:
    login = ("prometheus", (secured.folder / "scrape-password").read_text().strip())
    where = f"https://localhost:{port}/api/v1/incidents"
    return requests.get(where, auth=login, verify=str(secured.folder / "ca.pem"), timeout=10).text


def doctor(secured: Secured, alertmanager: str, port: int) -> str:
    command = (
        block("ask").replace("http://alertmanager:9093", alertmanager).replace("@alerting:9937", f"@localhost:{port}")
    )
    command = command.replace("http://prometheus:9090", "http://127.0.0.1:1")
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    answer = subprocess.run(
        ["bash", "-c", command], cwd=secured.folder, env=environment, capture_output=True, text=True, check=False
    )
    return answer.stdout + answer.stderr


@contextlib.contextmanager
def alertmanager(stack: Stack, folder: Path, webhook: dict[str, Any]) -> Iterator[str]:
    """Run a real Alertmanager with one receiver."""
    receiver = {"name": "pyrometer", "webhook_configs": [webhook]}
    route = {"receiver": "pyrometer", "group_wait": "0s", "group_interval": "1s"}
    (folder / "am.yaml").write_text(yaml.safe_dump({"route": route, "receivers": [receiver]}))
    command = [*stack.alertmanager_command, f"--config.file={folder}/am.yaml", f"--storage.path={folder}/am"]
    with served([*command, "--cluster.listen-address="], folder / "am.log") as port:
        yield f"http://127.0.0.1:{port}"


def eventually(holds: Callable[[], object], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.3)
    return False
