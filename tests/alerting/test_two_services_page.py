"""The page for two services, followed to the letter: its blocks are run and pasted, with ports in place of hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from alerting_fakes import wait_until
from alerting_real import RealAlertmanager, iso, prom_alert

from pyrometer_simulator.ports import free_port
from pyrometer_simulator.postgres import Pair, missing
from pyrometer_simulator.slack import FakeSlack

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/two-alerting-services.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
PASSWORD = "chosen by the reader"
TAKEOVER_SECONDS = 10.0


def block(words: str) -> str:
    """Return the page's only block with these words."""
    (found,) = [textwrap.dedent(text) for _, _, text in BLOCK.findall(PAGE) if words in text]
    return found


def filled(words: str, **places: str) -> str:
    """Return a block with the reader's own values in place of the page's; each of them must be in it."""
    text = block(words)
    for place, value in places.items():
        assert place in text, f"the page has {place} no more"
        text = text.replace(place, value)
    return text


class Reader:
    """Has a PostgreSQL with a standby, an Alertmanager and two hosts, and does what the page says."""

    def __init__(self, folder: Path, slack: FakeSlack, pair: Pair) -> None:
        self.folder, self._slack, self._pair = folder, slack, pair
        self.ports = {"alerting-1:9937": free_port(), "alerting-2:9937": free_port()}
        self.services: dict[str, subprocess.Popen[bytes]] = {}
        self.alertmanager = RealAlertmanager(folder / "alertmanager")

    def make_the_database(self) -> None:
        rules = self._pair.primary.folder / "pg_hba.conf"
        rules.write_text(f"host all pyrometer 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        self._pair.primary.ask("SELECT pg_reload_conf()")
        self._pair.primary.ask("DROP DATABASE alerting")  # the pair's own
        for statement in filled("CREATE ROLE", **{"'...'": f"'{PASSWORD}'"}).splitlines():
            self._pair.primary.ask(statement)

    def ask_for_standbys(self) -> None:
        """Paste the two settings, with the name of the standby that there is."""
        with (self._pair.primary.folder / "postgresql.conf").open("a") as file:
            file.write(filled("synchronous_standby_names", **{"standby_1, standby_2": "standby"}))
        self._pair.primary.ask("ALTER SYSTEM RESET synchronous_standby_names")
        self._pair.primary.ask("SELECT pg_reload_conf()")
        assert self._pair.primary.ask("SHOW synchronous_standby_names") == "ANY 1 (standby)"

    def write_the_password(self) -> None:
        self._run(filled("umask", **{"'...'": f"'{PASSWORD}'", "/etc/pyrometer": str(self.folder)}))

    def start(self, host: str) -> None:
        """Run the page's command, as a shell would, on one of the hosts."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self._pair.servers)
        (self.folder / "alerting.yaml").write_text("slack-users: ['*']\n")
        command = filled(
            "pyrometer-alerting --storage.url",
            **{
                "db-1,db-2": hosts,
                ":9937": f"127.0.0.1:{self.ports[host]}",
                "/etc/pyrometer": str(self.folder),
                "...": f"--slack.api-url={self._slack.url} '--slack.channel=#gpu-alerts'",
            },
        )
        with (self.folder / f"{host}.log").open("ab") as log:
            self.services[host] = subprocess.Popen(
                ["sh", "-c", f"exec {command}"], stdout=log, stderr=log, env=self._environment()
            )

    def stop(self, host: str) -> None:
        process = self.services.pop(host)
        process.terminate()
        process.wait(40)

    def start_alertmanager(self) -> None:
        """Paste the receiver in place of the old one."""
        receivers = filled("webhook_configs", **{host: f"127.0.0.1:{port}" for host, port in self.ports.items()})
        file = self.folder / "alertmanager/am.yaml"
        before, rest = file.read_text().split("receivers:\n")
        others = "  - name: nobody\n" + rest[rest.index("inhibit_rules:") :]
        file.write_text(before + receivers.rstrip() + "\n" + others)
        self.alertmanager.start()

    def look(self) -> dict[str, str]:
        """Return what the page's command says of each host, in its order."""
        said = self._run(filled("curl", **{host: f"127.0.0.1:{port}" for host, port in self.ports.items()}))
        values = [line.split()[-1] for line in said.splitlines()]
        return dict(zip([host for host in self.ports if host in self.services], values, strict=False))

    def leader(self) -> str:
        others = ["0.0"] * (len(self.services) - 1)
        wait_until(lambda: sorted(self.look().values()) == [*others, "1.0"], seconds=60)
        return next(host for host, value in self.look().items() if value == "1.0")

    def _run(self, command: str) -> str:
        return subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60, env=self._environment()
        ).stdout

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return os.environ | {"PYROMETER_SLACK_BOT_TOKEN": "xoxb-test", "PATH": path}


@pytest.fixture
def reader(tmp_path: Path, slack: FakeSlack) -> Iterator[Reader]:
    with Pair(standby=True) as pair:
        one = Reader(tmp_path, slack, pair)
        try:
            yield one
        finally:
            one.alertmanager.end()
            for host in list(one.services):
                one.stop(host)


def test_who_follows_the_page_has_two_services_of_which_one_may_go(reader: Reader, slack: FakeSlack) -> None:
    reader.make_the_database()
    reader.ask_for_standbys()
    reader.write_the_password()
    assert (reader.folder / "database-password").stat().st_mode & 0o077 == 0
    for host in reader.ports:
        reader.start(host)
    first = reader.leader()
    reader.start_alertmanager()
    alert = prom_alert("GpuLost", "page", began=time.time(), node="gpu-page")
    reader.alertmanager.post(alert)
    wait_until(lambda: slack.messages("gpu-alerts"), seconds=60)
    reader.stop(first)
    began = time.monotonic()
    assert reader.leader() != first
    assert time.monotonic() - began < TAKEOVER_SECONDS
    reader.alertmanager.post({**alert, "endsAt": iso(time.time())})  # in whole seconds it may end before it began: 400
    wait_until(lambda: "Resolved" in slack.messages("gpu-alerts")[0]["text"], seconds=60)
    assert len(slack.messages("gpu-alerts")) == 1
    logged = "".join(path.read_text() for path in reader.folder.glob("*.log"))
    assert PASSWORD not in logged
    assert "Traceback" not in logged


def test_the_page_names_the_extra_that_there_is() -> None:
    (extra,) = set(re.findall(r"pip install 'pyrometer-alerting\[(\w+)\]'", PAGE))
    assert f"{extra} = [" in (ROOT / "alerting/pyproject.toml").read_text(encoding="utf-8")
