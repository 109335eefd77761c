"""Two services on one PostgreSQL, each a process of its own, started with the flags that a user gives."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alerting_fakes import wait_until

from pyrometer_simulator.ports import serving
from pyrometer_simulator.slack import FakeSlack

if TYPE_CHECKING:
    from typing_extensions import Self

MODULE = "pyrometer_alerting.app.main"
WEBHOOK = "/api/v1/alertmanager"


class Process:
    """One service, on a port of its own where none is given; `flags` are those besides Slack's."""

    def __init__(self, folder: Path, name: str, slack: FakeSlack, flags: Sequence[str], port: int = 0) -> None:
        self._log = folder / f"{name}.log"
        self._flags = [f"--slack.api-url={slack.url}", "--slack.channel=#gpu-alerts", *flags]
        self._process: subprocess.Popen[bytes] | None = None
        self.port = port

    def start(self) -> None:
        """Start it, on the port of its first start, and wait until it is ready."""
        if self.port:
            self._process = self._begin(self.port)
            wait_until(self.ready, seconds=60)
        else:
            self._process, self.port = serving(self._begin)

    def _begin(self, port: int) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYROMETER_SLACK_BOT_TOKEN": "xoxb-test"}
        command = [sys.executable, "-m", MODULE, f"--web.listen-address=127.0.0.1:{port}", *self._flags]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it by a signal; nothing where it has ended."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(40)
            self._process = None

    def ready(self) -> bool:
        """Return whether it says that it is."""
        return self.ask("GET", "/-/ready")[0] == 200

    def leads(self) -> bool:
        """Return whether it says that it leads."""
        return any(re.fullmatch(r"pyrometer_alerting_leader\{.*\} 1\.0", line) for line in self.metrics())

    def metrics(self) -> list[str]:
        """Return the lines of its metrics; none where it does not answer."""
        return self.ask("GET", "/metrics")[1].decode().splitlines()

    def incidents(self) -> list[dict[str, Any]]:
        """Return all incidents."""
        found: list[dict[str, Any]] = json.loads(self.ask("GET", "/api/v1/incidents")[1])["incidents"]
        return found

    def ask(self, method: str, path: str, data: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body of an answer; 0 without one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request(method, path, data)
            answer = connection.getresponse()
            return answer.status, answer.read()
        return 0, b""

    def logged(self) -> str:
        """Return its log."""
        return self._log.read_text(errors="replace")


class Two:
    """Both services; they are killed at the end."""

    def __init__(self, folder: Path, slack: FakeSlack, flags: Sequence[str], ports: Sequence[int] = (0, 0)) -> None:
        self.both = [Process(folder, f"alerting-{port or n}", slack, flags, port) for n, port in enumerate(ports)]

    def __enter__(self) -> Self:
        try:
            for each in self.both:
                each.start()
            wait_until(lambda: sum(each.leads() for each in self.both) == 1, seconds=60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.both:
            each.end()

    def leader(self) -> Process:
        """Return the one that leads."""
        (found,) = [each for each in self.both if each.leads()]
        return found

    def other(self) -> Process:
        """Return the one that does not lead."""
        (found,) = [each for each in self.both if not each.leads()]
        return found

    def deliver(self, to: Process, delivery: bytes) -> None:
        """Deliver to one, as Alertmanager does: again and again, until it is taken."""
        wait_until(lambda: to.ask("POST", WEBHOOK, delivery)[0] == 200, seconds=60)

    def seconds_until_led_by(self, one: Process) -> float:
        """Wait until that one leads, and return how long it took."""
        began = time.monotonic()
        wait_until(one.leads, seconds=60)
        return time.monotonic() - began
