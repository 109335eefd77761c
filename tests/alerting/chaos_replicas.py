"""Two services on PostgreSQL with a standby: killed, paused, failed over, while Slack misbehaves and people press.

Builds on `chaos`: the same truth, the same judgement. Alertmanager sends to either service or to both.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from alerting_chaos import Chaos, Verdict

from pyrometer_simulator.ports import free_port
from pyrometer_simulator.postgres import Pair
from pyrometer_simulator.slack import FakeSlack

# In a hundred faults; most kill one service, as a rack or an upgrade does.
FAULTS = {"leader": 34, "standby": 30, "both": 14, "at a point": 14, "pause": 4, "primary": 4}
TAKEN_SECONDS = 180.0  # on a busy machine; how long it took is noted


class Replicas(Chaos):
    """One run: `play` makes so many faults, `settle` lets the rest be delivered and judges."""

    def __init__(self, folder: Path, slack: FakeSlack, seed: int, pair: Pair) -> None:
        super().__init__(folder, slack, seed)
        first = self.child
        self._pair, self._children, self._ports = pair, [first], [self._port]
        self._children.append(self.forker())
        self._ports.append(free_port())
        self._alive = [False, False]
        self._config = folder / "config.yaml"
        self._config.write_text("slack-users: ['*']\n")
        self.blind: dict[str, list[float]] = defaultdict(list)
        self.faults: Counter[str] = Counter()
        self._pressed: dict[str, str] = {}  # node -> who pressed `acknowledge`, and Slack had the ack
        self._frozen: set[str] = set()
        self._changed: Counter[str] = Counter()
        chosen = random.Random(seed)  # noqa: S311 - dice
        slack.app.socket.choose = chosen.choice
        slack.app.patience = 3.0

    def close(self) -> None:
        for number, child in enumerate(self._children):
            self._tell(number, "go on")
            self.child = child
            super().close()

    def play(self, kills: int) -> None:
        self._start_all()
        self._when_leading()  # who leads first makes the tables
        while self._kills < kills:
            self._start_all()
            self.maybe_fault()
            for _ in range(self._random.randint(1, 3)):
                self.deliver()
            if self._random.random() < 0.25:
                self._press()
            time.sleep(self._random.uniform(0.0, 0.2))
            kind = self._random.choices(list(FAULTS), list(FAULTS.values()))[0]
            self._fault(kind)
            self.faults[kind] += 1
            self._kills += 1

    def _start_all(self, points: int = 0) -> None:
        for number in (0, 1):
            if not self._alive[number]:
                self._start_one(number, points)

    def _start_one(self, number: int, points: int) -> None:
        arguments = [
            f"--web.listen-address=127.0.0.1:{self._ports[number]}",
            f"--storage.url={self._pair.url}",
            f"--slack.api-url={self._slack.url}",
            "--slack.channel=#gpu-alerts",
            "--log.level=info",
            f"--config.file={self._config}",
        ]
        environment = {"PYROMETER_SLACK_APP_TOKEN": "xapp-fake-token"}
        self._tell(number, json.dumps({"arguments": arguments, "points": points, "environment": environment}))
        self._alive[number] = True

    def _tell(self, number: int, line: str) -> None:
        self.child = self._children[number]
        self.tell(line)

    def _kill(self, number: int) -> None:
        self._tell(number, "end")
        self._alive[number] = False

    def _fault(self, kind: str) -> None:
        leader = self.leader()
        began = time.monotonic()
        if kind in ("leader", "standby"):
            number = leader if leader is not None else 0
            self._kill(number if kind == "leader" else 1 - number)
        elif kind == "both":
            self._kill(0)
            self._kill(1)
            self._start_all()
        elif kind == "at a point":  # the service kills itself there
            number = self._random.randint(0, 1)
            self._kill(number)
            self._start_one(number, self._random.randint(1, 60))
            for _ in range(4):
                self.deliver()
            self._kill(number)
        elif kind == "pause":
            number = leader if leader is not None else 0
            self._tell(number, "pause")
            self._alive[number] = False  # nobody asks it: it would not answer
            self._watch(kind, began)
            time.sleep(self._random.choice((0.0, 0.5, 3.0)))
            self.deliver()
            self._tell(number, "go on")
            self._alive[number] = True
            return
        elif kind == "primary":
            self._pair.fail_over()
            while not self._taken():  # the gauge is that of a leader that has not noticed yet
                time.sleep(0.05)
            self.blind[kind].append(time.monotonic() - began)
            self._pair.rejoin()
            return
        if self._random.random() < 0.3:
            self._watch(kind, began)

    def _taken(self) -> bool:
        """Return whether a delivery is answered with 200."""
        self.deliver()
        return not self._pending

    def _watch(self, kind: str, began: float) -> None:
        """Note how long nobody led."""
        self._when_leading(began)
        self.blind[kind].append(time.monotonic() - began)

    def _when_leading(self, began: float = 0.0) -> None:
        deadline = time.monotonic() + TAKEN_SECONDS
        while self.leader() is None:
            seconds = time.monotonic() - began
            assert time.monotonic() < deadline, f"nobody leads {seconds:.0f} s after the fault:\n{self._sessions()}"
            time.sleep(0.02)

    def _sessions(self) -> str:
        """Return what the server says of its sessions and standbys, for the message of a failure."""
        columns = "pid, state, wait_event, now() - state_change, pg_blocking_pids(pid), left(query, 80)"
        asked = "SELECT " + columns + " FROM pg_stat_activity WHERE datname = 'alerting'"  # noqa: S608 - no input
        standbys = self._pair.primary.ask("SELECT application_name, state, sync_state FROM pg_stat_replication")
        return "\n".join(
            [f"services that run: {self._alive}", self._pair.primary.ask(asked), standbys, self._pair.logged()]
        )

    def leader(self) -> int | None:
        """Return which service says that it leads."""
        for number in (0, 1):
            if self._alive[number] and self._gauge(number, "pyrometer_alerting_leader") == 1.0:
                return number
        return None

    def _gauge(self, number: int, name: str) -> float | None:
        self._port = self._ports[number]
        for line in (self._ask("GET", "/metrics", seconds=10.0, tries=1) or b"").decode().splitlines():
            if line.startswith(name):
                return float(line.split()[-1])
        return None

    def _repeat(self) -> None:
        """Send to one service, to the other if it does not answer, or to both."""
        for node, data in list(self._pending.items()):
            first = self._random.randint(0, 1)
            answers = []
            for number in (first, 1 - first):
                if not self._alive[number]:
                    continue
                self._port = self._ports[number]
                answers.append(self._ask("POST", "/api/v1/alertmanager", data, seconds=3.0) is not None)
                if answers[-1] and self._random.random() < 0.7:
                    break
            if any(answers):
                del self._pending[node]

    def _post(self, node: str, *, firing: bool) -> None:
        if node in self._frozen:
            return
        self._changed[node] += 1
        super()._post(node, firing=firing)

    def _press(self) -> None:
        """Press `acknowledge` on a message of a node that fires since its beginning, until Slack has the ack."""
        nodes = self._nodes()
        for message in reversed(self._slack.messages("gpu-alerts")[-40:]):
            found = nodes.get(_payload_of(message).get("incident_id", ""), "")
            fresh = self._truth.get(found) and self._changed[found] == 1 and found not in self._pending
            if not fresh or found in self._pressed or "Resolved" in message["text"]:
                continue
            self._frozen.add(found)
            for _ in range(20):
                try:
                    self._slack.app.press(message, "pyrometer_acknowledge", "U0ALICE")
                except (TimeoutError, ConnectionError, OSError):
                    self._start_all()
                    time.sleep(0.2)
                    continue
                self._pressed[found] = "U0ALICE"
                return
            return

    def depth(self) -> float:
        number = self.leader()
        if number is None:
            return 1.0
        found = [self._gauge(number, f"pyrometer_alerting_{each}_depth") for each in ("outbox", "inbox")]
        waiting = self._pair.primary.ask("SELECT count(*) FROM inbox", "alerting")
        return sum(1.0 if each is None else each for each in found) + float(waiting)

    def settle(self, seconds: float = 60.0) -> Verdict:
        self._doubtful -= sum(len(waiting) for waiting in self._slack._faults.values())  # never played
        self._slack._faults.clear()
        self._start_all()
        self._when_leading()
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

    def _nodes(self) -> dict[str, str]:
        rows = self._pair.primary.ask("SELECT id, document FROM incident", "alerting").splitlines()
        pairs = (row.split("|", 1) for row in rows)
        return {name: str(json.loads(document)["cluster"]).removeprefix("c-") for name, document in pairs}

    def _judge(self) -> Verdict:
        verdict = super()._judge()
        nodes = self._nodes()
        acknowledged = Counter(
            nodes.get(name, "?")
            for name in self._pair.primary.ask(
                "SELECT incident_id FROM audit WHERE action = 'acknowledge'", "alerting"
            ).split()
        )
        told = Counter(
            nodes.get(_payload_of(message).get("incident_id", ""), "?")
            for message in self._slack.messages("gpu-alerts")
            for reply in message["replies"]
            if "is looking into it" in reply["text"]
        )
        for node in self._pressed:
            for what, found in (("audit", acknowledged[node]), ("thread", told[node])):
                if found == 0:
                    verdict.lost.append(f"click on {node}: {what}")
                elif found > 1:
                    verdict.duplicates.append(f"click on {node}: {what} {found} times")
        verdict.clicks = len(self._pressed)
        return verdict


def _payload_of(message: dict[str, Any]) -> dict[str, str]:
    return dict((message.get("metadata") or {}).get("event_payload", {}))
