"""Kills the service with SIGKILL at random points of its outbox while Slack misbehaves; then looks at the channel.

The harness plays Alertmanager (a delivery is repeated until it is answered with 200) and keeps the truth: which
incidents there are and in which state they ended. Each is in a cluster of its own, so that none is joined with another.
"""

from __future__ import annotations

import http.client
import json
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alerting_fakes import body, raw_alert

from pyrometer_simulator.ports import free_port
from pyrometer_simulator.slack import FakeSlack

FAULTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("error", {"error": "internal_error"}),
    ("error", {"error": "service_unavailable"}),
    ("status", {"status": 500}),
    ("status", {"status": 503}),
    ("ratelimit", {"seconds": 1.0}),
    ("close_before", {}),
    ("close_after", {}),
    ("hang_after", {"seconds": 0.3}),
)
METHODS = ("chat.postMessage", "chat.postMessage", "chat.update", "conversations.history", "conversations.replies")


@dataclass
class Verdict:
    """The violations; all empty is right."""

    kills: int = 0
    incidents: int = 0
    posts: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    limited: int = 0  # calls that Slack refused for their rate
    clicks: int = 0  # that Slack had an ack for
    doubtful: int = 0  # about: calls whose answer was lost or unclear


class Chaos:
    """One run: `play` kills so many times, `settle` lets the rest be delivered and judges."""

    def __init__(self, folder: Path, slack: FakeSlack, seed: int) -> None:
        self._folder, self._slack, self._random = folder, slack, random.Random(seed)  # noqa: S311 - dice
        self._port = free_port()
        self._truth: dict[str, bool] = {}  # node -> whether it fires
        self._pending: dict[str, bytes] = {}  # node -> a delivery without an answer
        self._starts: dict[str, float] = {}
        self._kills = self._doubtful = 0
        self.child = self.forker()

    def forker(self) -> subprocess.Popen[str]:
        """Start what forks a service."""
        command = [sys.executable, str(Path(__file__).with_name("chaos_child.py"))]
        with (self._folder / "service.log").open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    def close(self) -> None:
        self.tell("end")
        assert self.child.stdin is not None
        self.child.stdin.close()
        self.child.wait(10)
        assert self.child.stdout is not None
        self.child.stdout.close()

    @property
    def kills(self) -> int:
        return self._kills

    def play(self, kills: int) -> None:
        while self._kills < kills:
            self.start(self._random.choice((0, self._random.randint(1, 60))))
            self.maybe_fault()
            self.deliver()
            time.sleep(self._random.uniform(0.0, 0.06))
            self.tell("end")
            self._kills += 1

    def settle(self, seconds: float = 60.0) -> Verdict:
        self._doubtful -= sum(len(waiting) for waiting in self._slack._faults.values())  # never played
        self._slack._faults.clear()
        self.start(0)
        deadline = time.monotonic() + seconds
        while self._pending and time.monotonic() < deadline:
            self._repeat()
        assert not self._pending
        for node, firing in list(self._truth.items()):
            if firing and self._random.random() < 0.5:
                self._post(node, firing=False)
        while self.depth() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(2.5)  # the last sweeps
        return self._judge()

    def start(self, points: int) -> None:
        arguments = [
            f"--web.listen-address=127.0.0.1:{self._port}",
            f"--storage.path={self._folder / 'store'}",
            f"--slack.api-url={self._slack.url}",
            "--slack.channel=#gpu-alerts",
            "--log.level=error",
        ]
        self.tell(json.dumps({"arguments": arguments, "points": points}))

    def tell(self, line: str) -> None:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        assert self.child.stdout.readline().strip() == "done"

    def maybe_fault(self) -> None:
        if self._random.random() < 0.3:
            kind, details = self._random.choice(FAULTS)
            self._slack.inject(self._random.choice(METHODS), kind, **details)  # type: ignore[arg-type]
            self._doubtful += kind != "ratelimit" and details.get("error") != "service_unavailable"

    def deliver(self) -> None:
        """Repeat what had no answer; then send a new incident, or the other state of a known one."""
        self._repeat()
        known = [node for node in self._truth if node not in self._pending]
        if not known or self._random.random() < 0.4:
            self._post(f"n{len(self._starts)}", firing=True)
        else:
            node = self._random.choice(known[-20:])
            self._post(node, firing=not self._truth[node])

    def _repeat(self) -> None:
        for node, data in list(self._pending.items()):
            if self._ask("POST", "/api/v1/alertmanager", data) is not None:
                del self._pending[node]

    def _post(self, node: str, *, firing: bool) -> None:
        now = time.time()
        if firing:
            self._starts[node] = now
        alert = raw_alert(
            node=node,
            cluster=f"c-{node}",
            fingerprint=f"f-{node}",
            starts_at=self._starts[node],
            ends_at=now,
            firing=firing,
        )
        self._truth[node] = firing
        self._pending[node] = body(alert, groupKey=node)
        self._repeat()

    def _ask(
        self, method: str, path: str, data: bytes | None = None, *, seconds: float = 5.0, tries: int = 20
    ) -> bytes | None:
        """Return the answer's body if it is a 200; retry briefly while the service starts."""
        for _ in range(tries):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
                connection.request(method, path, data)
                answer = connection.getresponse()
                content = answer.read()
                return content if answer.status == 200 else None
            except ConnectionRefusedError:
                time.sleep(0.02)
            except (OSError, http.client.HTTPException):
                return None  # killed in the middle: whether it was kept is not known, as for Alertmanager
            finally:
                connection.close()
        return None

    def depth(self) -> float:
        for line in (self._ask("GET", "/metrics") or b"").decode().splitlines():
            if line.startswith("pyrometer_alerting_outbox_depth"):
                return float(line.split()[-1])
        return 1.0

    def _nodes(self) -> dict[str, str]:
        """Return the nodes of the incidents by their ids."""
        with closing(sqlite3.connect(self._folder / "store" / "alerting.sqlite3")) as database:
            found = database.execute("SELECT id, json_extract(document, '$.cluster') FROM incident")
            return {row[0]: row[1].removeprefix("c-") for row in found}

    def _judge(self) -> Verdict:
        nodes = self._nodes()
        verdict = Verdict(kills=self._kills, incidents=len(self._truth))
        shown: dict[str, list[dict[str, Any]]] = {}
        for message in self._slack.messages("gpu-alerts"):
            shown.setdefault(nodes.get(_payload(message)["incident_id"], "?"), []).append(message)
        for node, firing in self._truth.items():
            messages = shown.get(node, [])
            if not messages:
                verdict.lost.append(node)
            elif ("Resolved" in messages[-1]["text"]) is firing:
                verdict.wrong.append(f"{node} {'fires' if firing else 'is over'}: {messages[-1]['text'][:40]}")
            if len(messages) > 1:
                verdict.duplicates.append(node)
        posted = Counter(
            call.args["metadata"]["event_payload"]["op_id"] if isinstance(call.args["metadata"], dict)
            else json.loads(call.args["metadata"])["event_payload"]["op_id"]
            for call in self._slack.calls
            if call.method == "chat.postMessage" and call.outcome == "ok"
        )  # fmt: skip
        verdict.posts = sum(posted.values())
        outcomes = Counter(call.outcome for call in self._slack.calls)
        verdict.limited = outcomes["ratelimited"] + outcomes["ratelimit"]
        verdict.doubtful = self._doubtful
        verdict.duplicates += [op_id for op_id, count in posted.items() if count > 1]
        return verdict


def _payload(message: dict[str, Any]) -> dict[str, str]:
    return dict(message["metadata"]["event_payload"])
