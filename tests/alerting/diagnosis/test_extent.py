"""The smallest part that contains all who are sick."""

from __future__ import annotations

from pyrometer_alerting.diagnosis.extent import groups
from pyrometer_alerting.model.fact import Fact, Roster

NODES = tuple(f"n{number}" for number in range(8))
GPUS = tuple(map(str, range(8)))


def roster(nodes: tuple[str, ...] = NODES) -> Roster:
    racks = {node: {"rack": f"r{number // 4}"} for number, node in enumerate(NODES)}
    return Roster(gpus=dict.fromkeys(nodes, GPUS), places={node: racks[node] for node in nodes})


def hot(node: str, gpus: int, kind: str = "sw_thermal") -> list[Fact]:
    return [Fact(kind, {"node": node, "gpu": str(gpu)}, began=100.0, strength=1.0) for gpu in range(gpus)]


def parts(facts: list[Fact], nodes: tuple[str, ...] = NODES) -> list[dict[str, str]]:
    return [dict(group.labels) for group in groups(facts, roster(nodes))]


def test_two_hot_gpus_are_two_and_five_are_the_node() -> None:
    assert parts(hot("n1", 2)) == [{"node": "n1", "gpu": "0"}, {"node": "n1", "gpu": "1"}]
    assert parts(hot("n1", 5)) == [{"node": "n1"}]


def test_all_nodes_of_a_rack_are_the_rack() -> None:
    rack = [fact for node in NODES[:4] for fact in hot(node, 7)]
    assert parts(rack) == [{"rack": "r0"}]


def test_a_hall_that_is_too_warm_is_no_rack_of_it() -> None:
    hall = [fact for node in NODES for fact in hot(node, 7)]
    assert parts(hall) == [{}]
    alerts = [Fact("alert", fact.labels, "GpuThrottledThermal", began=100.0) for fact in hall]
    assert parts(alerts) == [{}]


def test_a_run_within_one_rack_that_is_sick_as_a_whole_is_the_racks() -> None:
    for kind in ("sw_thermal", "clock_low"):
        assert parts([fact for node in NODES[:3] for fact in hot(node, 7, kind)], NODES[:3]) == [{"rack": "r0"}]
