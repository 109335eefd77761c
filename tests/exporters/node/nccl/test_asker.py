"""A job is asked once an interval, by one node of however many; another takes over when that one is gone."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import pytest

from pyrometer_exporters.node.nccl import asker
from pyrometer_exporters.node.nccl.asker import INTERVAL_SECONDS, Turns
from pyrometer_exporters.node.nccl.snapshot import Communicator as Answered
from pyrometer_exporters.node.nccl.snapshot import Peer, Snapshot
from pyrometer_simulator.http_server import HttpServer, Response

NODES = 511
PER_NODE = 8


def address(node: int) -> str:
    return f"10.0.{node // 250}.{node % 250 + 1}"


def answer() -> Snapshot:
    """Return what every node of the job is told."""
    found = Snapshot(nodes=NODES)
    world = Answered("0x1", NODES * PER_NODE)
    for rank in range(NODES * PER_NODE):
        node, gpu = divmod(rank, PER_NODE)
        world.add(rank, found.number(Peer(address(node), 4000 + rank, gpu)), "ready", {"AllReduce": 1})
    found.communicators.append(world)
    return found


class Node:
    """One node of the cluster, with or without a client that says which ranks it has."""

    def __init__(self, number: int, *, rings: bool) -> None:
        self.number, self.rings = number, rings

    def addresses(self) -> Collection[str]:
        return {address(self.number)}

    def lowest_rank(self) -> tuple[int, int] | None:
        return (self.number * PER_NODE, PER_NODE) if self.rings else None

    def alive(self, hosts_processes: Sequence[int]) -> bool:
        return bool(hosts_processes)


class Cluster:
    """511 exporters that watch one job, in steps of two seconds."""

    def __init__(self, *, rings: bool, reachable: bool = True) -> None:
        self.now = 0.0
        self.gone: set[int] = set()
        self.answer = answer()
        self.asked: list[tuple[float, int]] = []
        self.turns = [Turns(Node(node, rings=rings), self.probe if reachable else None) for node in range(NODES)]
        self._number = {address(node): node for node in range(NODES)}

    def probe(self, host: str, job: str) -> bool:
        node = self._number[host]
        return node not in self.gone and self.turns[node].asks and self.turns[node].job == job

    def run(self, seconds: float, *, stalled: bool = False) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 2
            for node, turns in enumerate(self.turns):
                if stalled and node not in self.gone:
                    turns.hasten(self.now)
                if node not in self.gone and turns.is_due(self.now):
                    self.asked.append((self.now, node))
                    turns.asked(self.now, self.answer, standing=10 if stalled else 0)

    def by_interval(self, since: float) -> list[int]:
        counts = Counter(int((at - since) // INTERVAL_SECONDS) for at, _ in self.asked if at > since)
        return [counts[number] for number in range(int((self.now - since) // INTERVAL_SECONDS))]


def test_511_nodes_with_rings_ask_once_an_interval_from_the_start() -> None:
    cluster = Cluster(rings=True)
    cluster.run(90 * 60)
    assert cluster.asked[0] == (2, 0)
    # Three deputies and, every ten minutes, another node learn the order of the hosts.
    assert len(cluster.asked) <= 90 * 60 / INTERVAL_SECONDS + 3 + 90 * 60 / 600 + 1
    assert max(cluster.by_interval(0)) <= 2


def test_511_nodes_without_rings_ask_once_each_and_then_once_an_interval() -> None:
    cluster = Cluster(rings=False)
    cluster.run(INTERVAL_SECONDS + 4)
    assert Counter(node for _, node in cluster.asked).keys() == set(range(NODES))
    since = cluster.now
    cluster.run(60 * 60)
    assert set(cluster.by_interval(since)) == {1}
    assert {node for at, node in cluster.asked if at > since} == {0}


@pytest.mark.parametrize("rings", [False, True])
def test_the_next_one_takes_over_and_gives_back(rings: bool) -> None:
    cluster = Cluster(rings=rings)
    cluster.run(300)
    cluster.gone = {0, 1}
    since = cluster.now
    cluster.run(600)
    asked = [(at, node) for at, node in cluster.asked if at > since]
    asks = Counter(node for _, node in asked)
    assert asks.most_common(1)[0][0] == 2
    assert asks[2] >= 600 / INTERVAL_SECONDS - 4
    assert all(number <= 2 for node, number in asks.items() if node != 2)
    cluster.gone = set()
    cluster.run(60)
    since = cluster.now
    cluster.run(300)
    assert {node for at, node in cluster.asked if at > since} == {0}


def test_exporters_that_cannot_reach_each_other_never_ask_twice() -> None:
    cluster = Cluster(rings=False, reachable=False)
    cluster.run(60)
    since = cluster.now
    cluster.run(600)
    assert {node for at, node in cluster.asked if at > since} == {0}


def test_deputies_that_cannot_reach_the_first_ask_while_their_own_ranks_stand() -> None:
    cluster = Cluster(rings=True, reachable=False)
    cluster.run(300)
    cluster.gone = {0}
    stopped = cluster.now
    cluster.run(60, stalled=True)
    asked = Counter(node for at, node in cluster.asked if at > stopped)
    assert asked.keys() == {1, 2, 3}
    assert min(at for at, _ in cluster.asked if at > stopped) <= stopped + 20
    assert asked[1] >= 3, "two answers at least show whether anything moves"
    cluster.run(120)
    since = cluster.now
    cluster.run(300)
    assert not [node for at, node in cluster.asked if at > since], "they stand back when their ranks move again"


def test_a_stop_is_looked_at_at_once_and_often() -> None:
    turns = Turns(Node(0, rings=True), None)
    assert turns.is_due(0)
    turns.asked(0, answer())
    turns.hasten(5)
    assert not turns.is_due(5)
    turns.hasten(12)
    assert turns.is_due(12)
    turns.asked(12, answer(), standing=12)
    assert turns.is_due(22)


@contextlib.contextmanager
def exporter(status: int, body: bytes) -> Iterator[int]:
    with HttpServer(lambda _: Response(body, status)) as server:
        yield server.server_port


@pytest.mark.parametrize(
    ("status", "body", "asks"),
    [
        (200, b'{"communicators": ["0x1"]}', True),
        (200, b'{"communicators": ["0x2"]}', False),
        (404, b"", False),  # its collector is off, or an older version
        (401, b"", True),  # it wants a password: trusted
        (200, b"not JSON", True),
        (200, b"[]", True),
    ],
)
def test_an_exporter_is_believed_where_it_can_be_read(status: int, body: bytes, asks: bool) -> None:
    with exporter(status, body) as port:
        assert asker.probe("127.0.0.1", port, "0x1") is asks


def test_an_exporter_that_is_gone_does_not_ask() -> None:
    with exporter(200, b"") as port:
        pass
    assert not asker.probe("127.0.0.1", port, "0x1")
