"""Correlation: which incidents are one (parts, switches, racks, storms), and how several are merged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from alerting_fakes import START, alert, training_incident
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_alerting.channel.card import headline
from pyrometer_alerting.incidents.correlation import explained_by, groups, merged_incident, widened_to_node
from pyrometer_alerting.incidents.lifecycle import fold
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.fact import Roster
from pyrometer_alerting.model.incident import Cause, Diagnosis, Incident
from pyrometer_alerting.model.places import Topology


def opened(name: str = "NicLinkFlapping", *, at: float = START, **labels: str) -> Incident:
    fingerprint = "-".join([name, *labels.values()])
    component = "nic" if name.startswith(("Nic", "Fabric")) else "gpu"
    change = fold(
        None, [alert(name, labels={"component": component, **labels}, fingerprint=fingerprint, starts_at=at)], 0, at
    )
    assert change is not None
    return change.incident


def ports(count: int, **more: Any) -> list[Incident]:
    return [opened(node=f"n{number}", device="mlx5_0", port="1", **more) for number in range(count)]


LEAF = Topology(ports={("c1", f"n{number}", "mlx5_0", "1"): ("leaf-12", "0") for number in range(400)})
RAIL = Topology(ports={("c1", f"n{number}", "mlx5_0", "1"): ("", "0") for number in range(400)})
RACK = Topology(racks={("c1", f"n{number}"): "r07" for number in range(400)})


def test_three_ports_of_one_switch_are_the_switch() -> None:
    assert groups(ports(2), [], LEAF) == []
    (group,) = groups(ports(3), [], LEAF)
    assert (len(group.incidents), group.domain) == (3, "switch leaf-12")


def test_a_rail_where_the_switch_is_not_known() -> None:
    (group,) = groups(ports(3), [], RAIL)
    assert group.domain == "rail 0"


def test_the_third_port_takes_those_that_came_before_along() -> None:
    early = ports(3)
    (group,) = groups([early[2]], early[:2], LEAF)
    assert len(group.incidents) == 3


def test_what_began_long_before_is_a_coincidence() -> None:
    assert groups([opened(node="n2", device="mlx5_0", port="1", at=START + 301)], ports(2), LEAF) == []


def test_a_domain_that_fires_takes_its_late_comers_in() -> None:
    (group,) = groups(ports(3), [], LEAF)
    switch = merged_incident(group.incidents, group.domain)
    (late,) = groups([opened(node="n9", device="mlx5_0", port="1", at=START + 3000)], [switch], LEAF)
    assert {incident.id for incident in late.incidents} >= {switch.id}
    assert late.domain == "switch leaf-12"


def test_three_hot_nodes_of_one_rack_are_the_rack() -> None:
    hot = [opened("GpuThrottledThermal", node=f"n{number}", gpu="0") for number in range(3)]
    assert groups(hot[:2], [], RACK) == []
    (group,) = groups(hot, [], RACK)
    assert group.domain == "rack r07"
    assert groups(hot, [], Topology()) == []


def test_different_alerts_on_one_gpu_are_one_without_a_domain() -> None:
    one = [opened("GpuThrottledThermal", node="n1", gpu="3"), opened("GpuXidCritical", node="n1", gpu="3")]
    (group,) = groups([one[1]], [one[0]], Topology())
    assert group.domain == ""
    assert groups([opened("GpuXidCritical", node="n1", gpu="4")], [one[0]], Topology()) == []


def test_more_than_five_nodes_in_a_minute_are_a_storm() -> None:
    assert groups(ports(5), [], Topology()) == []
    (group,) = groups(ports(6), [], Topology())
    assert group.domain == "no single part"
    spread = [opened(node=f"n{number}", device="mlx5_0", port="1", at=START + 61 * number) for number in range(6)]
    assert groups(spread, [], Topology()) == []


def test_a_switch_alone_is_no_storm_and_300_ports_are_one() -> None:
    (group,) = groups(ports(300), [], LEAF)
    assert (len(group.incidents), group.domain) == (300, "switch leaf-12")


def test_a_flood_of_different_alerts_is_one() -> None:
    many = [opened(f"Alert{number}", node=f"n{number}") for number in range(11)]
    assert groups(many[:10], [], Topology()) == []
    (group,) = groups(many, [], Topology())
    assert len(group.incidents) == 11


def test_a_flood_never_takes_a_runs_incident_in() -> None:
    run = replace(opened("TrainMfuDropped"), run="llama", component="train")
    flood = [opened(f"Alert{number}", node=f"n{number}") for number in range(11)]
    (group,) = groups([*flood, run], [], Topology())
    assert run.id not in {incident.id for incident in group.incidents}


def test_clusters_and_channels_are_never_joined() -> None:
    other = [replace(incident, cluster="c2") for incident in ports(3)]
    assert groups([*ports(2), *other[:2]], [], LEAF) == []
    assert groups([replace(ports(1)[0], channel="#nic"), *ports(3)[1:]], [], LEAF) == []


def test_a_mass_event_of_a_switch_stands_for_a_single_port_too() -> None:
    event = opened("FabricMassEvent", switch="leaf-12")
    (group,) = groups([event], ports(1), LEAF)
    assert group.domain == "switch leaf-12"


def test_a_mass_event_of_a_host_or_a_rail_stands_for_its_ports() -> None:
    port = opened(node="n1", device="mlx5_0", port="1")
    (host,) = groups([opened("FabricMassEvent", node="n1")], [port], Topology())
    assert host.domain == "n1"
    (rail,) = groups([opened("FabricMassEvent", rail="0")], [port], RAIL)
    assert rail.domain == "rail 0"
    assert groups([opened("NicLinkDown", node="n1", device="mlx5_1", port="1")], [port], Topology()) == []


def test_three_gpus_of_a_node_are_the_node() -> None:
    gpus = [
        alert("GpuThrottledThermal", labels={"node": "n1", "gpu": str(gpu)}, fingerprint=str(gpu)) for gpu in range(3)
    ]
    two, three = fold(None, gpus[:2], 0, START), fold(None, gpus, 0, START)
    assert two is not None
    assert three is not None
    assert widened_to_node(two.incident).domain == ""
    assert widened_to_node(three.incident).domain == "n1"
    assert headline(widened_to_node(three.incident)) == "🔴 GpuThrottledThermal at 3 parts: n1"


HEAT = Cause("n1 GPU 3", "heat", score=100.0, labels={"node": "n1", "gpu": "3"})
WEAK = Cause("n2 mlx5_0/1", "link flapping", score=80.0, labels={"node": "n2"})


def test_a_drop_is_explained_by_its_first_cause_only() -> None:
    hot = opened("GpuThrottledThermal", node="n1", gpu="3")
    flap = opened(node="n2", device="mlx5_0", port="1")
    run = training_incident()
    assert explained_by(run, Diagnosis(START, (HEAT, WEAK)), [hot, flap, run]) == [hot]
    assert explained_by(run, Diagnosis(START, (Cause("unknown", ""),)), [hot, flap]) == []
    assert explained_by(run, Diagnosis(START, (HEAT,)), [replace(hot, cluster="c2")]) == []
    assert explained_by(run, Diagnosis(START, (HEAT,)), [replace(hot, run="another")]) == []
    assert explained_by(run, Diagnosis(START, (HEAT,)), [replace(hot, resolved_at=START)]) == []


PORT = {"node": "n2", "device": "mlx5_0", "port": "1"}
WIRED = Topology({("c1", "n1"): "r07", ("c1", "n9"): "r08"}, {("c1", "n2", "mlx5_0", "1"): ("leaf-12", "0")})


@pytest.mark.parametrize(
    ("cause", "alert_labels", "joins"),
    [
        ({"node": "n1"}, {"node": "n1", "gpu": "5"}, True),
        ({"node": "n1"}, {"node": "n1", "device": "mlx5_3", "port": "1"}, True),
        ({"node": "n1"}, {"node": "n1", "rank": "7"}, True),
        ({"node": "n1"}, {"node": "n10", "gpu": "5"}, False),
        ({"node": "n1", "gpu": "3"}, {"node": "n1"}, True),
        ({"node": "n1", "gpu": "3"}, {"node": "n1", "gpu": "4"}, False),
        ({"node": "n1", "gpu": "3"}, {"rack": "r07"}, True),
        ({"node": "n1", "gpu": "3"}, {"rack": "r08"}, False),
        ({"rack": "r07"}, {"node": "n1", "gpu": "0"}, True),
        ({"rack": "r07"}, {"node": "n9", "gpu": "0"}, False),
        ({"rack": "r07"}, {"node": "n8", "gpu": "0", "rack": "r07"}, True),
        ({"pdu": "p1"}, {"node": "n1", "gpu": "0", "pdu": "p1"}, True),
        ({"switch": "leaf-12"}, PORT, True),
        ({"switch": "leaf-12"}, {**PORT, "port": "2"}, False),
        ({"rail": "0"}, PORT, True),
        ({"node": "n1"}, {}, False),
    ],
)
def test_places_are_compared_by_containment(cause: dict[str, str], alert_labels: dict[str, str], joins: bool) -> None:
    found = Diagnosis(START, (Cause("x", "trouble", score=100.0, labels=cause),))
    hot = opened("GpuThrottledThermal", **alert_labels)
    assert bool(explained_by(training_incident(), found, [hot], WIRED)) is joins


@pytest.mark.parametrize(("domain", "joins"), [("n1", True), ("rack r07", True), ("rack r08", False), ("n2", False)])
def test_an_incident_joins_whose_domain_contains_the_blamed_part(domain: str, joins: bool) -> None:
    far = replace(opened("GpuThrottledThermal", node="n5", gpu="0"), domain=domain)
    assert bool(explained_by(training_incident(), Diagnosis(START, (HEAT,)), [far], WIRED)) is joins


def test_a_runs_roster_knows_the_racks_of_its_nodes() -> None:
    roster = Roster(places={"n1": {"rack": "r07"}})
    rack = Diagnosis(START, (Cause("rack r07", "heat", score=100.0, labels={"rack": "r07"}),), roster=roster)
    hot = [opened("GpuThrottledThermal", node="n1", gpu=str(gpu)) for gpu in range(3)]
    assert explained_by(training_incident(), rack, hot) == hot
    run = training_incident(diagnosis=rack)
    assert culprits(replace(run, members=(*run.members, *hot[0].members))) == ["rack r07"]


def test_what_begins_inside_a_node_that_an_incident_is_named_after_is_part_of_it() -> None:
    node = replace(opened("GpuThrottledThermal", node="n1", gpu="0"), domain="n1")
    inside, beside = opened(node="n1", device="mlx5_0", port="1"), opened(node="n2", device="mlx5_0", port="1")
    (group,) = groups([inside, beside], [node], Topology())
    assert ({incident.id for incident in group.incidents}, group.domain) == ({node.id, inside.id}, "n1")


LINK = Cause("n2 mlx5_0/1", "link flapping", score=105.0, labels={"node": "n2", "device": "mlx5_0", "port": "1"})


def test_a_link_explains_a_drop_when_it_leads_for_a_while() -> None:
    flap = opened(node="n2", device="mlx5_0", port="1")
    found = Diagnosis(START, (LINK,))
    run = training_incident(diagnosis=found)
    assert explained_by(training_incident(), found, [flap]) == []
    assert explained_by(run, Diagnosis(START + 1, (LINK,)), [flap]) == []
    assert explained_by(run, Diagnosis(START + 10, (LINK,)), [flap]) == [flap]
    hot_before = Diagnosis(START, (replace(HEAT, score=120.0), LINK))
    assert explained_by(training_incident(diagnosis=hot_before), Diagnosis(START + 10, (LINK,)), [flap]) == []


def test_another_trouble_that_scores_as_high_stays_an_incident_of_its_own() -> None:
    hot, flap = opened("GpuThrottledThermal", node="n1", gpu="3"), opened(node="n2", device="mlx5_0", port="1")
    close = Diagnosis(START, (HEAT, replace(LINK, score=95.0)))
    assert explained_by(training_incident(diagnosis=close), close, [hot, flap]) == [hot]
    other = replace(HEAT, part="n1 GPU 4", score=95.0, labels={"node": "n1", "gpu": "4"})
    too = opened("GpuThrottledThermal", node="n1", gpu="4")
    assert explained_by(training_incident(), Diagnosis(START, (HEAT, other)), [hot, too]) == [hot, too]


def test_cause_and_effect_become_one_named_after_the_effect_at_the_place_of_the_cause() -> None:
    hot = replace(opened("GpuThrottledThermal", node="n1", gpu="3", severity="warning"), episodes=((1.0, 2.0),))
    run = training_incident(diagnosis=Diagnosis(START, (HEAT,)))
    one = merged_incident([hot, run], "")
    assert (one.id, one.key, one.keys) == (hot.id, hot.key, (run.key,))
    assert (one.alertname, one.run, one.severity) == ("TrainMfuDropped", "llama-70b", "critical")
    assert one.diagnosis == run.diagnosis
    assert culprits(one) == ["n1 GPU 3"]
    assert one.newest().name == "TrainMfuDropped"
    assert one.episodes == ((1.0, 2.0),)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 400)), min_size=1, max_size=40))
def test_joining_never_loses_or_doubles_an_alert(drawn: list[tuple[int, int, int]]) -> None:
    found = {
        incident.key: incident
        for node, device, later in drawn
        if (incident := opened(node=f"n{node}", device=f"mlx5_{device}", port="1", at=START + later))
    }
    incidents = list(found.values())
    half = len(incidents) // 2
    together = groups(incidents[half:], incidents[:half], LEAF)
    seen = [incident.id for group in together for incident in group.incidents]
    assert len(seen) == len(set(seen))
    for group in together:
        one = merged_incident(group.incidents, group.domain)
        assert {alert.fingerprint for alert in one.members} == {
            alert.fingerprint for incident in group.incidents for alert in incident.members
        }
        assert {one.key, *one.keys} == {incident.key for incident in group.incidents}
