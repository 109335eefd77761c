"""Breaking something in a demo that runs: an order is a fault, and its answer is the channel's."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from pyrometer_simulator.demo import breaking, main
from pyrometer_simulator.demo.breaking import FAULTS, Breaker
from pyrometer_simulator.demo.cluster import Cluster
from pyrometer_simulator.demo.hardware import Hardware, Node
from pyrometer_simulator.demo.orders import Orders
from pyrometer_simulator.demo.topology import CHANNEL, NODES, TRAINER
from pyrometer_simulator.slack import FakeSlack


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Breaker:
    """A demo's nodes and cluster that take orders, with a clock of their own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(
        breaking, "FAULTS", {name: breaking.Fault("", 0.0, fault.told) for name, fault in FAULTS.items()}
    )
    folder = tmp_path / f"{breaking.PREFIX}x"
    nodes = {name: Node(folder / "nodes" / name, number, gpus=6) for number, name in enumerate(NODES[:3], start=1)}
    return Breaker(folder, nodes, Cluster(folder), lambda: 0.0)


def test_without_a_demo_that_takes_orders_one_line_says_what_to_do(
    broken: Breaker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["heat", "gpu-003"]) == 2
    (broken.folder / "running.json").write_text('{"pid": 99999999, "slack": ""}')
    assert main.main(["heat", "gpu-003"]) == 2
    line = "no demo takes orders now: start `make demo` in another terminal, and wait until it says that you can"
    assert capsys.readouterr().err.splitlines() == 2 * [f"pyrometer-demo: {line}"]


def test_an_order_breaks_what_it_names_for_a_minute(broken: Breaker, capsys: pytest.CaptureFixture[str]) -> None:
    hardware = Hardware(broken.folder / "nodes", tuple(broken.nodes), gpus=6)
    link = broken.nodes["gpu-002"].tree.nic("mlx5_5")
    with FakeSlack(channel_names=[CHANNEL]) as slack:
        broken.open(slack.page_url.rstrip("/"))
        assert main.main(["heat", "gpu-003"]) == 1  # the channel is silent
        assert "nothing in 0 s" in capsys.readouterr().out
        broken.look()
        assert hardware.slowest()[0] == ("gpu-003", 5)
        broken.now = lambda: 60.1
        broken.look()
        assert hardware.slowest()[0] is None
        main.main(["slow", "gpu-001", "2"])
        main.main(["flap", "gpu-002"])  # in place of an order that was not taken yet
        broken.look()
        assert hardware.slowest()[0] is None
        assert not link.is_up
        for moment in range(61, 70):
            broken.now = lambda moment=moment: moment + 0.2  # type: ignore[misc]
            broken.look()
        assert link.is_up
        assert broken.cluster.event_log.read_text().count("Link went down") == 3
        main.main(["kill", "gpu-001", "3"])
        broken.look()
        assert Orders(broken.folder / "nodes", TRAINER).take() == "gpu-001 3"
        assert main.main(["kill", "gpu-008"]) == 2
        assert "no rank of the run is there" in capsys.readouterr().err


def test_of_several_demos_one_must_be_chosen(broken: Breaker, capsys: pytest.CaptureFixture[str]) -> None:
    other = broken.folder.with_name(f"{breaking.PREFIX}y")
    other.mkdir()
    broken.open("http://127.0.0.1:1")
    (other / "running.json").write_text((broken.folder / "running.json").read_text().replace(":1", ":2"))
    assert main.main(["drain", "gpu-003"]) == 2
    assert "several demos run; choose one by its channel: --channel=http://127.0.0.1:" in capsys.readouterr().err
    assert main.main(["drain", "gpu-003", "--channel=http://127.0.0.1:1"]) == 0
    assert Orders(broken.folder, "director").take() == "drain gpu-003 5"


def test_drain_takes_a_node_out_of_service_and_back(broken: Breaker) -> None:
    states = []
    for _ in range(2):
        broken.open("http://127.0.0.1:1")
        assert main.main(["drain", "gpu-003"]) == 0
        broken.look()
        states.append(broken.cluster.slurm.nodes[2].states)
    assert states == [("ALLOCATED", "DRAIN"), ("ALLOCATED",)]


def test_the_answer_of_the_channel_is_shown_with_its_seconds(
    broken: Breaker, capsys: pytest.CaptureFixture[str]
) -> None:
    (broken.folder / "running.json").write_text(f'{{"pid": {os.getpid()}, "slack": "x"}}')

    class Channel:
        def __init__(self, url: str) -> None:
            self.looks = 0

        def messages(self, _: str) -> list[dict[str, object]]:
            self.looks += 1
            older = {"ts": "1", "text": "before"}
            return [older] if self.looks == 1 else [older, {"ts": "2", "text": "gpu-003 GPU 5 is hot"}]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(breaking, "RemoteSlack", Channel)
        patch.setattr(breaking, "FAULTS", {"heat": breaking.Fault("", 0.1, "hot")})
        assert main.main(["heat", "gpu-003"]) == 0
    said = capsys.readouterr().out
    assert "after 0 s:\n  gpu-003 GPU 5 is hot" in said
    assert "before" not in said
