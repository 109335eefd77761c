"""Which node asks the job: the one that hosts the lowest rank of its largest communicator, every 10 to 30 s.

Any process of a job answers for all of it, so one node's question is enough. Every node asks once, when a job appears
at its socket, and learns the order of the hosts; nodes that know their ranks from rings take turns even for that. From
then on the first asks, and the others only look whether an exporter before them still does. Exporters that listen on
loopback only can't be looked at: then the next three ask as well, but only while their own ranks stall.
"""

from __future__ import annotations

import json
import socket
import time
import zlib
from collections.abc import Callable

from pyrometer_exporters.node.nccl.local_node import LocalNode
from pyrometer_exporters.node.nccl.snapshot import Snapshot

INTERVAL_SECONDS = 30.0
# While nothing moves, and when this node's ranks stop: for so long, so often. And where answers are small: reading one
# of a hundred ranks takes some ms of CPU, one of 20 MB a second, and all of them 0.5 % of a core at most.
BRISK_SECONDS = 10.0
ANSWERS_PER_TIME = 200.0
BRISK_FOR_SECONDS = 300.0
# The fourth node after the first and those behind it learn the order of the hosts much later: three are at hand.
DEPUTIES = 3
LATER_TURNS = 20
MOST_LOOKED_AT = 8
PROBE_SECONDS = 2.0
STATUS_PATH = "/nccl"
_MOST_ANSWER_BYTES = 65_536

Probe = Callable[[str, str], bool]
"""Return whether the exporter at a host asks the job that has a communicator of this name."""


class Turns:
    """Decides when this node asks at one address; times are monotonic seconds."""

    def __init__(self, node: LocalNode, probe: Probe | None) -> None:
        """Take over from others only where ``probe`` can ask them."""
        self._node, self._probe = node, probe
        self._order: list[str] = []
        self._job = ""
        self._pids: list[int] = []
        self._position: int | None = None
        self._acts = False
        self._watchable = False
        self._due: float | None = None
        self._brisk_until = 0.0
        self._stands_in_until = float("-inf")
        self._usual_pause = INTERVAL_SECONDS
        self._asked_at = float("-inf")

    @property
    def asks(self) -> bool:
        """Return whether this node is the one that asks, as far as it knows."""
        return self._position == 0 or self._acts

    @property
    def job(self) -> str:
        """Return the name of the largest communicator; empty where no job is known."""
        return self._job

    def is_due(self, now: float) -> bool:
        """Return whether to ask now; looks for other exporters where that is due instead."""
        if self._due is None:
            self._due = now + self._first_wait()
        if now < self._due:
            return False
        if not self._order or self._position is None:
            return True
        if self._watchable and not self._node.alive(self._pids):  # another job may be at the socket
            self.forget()
            return self.is_due(now)
        return self._is_turn(now)

    def hasten(self, now: float) -> None:
        """Ask soon, and often for a while: ranks of this node have stopped.

        Where the others can't be reached, one that asks may be gone unseen: the deputies ask as well while ranks stall.
        """
        if self._probe is None and 0 < (self._position or 0) <= DEPUTIES:
            self._stand_in(now)
        if self.asks and now - self._asked_at >= BRISK_SECONDS:
            self._due = min(now, self._due if self._due is not None else now)
            self._brisk_until = now + BRISK_SECONDS

    def _stand_in(self, now: float) -> None:
        if now >= self._stands_in_until:
            self._due = min(self._due or now, now + BRISK_SECONDS * (self._position or 0))
        self._stands_in_until = now + INTERVAL_SECONDS

    def asked(
        self, now: float, snapshot: Snapshot | None, standing: float = 0.0, cost: float = INTERVAL_SECONDS
    ) -> None:
        """Take what an answer says about whose turn it is, None where there was none; its ``cost`` is CPU time in s."""
        self._asked_at = now
        self._usual_pause = min(INTERVAL_SECONDS, max(BRISK_SECONDS, ANSWERS_PER_TIME * cost))
        if snapshot is None:
            self.forget()
            self._due = now + INTERVAL_SECONDS
            return
        addresses = self._node.addresses()
        largest = snapshot.largest()
        self._job = largest.name if largest is not None else ""
        self._order = snapshot.hosts() if snapshot.form == "json" else []
        self._pids = [peer.pid for peer in snapshot.peers if peer.host in addresses]
        # Processes in containers have numbers of their own: they can't be seen to end.
        self._watchable = self._node.alive(self._pids)
        self._position = next((place for place, host in enumerate(self._order) if host in addresses), None)
        if self._position is None:
            self._take_turns(now, snapshot.nodes, standing)
        elif self.asks:
            self._due = now + self._pause(now, standing)
        else:
            self._due = now + self._patience()

    def _take_turns(self, now: float, nodes: int, standing: float) -> None:
        """Continue without an order of hosts: the node with rank 0 asks, or all in turn where no ring has a rank."""
        lowest = self._node.lowest_rank()
        self._acts = lowest is None or lowest[0] == 0
        if lowest is None:
            self._due = now + INTERVAL_SECONDS * max(1, nodes)
        else:
            self._due = now + (self._pause(now, standing) if self._acts else INTERVAL_SECONDS * LATER_TURNS)

    def _pause(self, now: float, standing: float) -> float:
        brisk = 0 < standing < BRISK_FOR_SECONDS or now < self._brisk_until
        return BRISK_SECONDS if brisk else self._usual_pause

    def forget(self) -> None:
        """Forget the job: nobody listens any more, or another one does."""
        self._order, self._pids, self._job = [], [], ""
        self._position = self._due = None
        self._acts = self._watchable = False

    def _first_wait(self) -> float:
        lowest = self._node.lowest_rank()
        if lowest is None:  # spread over an interval, as all nodes find a new job at once
            key = min(self._node.addresses(), default="")
            return INTERVAL_SECONDS * (zlib.crc32(key.encode()) % 256) / 256
        place = lowest[0] // max(1, lowest[1])
        return INTERVAL_SECONDS * (place if place <= DEPUTIES else place * LATER_TURNS)

    def _patience(self) -> float:
        return INTERVAL_SECONDS * min(self._position or 1, LATER_TURNS)

    def _is_turn(self, now: float) -> bool:
        """Return whether nobody before this node asks."""
        probe = self._probe
        if probe is None:  # the others can't be reached: the node with rank 0 does it where it isn't the first
            self._acts = (self._node.lowest_rank() or (-1, 0))[0] == 0 or now < self._stands_in_until
        else:
            before = self._order[: self._position][:MOST_LOOKED_AT]
            self._acts = bool(before) and not any(probe(host, self._job) for host in before)
        if self.asks or (not self._watchable and now - self._asked_at >= INTERVAL_SECONDS * LATER_TURNS):
            return True
        self._due = now + self._patience()
        return False


def probe(host: str, port: int, job: str) -> bool:
    """Return whether the exporter at a host asks this job; one that can't be read, such as with TLS, is trusted.

    Not by http.client, which takes as much memory as all of this collector.
    """
    try:
        with socket.create_connection((host, port), PROBE_SECONDS) as connection:
            answer = _get(connection, host)
    except ConnectionResetError:
        return True
    except OSError:
        return False
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status != [b"200"]:
        return status != [b"404"]
    try:
        return job in json.loads(body)["communicators"]
    except (ValueError, KeyError, TypeError):
        return True


def _get(connection: socket.socket, host: str) -> bytes:
    until, answer = time.monotonic() + PROBE_SECONDS, b""
    connection.sendall(f"GET {STATUS_PATH} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
    while len(answer) < _MOST_ANSWER_BYTES and time.monotonic() < until:
        chunk = connection.recv(_MOST_ANSWER_BYTES)
        if not chunk:
            break
        answer += chunk
    return answer
