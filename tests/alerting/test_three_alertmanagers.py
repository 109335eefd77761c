"""Three real Alertmanagers of one cluster before two real services on PostgreSQL, split in two and healed.

Prometheus sends to all three, or, while it is cut off with them, to one side. Leaders are killed meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from alerting_fakes import wait_until
from alerting_partition import Network
from alerting_real import RealAlertmanager, iso, prom_alert
from alerting_two import WEBHOOK, Process, Two

from pyrometer_simulator.ports import free_port
from pyrometer_simulator.postgres import Pair, missing
from pyrometer_simulator.slack import FakeSlack

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

# Alertmanager's own, for a network on loopback: 15 s, 200 ms, 60 s, 10 s, 1 s, 500 ms, 1 m.
QUICK = (
    "--cluster.peer-timeout=2s", "--cluster.gossip-interval=50ms", "--cluster.pushpull-interval=2s",
    "--cluster.reconnect-interval=1s", "--cluster.probe-interval=1s", "--cluster.probe-timeout=500ms",
    "--cluster.settle-timeout=5s",
)  # fmt: skip
PATIENCE = 120.0  # on a busy machine


class Site:
    """All of it; `fire` and `end` speak as Prometheus does."""

    def __init__(self, slack: FakeSlack, two: Two, network: Network, each: list[RealAlertmanager]) -> None:
        self.slack, self.two, self.network, self.alertmanagers = slack, two, network, each
        self.began: dict[str, dict[str, Any]] = {}

    def fire(self, row: str, to: list[RealAlertmanager] | None = None) -> None:
        self.began[row] = prom_alert("GpuLost", row, began=time.time(), node=f"node-{row}")
        self._post(self.began[row], to)

    def end(self, row: str, to: list[RealAlertmanager] | None = None) -> None:
        self._post({**self.began[row], "endsAt": iso(time.time())}, to)

    def _post(self, alert: dict[str, Any], to: list[RealAlertmanager] | None) -> None:
        for each in to or self.alertmanagers:
            each.post(alert)

    def told(self, row: str) -> list[dict[str, Any]]:
        return [each for each in self.slack.messages("gpu-alerts") if f"node-{row}" in str(each)]

    def is_over(self, row: str) -> bool:
        return bool(found := self.told(row)) and all("Resolved" in message["text"] for message in found)

    def members(self) -> list[int]:
        return [each.members() for each in self.alertmanagers]

    def deliveries(self) -> list[float]:
        return [each.notified() for each in self.alertmanagers]


@pytest.fixture
def site(tmp_path: Path, slack: FakeSlack) -> Iterator[Site]:
    network = Network(("a", "b", "c"))
    ports = [free_port(), free_port()]
    urls = [f"http://127.0.0.1:{port}{WEBHOOK}" for port in ports]
    alertmanagers = [RealAlertmanager(tmp_path / peer.name, *urls) for peer in network.peers]
    others = [f"--cluster.peer=127.0.0.1:{peer.advertises}" for peer in network.peers]
    try:
        for peer, each in zip(network.peers, alertmanagers, strict=True):
            here = [f"--cluster.listen-address=127.0.0.1:{peer.listens}"]
            each.cluster = [*here, f"--cluster.advertise-address=127.0.0.1:{peer.advertises}", *others, *QUICK]
            each.start()
            peer.pid = each.pid
        with Pair() as pair:
            known = ",".join(each.url for each in alertmanagers)
            flags = [f"--storage.url={pair.url}", f"--alertmanager.url={known}"]
            with Two(tmp_path, slack, flags, ports) as two:
                yield Site(slack, two, network, alertmanagers)
    finally:
        for each in alertmanagers:
            each.end()
        network.close()


def changes(message: dict[str, Any]) -> list[bool]:
    """Return in which order a message said that it fires (False) and that it is over (True)."""
    texts = [*(version["text"] for version in message["versions"]), message["text"]]
    said = ["Resolved" in text for text in texts]
    return [said[0], *(after for before, after in pairwise(said) if before is not after)]


def restarted(process: Process) -> None:
    process.end()
    process.start()


def test_split_in_two_and_healed_each_incident_is_told_once_and_ends_once(site: Site) -> None:
    first, *others = site.alertmanagers
    wait_until(lambda: site.members() == [3, 3, 3], seconds=PATIENCE)
    site.fire("before")
    site.fire("across")
    wait_until(lambda: site.told("before") and site.told("across"), seconds=PATIENCE)

    site.network.split({"a"}, {"b", "c"})
    wait_until(lambda: site.members() == [1, 2, 2], seconds=PATIENCE)
    before = site.deliveries()
    site.fire("during")
    site.fire("left", [first])
    site.fire("right", others)
    wait_until(lambda: all(site.told(row) for row in ("during", "left", "right")), seconds=PATIENCE)
    site.end("across")
    wait_until(lambda: site.is_over("across"), seconds=PATIENCE)
    restarted(site.two.leader())
    site.fire("killed")
    wait_until(lambda: site.told("killed"), seconds=PATIENCE)
    # Both sides deliver to both services: two receivers, three changes at least.
    wait_until(
        lambda: site.deliveries()[0] - before[0] >= 6 and sum(site.deliveries()[1:]) - sum(before[1:]) >= 6,
        seconds=PATIENCE,
    )
    assert site.network.dropped > 0

    site.network.heal()
    wait_until(lambda: site.members() == [3, 3, 3], seconds=PATIENCE)
    restarted(site.two.leader())
    site.fire("after")
    for row in ("before", "during", "left", "right", "killed"):
        site.end(row)
    rows = ("before", "across", "during", "left", "right", "killed")
    wait_until(lambda: all(site.is_over(row) for row in rows) and site.told("after"), seconds=PATIENCE)
    time.sleep(5.0)  # what comes late
    assert {row: [changes(message) for message in site.told(row)] for row in (*rows, "after")} == {
        **{row: [[False, True]] for row in rows}, "after": [[False]],
    }  # fmt: skip
    wait_until(lambda: sum(each.leads() for each in site.two.both) == 1, seconds=PATIENCE)
    assert len(site.two.leader().incidents()) == len(rows) + 1
