"""A stand-in of each kind, an incident's whole life on a clock of its own, and the real service beside them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.delivery_loop import Timing
from pyrometer_alerting.channel.outlets.courier import OutletCourier
from pyrometer_alerting.channel.outlets.email import Email, Server
from pyrometer_alerting.channel.outlets.http import Endpoint
from pyrometer_alerting.channel.outlets.notice import Entry, Outlet
from pyrometer_alerting.channel.outlets.opsgenie import Opsgenie
from pyrometer_alerting.channel.outlets.pagerduty import PagerDuty
from pyrometer_alerting.channel.outlets.teams import Teams
from pyrometer_alerting.channel.outlets.webhook import Webhook
from pyrometer_simulator.outlets.mail import PASSWORD, USER, FakeMail
from pyrometer_simulator.outlets.services import (
    GENIE_KEY,
    ROUTING_KEY,
    FakeOpsgenie,
    FakePagerDuty,
    FakeTeams,
    FakeWebhook,
)

if TYPE_CHECKING:
    from alerting_fakes import Bench

SECRET = b"webhook-secret"


@dataclass
class Stand:
    """All stand-ins, and the outlets that lead to them."""

    pagerduty: FakePagerDuty
    opsgenie: FakeOpsgenie
    teams: FakeTeams
    webhook: FakeWebhook
    mail: FakeMail
    ca_file: Path
    outlets: Mapping[str, Outlet] = field(default_factory=dict)

    def config(self, folder: Path) -> str:
        """Write the secrets, and return the section of a configuration file that names all five."""
        secrets = {"pd": ROUTING_KEY, "og": GENIE_KEY, "hook": SECRET.decode(), "teams": self.teams.hook}
        for name, secret in {**secrets, "mail": PASSWORD}.items():
            (folder / name).write_text(secret)
            (folder / name).chmod(0o600)
        return f"""
outlets:
  - {{name: pager, kind: pagerduty, url: "{self.pagerduty.url}/v2/enqueue", key-file: {folder}/pd}}
  - {{name: genie, kind: opsgenie, url: "{self.opsgenie.url}", key-file: {folder}/og}}
  - {{name: cards, kind: teams, url-file: {folder}/teams}}
  - {{name: hook, kind: webhook, url: "{self.webhook.url}/hook", secret-file: {folder}/hook}}
  - name: mail
    kind: email
    server: 127.0.0.1:{self.mail.port}
    ca-file: {self.ca_file}
    user: {USER}
    password-file: {folder}/mail
    from: pyrometer@example.com
    to: [operators@example.com, Night <night@example.com>]
"""


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on PATH: install the package openssl")
    folder = tmp_path_factory.mktemp("mail")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=mail"
    command += " -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem"


@pytest.fixture
def stand(certificate: Path) -> Iterator[Stand]:
    with ExitStack() as opened:
        pagerduty, opsgenie, teams = FakePagerDuty(), FakeOpsgenie(), FakeTeams()
        webhook, mail = FakeWebhook(SECRET), FakeMail(str(certificate), str(certificate.with_name("key.pem")))
        for fake in (pagerduty, opsgenie, teams, webhook, mail):
            opened.enter_context(fake)
        server = Server("127.0.0.1", mail.port, user=USER, password=PASSWORD, ca_file=str(certificate))
        outlets: dict[str, Outlet] = {
            "pagerduty": PagerDuty(Endpoint(f"{pagerduty.url}/v2/enqueue"), ROUTING_KEY),
            "opsgenie": Opsgenie(Endpoint(opsgenie.url), GENIE_KEY),
            "teams": Teams(Endpoint(teams.hook)),
            "webhook": Webhook(Endpoint(f"{webhook.url}/hook"), SECRET),
            "email": Email(server, "pyrometer@example.com", ("operators@example.com",)),
        }
        yield Stand(pagerduty, opsgenie, teams, webhook, mail, certificate, outlets)


class Line:
    """A bench whose incidents go to one outlet, on the bench's clock; Slack is never called."""

    def __init__(self, bench: Bench, entry: Entry, draw: Callable[..., bytes | None]) -> None:
        self.bench, self.entry = bench, entry
        bench.store.outlets = (entry.name,)
        self._draw = draw
        self.restart()

    def restart(self) -> None:
        self.courier = OutletCourier(
            self.bench.store,
            self.entry,
            style=Style(notice="SIMULATED CLUSTER", grafana_url="http://grafana:3000"),
            clock=self.bench.clock,
            metrics=self.bench.metrics,
            draw=self._draw,
        )
        self.courier.recover()

    def receive(self, *alerts: Mapping[str, Any], seconds: float = 300.0) -> None:
        """Receive alerts and deliver what follows within so many seconds."""
        self.bench.receive(*alerts)
        self.deliver(seconds)

    def deliver(self, seconds: float = 300.0) -> None:
        end = self.bench.clock.time + seconds
        while (wait := self.courier.step()) < Timing().idle or self.depth():
            if self.bench.clock.time + wait > end:
                break
            self.bench.clock.advance(wait + 0.001)

    def depth(self) -> int:
        with self.bench.store.transaction() as tx:
            return tx.outbox_of(self.entry.name).depth()[0]

    def calls(self, outcome: str) -> float:
        labels = (self.entry.name, self.entry.kind, outcome)
        return float(self.bench.metrics.outlet_calls.labels(*labels)._value.get())


@pytest.fixture
def line(bench: Bench, stand: Stand) -> Callable[..., Line]:
    def make(kind: str, draw: Callable[..., bytes | None] = lambda *_: None, **more: Any) -> Line:
        return Line(bench, Entry(f"my-{kind}", kind, stand.outlets[kind], **more), draw)

    return make
