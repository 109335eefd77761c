"""Two clusters whose nodes and runs have the same names, at one service with its server.

Nothing of one is taken for the other's: neither in messages nor in what is joined, resolved or routed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from alerting_fakes import body, raw_alert, wait_until
from alerting_running import Running

from pyrometer_alerting.app.service import WEBHOOK_PATH
from pyrometer_alerting.channel.slack import WebSlack
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.model.routing import Routing, load
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.slack_channel import Channel

CLUSTERS = ("prod-a", "prod-b")
ROUTES = """
routing:
  routes:
    - match: {cluster: prod-b}
      channel: "#prod-b"
"""


@pytest.fixture(params=["one channel", "a channel each"])
def routing(request: pytest.FixtureRequest, tmp_path: Path) -> Routing:
    if request.param == "one channel":
        return Routing("#gpu-alerts")
    (tmp_path / "config.yaml").write_text(ROUTES)
    return load(tmp_path / "config.yaml", "#gpu-alerts")


@pytest.fixture
def site(tmp_path: Path, slack: FakeSlack, routing: Routing) -> Iterator[Running]:
    slack.channels["C000000002"] = Channel(id="C000000002", name="prod-b")
    store = Store(tmp_path / "store")
    with Running(store, WebSlack("xoxb-test", slack.url), routing=routing) as running:
        yield running


def send(site: Running, name: str, *, firing: bool = True, clusters: tuple[str, ...] = CLUSTERS, **labels: str) -> None:
    """Send the same alert of each cluster, in the groups that Alertmanager makes by cluster, alert and run."""
    for cluster in clusters:
        alert = raw_alert(name, firing=firing, cluster=cluster, **labels)
        group = json.dumps([cluster, name, labels.get("run", "")])
        status, _ = site.ask(WEBHOOK_PATH, body(alert, groupKey=group), "POST")
        assert status == 200


def state(site: Running) -> dict[str, list[str]]:
    """Return the alerts of each cluster's open incidents."""
    found: dict[str, list[str]] = {name: [] for name in CLUSTERS}
    for incident in site.incidents():
        if incident["status"] != "resolved":
            found[incident["cluster"]].append(incident["alertname"])
    return {name: sorted(alerts) for name, alerts in found.items()}


def told(slack: FakeSlack, cluster: str) -> list[str]:
    """Return the texts of the messages that name a cluster."""
    texts = [json.dumps(message) for name in ("gpu-alerts", "prod-b") for message in slack.messages(name)]
    return [text for text in texts if cluster in text]


def test_the_same_node_of_two_clusters_is_two_incidents(site: Running, slack: FakeSlack) -> None:
    send(site, "GpuLost", node="gpu-001", gpu="3")
    wait_until(lambda: state(site) == {"prod-a": ["GpuLost"], "prod-b": ["GpuLost"]})
    wait_until(lambda: told(slack, "prod-a") and told(slack, "prod-b"))
    for mine, other in (CLUSTERS, CLUSTERS[::-1]):
        (message,) = told(slack, mine)
        assert other not in message
    send(site, "GpuLost", firing=False, clusters=("prod-a",), node="gpu-001", gpu="3")
    wait_until(lambda: state(site) == {"prod-a": [], "prod-b": ["GpuLost"]})


def test_the_cause_in_one_cluster_explains_no_run_of_the_other(site: Running, slack: FakeSlack) -> None:
    send(site, "TrainMfuDropped", run="llama", component="train")
    send(site, "GpuThrottledThermal", clusters=("prod-b",), node="gpu-001", gpu="3", run="llama")
    wait_until(lambda: "GpuThrottledThermal" in state(site)["prod-b"])
    wait_until(lambda: len(told(slack, "prod-b")) == 2)
    assert state(site)["prod-a"] == ["TrainMfuDropped"]
    assert [text for text in told(slack, "prod-a") if "Throttled" in text or "prod-b" in text] == []


def test_one_node_that_fails_in_each_of_two_clusters_is_no_mass_event(site: Running) -> None:
    for port in range(4):
        send(site, "NicLinkDown", node="gpu-001", device=f"mlx5_{port}", port="1", switch="leaf-1")
    wait_until(lambda: all(names for names in state(site).values()))
    assert {incident["cluster"] for incident in site.incidents()} == set(CLUSTERS)
    assert [incident for incident in site.incidents() if incident["cluster"] not in CLUSTERS] == []


def test_a_channel_per_cluster_is_told_of_its_own_alone(site: Running, slack: FakeSlack, routing: Routing) -> None:
    send(site, "GpuLost", node="gpu-001", gpu="3")
    there = "prod-b" if routing.routes else "gpu-alerts"
    wait_until(lambda: "prod-b" in json.dumps(slack.messages(there)))
    wait_until(lambda: "prod-a" in json.dumps(slack.messages("gpu-alerts")))
    if routing.routes:
        assert "prod-a" not in json.dumps(slack.messages("prod-b"))
        assert '"prod-b"' not in json.dumps(slack.messages("gpu-alerts")).replace("#prod-b", "")
