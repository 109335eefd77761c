"""The real service with all outlets: killed in the middle of its calls, and with one of them dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from alerting_fakes import body, raw_alert, wait_until

from pyrometer_alerting.app import main
from pyrometer_kit import logs
from pyrometer_kit.http_client import get
from pyrometer_simulator.http_call import call
from pyrometer_simulator.outlets.services import ROUTING_KEY
from pyrometer_simulator.ports import free_port

if TYPE_CHECKING:
    from conftest import Stand  # type: ignore[import-not-found]

    from pyrometer_simulator.slack import FakeSlack


class Running:
    """The console program with a configuration file, on one port and one store over its restarts."""

    def __init__(self, folder: Path, stand: Stand, slack: FakeSlack) -> None:
        self.folder, self._slack, self.port = folder, slack, free_port()
        (folder / "config.yaml").write_text(stand.config(folder))

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[bytes]]:
        flags = [
            f"--config.file={self.folder / 'config.yaml'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            f"--storage.path={self.folder / 'store'}",
            f"--slack.api-url={self._slack.url}",
            "--slack.channel=#gpu-alerts",
        ]
        environment = os.environ | {"PYROMETER_SLACK_BOT_TOKEN": "xoxb-test"}
        with (self.folder / "log").open("ab") as log:
            command = [sys.executable, "-m", "pyrometer_alerting.app.main", *flags]
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            wait_until(lambda: self.get("/-/ready"), 60)
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(20)

    def get(self, path: str) -> str:
        try:
            return get(f"http://127.0.0.1:{self.port}{path}").decode()
        except OSError:
            return ""

    def receive(self, *alerts: dict[str, object]) -> None:
        assert call(f"http://127.0.0.1:{self.port}/api/v1/alertmanager", body(*alerts), seconds=25).status == 200


GPU = {"node": "gpu-003", "gpu": "5", "component": "gpu"}


def test_killed_between_call_and_answer_nothing_is_lost_and_nothing_is_shown_twice(
    tmp_path: Path, stand: Stand, slack: FakeSlack
) -> None:
    for fake in (stand.pagerduty, stand.opsgenie, stand.teams, stand.webhook):
        fake.inject("hang_after", seconds=60)
    stand.mail.faults.append("hang")
    running = Running(tmp_path, stand, slack)
    began = time.time()
    with running.started() as process:
        running.receive(raw_alert(starts_at=began, **GPU))
        fakes = (stand.pagerduty, stand.opsgenie, stand.teams, stand.webhook)
        wait_until(lambda: all(fake.calls for fake in fakes) and stand.mail.mails)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    with running.started():
        wait_until(lambda: stand.mail.attempts == 2 and all(len(fake.calls) == 2 for fake in fakes))
        running.receive(raw_alert(firing=False, starts_at=began, ends_at=time.time(), **GPU))
        wait_until(lambda: len(stand.mail.mails) == 2 and all(len(fake.calls) == 3 for fake in fakes))
    ((page,),) = stand.pagerduty.alerts.values()
    assert (page.log, page.notified, page.status) == (["trigger", "trigger", "resolve"], 1, "resolved")
    ((alert,),) = stand.opsgenie.alerts.values()
    assert (alert.count, alert.status) == (2, "closed")
    assert [each["event"] for each in stand.webhook.documents] == ["opened", "resolved"]
    assert [each["X-Pyrometer-Event"] for each in stand.mail.mails] == ["opened", "resolved"]
    assert ["Resolved" in text for text in stand.teams.texts()] == [False, False, True]
    assert len(slack.messages("gpu-alerts")) == 1


def test_a_dead_outlet_delays_neither_the_others_nor_slack(tmp_path: Path, stand: Stand, slack: FakeSlack) -> None:
    for _ in range(3):
        stand.pagerduty.inject("hang_after", seconds=60)
    stand.opsgenie.down()
    running = Running(tmp_path, stand, slack)
    with running.started():
        began = time.monotonic()
        running.receive(raw_alert(starts_at=time.time(), **GPU))
        wait_until(lambda: stand.teams.cards and stand.webhook.documents and stand.mail.mails)
        wait_until(lambda: slack.messages("gpu-alerts"))
        assert time.monotonic() - began < 9  # PagerDuty's call still hangs: it is given up after 10 s
        wait_until(lambda: 'outlet_depth{outlet="genie"} 1.0' in running.get("/metrics"))
        page = running.get("/metrics")
        assert 'pyrometer_alerting_outlet_depth{outlet="hook"} 0.0' in page
        assert 'outlet_calls_total{kind="webhook",outcome="ok",outlet="hook"} 1.0' in page
        stand.pagerduty.released.set()
    log = (tmp_path / "log").read_text()
    assert ROUTING_KEY not in log
    assert "s3cret" not in log
    assert "GenieKey" not in log


def test_check_outlets_sends_a_test_incident_to_each(
    tmp_path: Path, stand: Stand, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "set_up", lambda *_: None)
    (tmp_path / "config.yaml").write_text(stand.config(tmp_path))
    flags = ["check-outlets", f"--config.file={tmp_path / 'config.yaml'}"]
    assert main.run(flags, {}) == 0
    assert capsys.readouterr().out.count("accepted a test incident") == 5
    ((page,),) = stand.pagerduty.alerts.values()
    assert (page.severity, page.status) == ("info", "resolved")
    assert [each["test"] for each in stand.webhook.documents] == [True, True]
    assert stand.mail.mails[1]["References"] == stand.mail.mails[0]["Message-ID"]
    (tmp_path / "og").write_text("wrong")
    assert main.run([*flags, "--outlet=genie"], {}) == 1
    assert "outlet genie (opsgenie): http_403: check its address and its secret file" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{kind: webhook}", "an outlet of this kind needs name"),
        ("{name: a}", "an outlet of this kind needs kind"),
        ("{name: a, kind: pigeon}", "unknown kind pigeon; known are email, opsgenie, pagerduty, teams, webhook"),
        ("{name: a b, kind: teams}", "a b: expected a name of letters"),
        ("{name: a, kind: teams, url: https://x.example}", "unknown setting url"),
        ("{name: a, kind: teams}", "needs url-file"),
        ("{name: a, kind: pagerduty, key-file: /nowhere}", "key-file /nowhere: No such file or directory"),
        ("{name: a, kind: pagerduty, key-file: KEY, severities: [info]}", "info must be one of critical, warning"),
        ("{name: a, kind: webhook, secret-file: KEY, url: http://x.example}", "expected an https address"),
        ("{name: a, kind: webhook, secret-file: KEY, url: nonsense}", "expected an address such as"),
        ("{name: a, kind: email, server: mail}", "expected HOST:PORT"),
        ("{name: a, kind: email, server: 'm:25', tls: none}", "without TLS only a server on this machine"),
        ("{name: a, kind: email, server: 'm:25', user: u}", "user and password-file must be given together"),
        ("{name: a, kind: email, server: 'm:25', from: x, to: [a@b]}", "x: expected an address such as"),
        ("{name: a, kind: email, server: 'm:25', from: a@b, to: []}", "expected at least one address"),
        ("{name: a, kind: email, server: 'm:25', from: a@b, to: [a@b], ca-file: /no}", "/no: no such file"),
    ],
)
def test_a_wrong_outlet_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], entry: str, message: str
) -> None:
    (tmp_path / "KEY").write_text("the-secret")
    (tmp_path / "KEY").chmod(0o600)
    (tmp_path / "c.yaml").write_text(f"outlets:\n  - {entry.replace('KEY', str(tmp_path / 'KEY'))}\n")
    assert main.run(["check-config", f"--config.file={tmp_path / 'c.yaml'}"], {}) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert f"{tmp_path / 'c.yaml'}:2" in told
    assert "the-secret" not in told
