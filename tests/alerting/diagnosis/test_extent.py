"""The smallest part that contains all who are sick."""

from __future__ import annotations

import pytest

from pyrometer_alerting.diagnosis.catalog import load
from pyrometer_alerting.diagnosis.extent import groups
from pyrometer_alerting.diagnosis.wording import said
from pyrometer_alerting.model.fact import Fact, Roster

NODES = tuple(f"n{number}" for number in range(8))
GPUS = tuple(map(str, range(8)))
KINDS = load().kinds


def roster(nodes: tuple[str, ...] = NODES) -> Roster:
    racks = {node: {"rack": f"r{number // 4}"} for number, node in enumerate(NODES)}
    return Roster(gpus=dict.fromkeys(nodes, GPUS), places={node: racks[node] for node in nodes})


def hot(node: str, gpus: int, kind: str = "sw_thermal") -> list[Fact]:
    return [Fact(kind, {"node": node, "gpu": str(gpu)}, began=100.0, strength=1.0) for gpu in range(gpus)]


def parts(facts: list[Fact], nodes: tuple[str, ...] = NODES) -> list[dict[str, str]]:
    return [dict(group.labels) for group in groups(facts, roster(nodes), KINDS)]


def test_two_hot_gpus_are_two_and_five_are_the_node() -> None:
    assert parts(hot("n1", 2)) == [{"node": "n1", "gpu": "0"}, {"node": "n1", "gpu": "1"}]
    assert parts(hot("n1", 5)) == [{"node": "n1"}]


def test_all_nodes_of_a_rack_are_the_rack() -> None:
    rack = [fact for node in NODES[:4] for fact in hot(node, 7)]
    assert parts(rack) == [{"rack": "r0"}]


def test_an_overheated_hall_is_not_blamed_on_one_rack() -> None:
    hall = [fact for node in NODES for fact in hot(node, 7)]
    assert parts(hall) == [{}]
    alerts = [Fact("alert", fact.labels, "GpuThrottledThermal", began=100.0) for fact in hall]
    assert parts(alerts) == [{}]


def test_a_run_within_one_rack_that_is_sick_as_a_whole_is_the_racks() -> None:
    for kind in ("sw_thermal", "clock_low"):
        assert parts([fact for node in NODES[:3] for fact in hot(node, 7, kind)], NODES[:3]) == [{"rack": "r0"}]


def placed(places: dict[str, str], other: dict[str, str]) -> Roster:
    """Return a run of which the first four nodes are in one place and the others in another."""
    where = {node: places if number < 4 else other for number, node in enumerate(NODES)}
    return Roster(gpus=dict.fromkeys(NODES, GPUS), places=where)


@pytest.mark.parametrize("place", ["chassis", "rack", "pdu", "cooling_zone", "row"])
def test_a_place_that_labels_name_is_found_from_facts_alone(place: str) -> None:
    facts = [fact for node in NODES[:4] for fact in hot(node, 7, "hw_power_brake")]
    found = groups(facts, placed({place: "a"}, {place: "b"}), KINDS)
    assert [dict(group.labels) for group in found] == [{place: "a"}]


def wired(kind: str) -> Roster:
    """Return a run whose ports mlx5_0 are all at one switch or rail, those of the first half at another one of it."""
    ports = {
        f"{node} mlx5_0/1": {"switch": "", "rail": ""} | {kind: "a" if node in NODES[:4] else "b"} for node in NODES
    }
    return Roster(gpus=dict.fromkeys(NODES, GPUS), ports=ports)


def down(*nodes: str) -> list[Fact]:
    return [Fact("link_down", {"node": node, "device": "mlx5_0", "port": "1"}, began=100.0) for node in nodes]


@pytest.mark.parametrize("kind", ["switch", "rail"])
def test_links_that_went_down_together_are_the_switch_or_the_rail(kind: str) -> None:
    (group,) = groups(down(*NODES[:4]), wired(kind), KINDS)
    assert (dict(group.labels), group.sick, group.of) == ({kind: "a"}, 4, 4)
    assert "4 of the run's 4 ports there" in said(group, wired(kind), KINDS)
    two = groups(down(*NODES[:2]), wired(kind), KINDS)
    assert [group.labels["node"] for group in two] == ["n0", "n1"]


def test_pressure_on_all_nodes_is_no_rack_of_them() -> None:
    slow = [Fact("pressure", {"node": node}, "memory", began=100.0) for node in NODES]
    assert parts(slow) == [{}]
    assert parts(slow[:4]) == [{"rack": "r0"}]


def test_two_hot_gpus_of_a_node_that_the_run_has_left_are_not_the_node() -> None:
    assert parts(hot("n1", 2), ("n2", "n3", "n4")) == [{"node": "n1", "gpu": "0"}, {"node": "n1", "gpu": "1"}]
    assert parts(hot("n1", 5), ("n2", "n3", "n4")) == [{"node": "n1"}]
