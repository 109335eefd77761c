"""From nothing to a message, beside a Prometheus and an Alertmanager that somebody has: with the manual's blocks alone.

Theirs are like kube-prometheus's: an own job, an own rule that always fires, an own receiver. The blocks of
docs/howto/existing-stack.md are pasted as they are; only the addresses of its examples become those of this test.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from pyrometer_simulator.demo.hardware import Node, exporter_flags
from pyrometer_simulator.demo.observe import shown_text
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.http_server import HttpServer, Request, Response
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(290)]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/existing-stack.md").read_text(encoding="utf-8")
YAML_BLOCK = re.compile(r'^```yaml title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
TOKEN = "xoxb-fake-token"
MODULES = {
    "pyrometer-alerting": "pyrometer_alerting.app.main",
    "pyrometer-doctor": "pyrometer_exporters.commands.doctor.main",
}
# Scrapes are 15 s apart in the manual's blocks, and a counter's rise is between two of them.
LONGEST_SECONDS = 90.0

THEIR_PROMETHEUS = """
global: {scrape_interval: 30s, evaluation_interval: 5s, external_labels: {cluster: prod-a}}
scrape_configs:
  - {job_name: prometheus, static_configs: [{targets: ["prometheus:9090"]}]}
rule_files: [theirs.yml]
"""
THEIR_RULES = """
groups:
  - name: general.rules
    rules: [{alert: Watchdog, expr: vector(1), labels: {severity: none}}, {alert: InfoInhibitor, expr: vector(1)}]
"""
THEIR_ALERTMANAGER = """
route: {receiver: default, group_by: [namespace, alertname], group_wait: 1s}
receivers:
  - {name: default, webhook_configs: [{url: "http://their-pager:8080/"}]}
"""


class Site(NamedTuple):
    """A site before anybody opens the manual: its addresses, two nodes, a channel and a pager."""

    folder: Path
    names: dict[str, str]
    nodes: list[Node]
    slack: FakeSlack
    processes: Processes
    paged: list[str]

    def here(self, text: str) -> str:
        """Put this site's addresses in the place of the manual's."""
        for theirs, ours in self.names.items():
            text = text.replace(theirs, ours)
        return text

    def paste(self) -> None:
        """Add each block to the file that its title names."""
        for title, block in YAML_BLOCK.findall(PAGE):
            if title.endswith((".yml", ".yaml")):
                path = self.folder / title
                path.parent.mkdir(parents=True, exist_ok=True)
                before = yaml.safe_load(path.read_text()) if path.exists() else None
                path.write_text(yaml.safe_dump(added(before, yaml.safe_load(self.here(textwrap.dedent(block))))))

    def command(self, step: str) -> list[str]:
        """Return the command of a step of the page, as its block has it."""
        block = PAGE.partition(f"## {step}.")[2].partition("```sh\n")[2].partition("```")[0]
        program, *flags = shlex.split(self.here(block.replace("\\\n", " ")))
        return [sys.executable, "-m", MODULES[program], *flags]


def added(before: Any, block: Any) -> Any:
    """Return a configuration with a block pasted into it: lists grow, named entries that are there already stay."""
    if isinstance(before, dict):
        return before | {name: added(before.get(name), value) for name, value in block.items()}
    if isinstance(before, list):
        known = {each["name"] for each in before if isinstance(each, dict) and "name" in each}
        return before + [each for each in block if not (isinstance(each, dict) and each.get("name") in known)]
    return block if before is None else before


@pytest.fixture
def site(tmp_path: Path, stack: Stack) -> Iterator[Site]:
    ports = {name: free_port() for name in ("gpu-001:9935", "gpu-002:9935", "prometheus:9090", "alertmanager:9093")}
    names = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    names |= {name: f"127.0.0.1:{free_port()}" for name in ("pyrometer:9937",)}
    names |= {'listen-address: ":9937"': f'listen-address: "{names["pyrometer:9937"]}"'}
    paged: list[str] = []

    def pager(request: Request) -> Response:
        paged.extend(alert["labels"]["alertname"] for alert in json.loads(request.body)["alerts"])
        return Response(b"ok")

    server = HttpServer(pager).start()
    names["their-pager:8080"] = f"127.0.0.1:{server.server_port}"
    nodes = [Node(tmp_path / "hardware" / f"gpu-00{number}", number, 8) for number in (1, 2)]
    (tmp_path / "token").touch(mode=0o600)
    (tmp_path / "token").write_text(TOKEN)
    names["/etc/pyrometer/slack-token"] = str(tmp_path / "token")
    folder, logs = tmp_path / "etc", tmp_path / "logs"
    folder.mkdir()
    logs.mkdir()
    with FakeSlack(channel_names=("gpu-alerts",), token=TOKEN) as slack, Processes(logs) as processes:
        names["C0123456789"] = next(iter(slack.channels))
        names["/etc/pyrometer/alerting.yaml"] = str(folder / "pyrometer/alerting.yaml")
        found = Site(folder, names, nodes, slack, processes, paged)
        for name, text in (
            ("prometheus", THEIR_PROMETHEUS),
            ("theirs", THEIR_RULES),
            ("alertmanager", THEIR_ALERTMANAGER),
        ):
            (folder / f"{name}.yml").write_text(found.here(text))
        yield found
    server.shutdown()
    server.server_close()


def start_nodes(site: Site) -> None:
    for node in site.nodes:
        name = node.folder.name
        flags = exporter_flags(node.folder, site.names[f"{name}:9935"])
        command = [sys.executable, "-m", "pyrometer_simulator.node", *flags, "--no-collector.checks"]
        site.processes.start(name, command)


def start_theirs(site: Site, stack: Stack) -> None:
    for name, program, port, flags in (
        ("alertmanager", stack.alertmanager_command, 9093, ["--storage.path=am", "--cluster.listen-address="]),
        ("prometheus", (str(stack.prometheus),), 9090, ["--storage.tsdb.path=data"]),
    ):
        address = site.names[f"{name}:{port}"]
        command = [*program, f"--config.file={name}.yml", f"--web.listen-address={address}", *flags]
        site.processes.start(name, command, cwd=site.folder)
        site.processes.wait_until_ready({name: f"http://{address}/-/ready"})


def reload_theirs(site: Site) -> None:
    for name in ("alertmanager", "prometheus"):
        site.processes._running[name].send_signal(signal.SIGHUP)


def until(holds: Callable[[], bool], what: Callable[[], str], site: Site) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not holds():
        site.processes.check()
        assert time.monotonic() < deadline, what()
        time.sleep(0.5)


def test_the_manuals_blocks_lead_from_nothing_to_a_message(site: Site, stack: Stack, tmp_path: Path) -> None:
    start_theirs(site, stack)
    start_nodes(site)
    site.paste()
    shutil.copytree(ROOT / "alert_rules", site.folder / "pyrometer/rules", ignore=shutil.ignore_patterns("tests"))
    stand_in = [f"--slack.api-url={site.slack.url}", f"--storage.path={tmp_path / 'alerting'}"]
    site.processes.start("alerting", [*site.command("4"), *stand_in])
    reload_theirs(site)

    # Step 6, the page's own check; this site has no Grafana.
    asked = [flag for flag in site.command("6") if not flag.startswith("--grafana")]
    told: list[str] = []

    def all_arrives() -> bool:
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        told[:] = [done.stdout + done.stderr]
        return done.returncode == 0

    until(all_arrives, lambda: f"the page's check: {told[0]}", site)
    assert "missing" not in told[0]

    gpu = list(site.nodes[0].gpus)[3]
    site.nodes[0].log.xid(gpu.pci_bus_id, 79, "GPU has fallen off the bus.", pid=1234)

    def message() -> str:
        return "\n".join(shown_text(each) for each in site.slack.messages("gpu-alerts"))

    until(lambda: "gpu-001 GPU 3" in message(), lambda: f"no message names gpu-001 GPU 3: {message()}", site)
    assert "Xid 79" in message()
    assert "gpu-002" not in message()

    # Their own way of alerts is as it was: theirs go to their pager, none of ours does. Prometheus sends an alert again
    # after a minute, so theirs may come after our message.
    theirs = {"Watchdog", "InfoInhibitor"}
    until(lambda: theirs <= set(site.paged), lambda: f"their pager got {set(site.paged)}", site)
    assert set(site.paged) == theirs
