"""A cause is named after what came with the drop, and nobody is blamed where it is no single part's."""

from __future__ import annotations

from alerting_fakes import START, alert, training_incident

from pyrometer_alerting.diagnosis.candidates import Case
from pyrometer_alerting.diagnosis.ranking import candidates, causes
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import Cause, Diagnosis

NODE = {"node": "gpu-001"}
ROSTER = Roster("0", {f"gpu-00{number}": tuple(map(str, range(8))) for number in range(4)})
NOW = START + 120


def test_an_event_from_before_the_drop_does_not_name_what_came_with_it() -> None:
    old = ((START - 400, 1.0),)
    error = Fact("pcie_aer", NODE, began=START - 400, ended=START - 400, moments=old, before=0.0)
    pressed = Fact("pressure", NODE, "CPU", began=START, value=0.47, peers=0.01, before=0.01, strength=0.47)
    waited = Fact("least_wait", NODE, "ranks 8-15", value=0.05, peers=0.4, before=0.0, strength=1.0)
    ranked = candidates((error, pressed, waited), Case(NOW, (START,), None, ROSTER))
    convincing, seen = causes(ranked, Case(NOW, (START,), None, ROSTER))
    assert [(cause.part, cause.cause) for cause in convincing] == [("gpu-001", "CPU pressure")]
    assert convincing[0].against == ()
    assert not any("PCIe" in sentence for sentence in convincing[0].evidence)
    assert all(cause.cause == "PCIe errors" for cause in seen)


def test_ranks_that_take_turns_are_not_to_blame() -> None:
    first = Fact("least_wait", NODE, "rank 8", value=0.1, peers=0.4, before=0.0, first_at=START, ended=START + 40)
    then = Fact("least_wait", {"node": "gpu-002"}, "rank 17", value=0.1, peers=0.4, before=0.0, first_at=START + 50)
    case = Case(NOW, (START,), None, ROSTER)
    convincing, _seen = causes(candidates((first, then), case), case)
    assert convincing == []
    (alone,), _seen = causes(candidates((then,), case), case)
    assert alone.part == "gpu-002"


def test_a_cause_of_no_single_part_blames_none_of_those_below_it() -> None:
    loading, rack = Cause("no single part", "data loading"), Cause("rack r1", "pressure", labels={"rack": "r1"})
    drop = alert("TrainMfuDropped", labels={"run": "llama-70b"})
    assert culprits(training_incident(members=(drop,), diagnosis=Diagnosis(NOW, (loading, rack)))) == []
    assert culprits(training_incident(members=(drop,), diagnosis=Diagnosis(NOW, (rack, loading)))) == ["rack r1"]
