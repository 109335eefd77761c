"""The simulated hardware as the training loop feels it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrometer_simulator.demo.hardware import Hardware, Node
from pyrometer_simulator.demo.trainer import Settings


@pytest.fixture
def nodes(tmp_path: Path) -> dict[str, Node]:
    return {name: Node(tmp_path / name, number, gpus=2) for number, name in enumerate(("a", "b"), start=1)}


def test_a_healthy_cluster_slows_nobody(tmp_path: Path, nodes: dict[str, Node]) -> None:
    hardware = Hardware(tmp_path, tuple(nodes), gpus=2)
    assert hardware.slowest() == (None, 1.0)
    assert hardware.links_up()


def test_the_slowest_gpu_sets_the_pace(tmp_path: Path, nodes: dict[str, Node]) -> None:
    hardware = Hardware(tmp_path, tuple(nodes), gpus=2)
    nodes["a"].gpus[0].throttle("sw_thermal", sm_clock=1800)
    nodes["b"].gpus[1].throttle("hw_thermal", sm_clock=1200)
    place, factor = hardware.slowest()
    assert place == ("b", 1)
    assert factor == pytest.approx(1980 / 1200)
    nodes["b"].gpus[1].recover()
    assert hardware.slowest()[0] == ("a", 0)


def test_one_link_down_stops_the_collective(tmp_path: Path, nodes: dict[str, Node]) -> None:
    hardware = Hardware(tmp_path, tuple(nodes), gpus=2)
    nodes["b"].tree.nic("mlx5_3").down()
    assert not hardware.links_up()
    nodes["b"].tree.nic("mlx5_3").up()
    assert hardware.links_up()


def test_the_trainers_settings_survive_the_way_through_its_argument() -> None:
    settings = Settings(run="r", folder="/f", nodes=("a", "b"), gpus_per_node=8)
    assert Settings.parse(settings.json()) == settings
