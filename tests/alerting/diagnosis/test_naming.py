"""A cause is named after what came with the drop, and nobody is blamed where it is no single part's."""

from __future__ import annotations

from dataclasses import replace

from alerting_fakes import START, alert, training_incident

from pyrometer_alerting.diagnosis import wording
from pyrometer_alerting.diagnosis.candidates import Case
from pyrometer_alerting.diagnosis.conclusion import concluded
from pyrometer_alerting.diagnosis.extent import Group
from pyrometer_alerting.diagnosis.ranking import candidates, causes
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import Cause, Diagnosis

NODE = {"node": "gpu-001"}
ROSTER = Roster("0", {f"gpu-00{number}": tuple(map(str, range(8))) for number in range(4)})
NOW = START + 120
CASE = Case(NOW, (START,), None, ROSTER)


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


def test_the_kernels_line_and_its_alert_are_one_fact() -> None:
    alarm = Fact("alert", NODE, "HostOutOfMemory", began=START + 5, precision=60.0)
    line = Fact("oom_kill", NODE, began=START, moments=((START, 1.0),), before=0.0, first_at=NOW + 1)
    told = Diagnosis(NOW, facts=(alarm,), roster=ROSTER, drops=(START,))
    first = concluded(training_incident(), told)
    assert first.causes[0].cause == "a process killed for lack of memory"
    then = concluded(training_incident(diagnosis=first), replace(told, at=NOW + 1, facts=(alarm, line)))
    assert (len(then.causes), then.causes[0].cause) == (1, "the kernel killed a process for lack of memory")
    assert (then.causes[0].part, then.revision, then.seen) == ("gpu-001", "", ())


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


def _features(began: float, case: Case) -> dict[str, float]:
    heat = Fact("sw_thermal", {**NODE, "gpu": "3"}, began=began, strength=1.0, value=20.0, peers=0.0)
    return dict(candidates((heat,), case)[0].features)


def test_what_begins_long_after_the_first_drop_did_not_cause_it() -> None:
    assert "began_after_drop" in _features(START + 30, Case(NOW, (START,), None, ROSTER))


def test_what_begins_soon_after_a_later_drop_may_have_begun_with_one_that_is_too_close_to_be_told_apart() -> None:
    case = Case(NOW + 600, (START - 900, START), None, ROSTER)
    assert "began_after_drop" not in _features(START + 30, case)
    assert "began_after_drop" in _features(START + 90, case)


def test_what_begins_after_the_recovery_is_not_measured_by_the_drop_before_it() -> None:
    assert "began_after_drop" not in _features(START + 300, Case(START + 480, (START,), START + 200, ROSTER))
    assert "began_after_drop" in _features(START + 300, Case(START + 481, (START,), START + 200, ROSTER)), (
        "no drop came"
    )
    assert "began_after_drop" in _features(START + 100, Case(NOW + 600, (START,), START + 200, ROSTER))


def waited(value: float) -> list[str]:
    fact = Fact("least_wait", NODE, "ranks 8-15", value=value, peers=0.6, before=0.0, strength=0.85)
    convincing, _seen = causes(candidates((fact,), CASE), CASE)
    return [cause.part for cause in convincing]


def test_ranks_that_wait_long_themselves_do_not_hold_up_the_others() -> None:
    assert waited(0.05) == ["gpu-001"]
    assert waited(0.45) == []


def hot(gpu: str, node: str = "gpu-001") -> Fact:
    return Fact("hw_thermal", {"node": node, "gpu": gpu}, began=START, value=100.0, peers=0.0, before=0.0, strength=1.0)


def test_the_waits_for_a_hot_gpu_are_its_evidence_and_no_second_finding() -> None:
    clock = Fact("clock_low", {"node": "gpu-001", "gpu": "3"}, began=START, value=900.0, before=1980.0, strength=1.0)
    waited = Fact("least_wait", NODE, "ranks 8-15", value=0.05, peers=0.4, before=0.0, began=START, strength=1.0)
    convincing, seen = causes(candidates((hot("3"), clock, waited), CASE), CASE)
    assert [cause.part for cause in convincing] == ["gpu-001 GPU 3"]
    assert any("ranks 8-15 wait least" in sentence for sentence in convincing[0].evidence)
    assert seen == []


def test_a_cause_refuted_only_by_its_time_is_listed_with_the_reason() -> None:
    late = replace(hot("3"), began=START + 60)
    clock = Fact("clock_low", {"node": "gpu-001", "gpu": "3"}, began=START + 60, value=900.0, before=1980.0)
    convincing, (seen,) = causes(candidates((late, clock), CASE), CASE)
    assert convincing == []
    assert (seen.part, seen.against) == ("gpu-001 GPU 3", ("began 60 s after the drop",))


def test_the_same_trouble_of_several_gpus_elsewhere_is_one_sentence() -> None:
    limit = Group({"rack": "r1"}, (Fact("power_limit", NODE, value=410.0, before=700.0, began=START),), 3, 3, 3)
    capped = [
        Fact("power_cap", {"node": "gpu-002", "gpu": gpu}, began=START, value=0.5, seen_at=NOW, strength=0.5)
        for gpu in "046"
    ]
    _limit, *others = wording.evidence((limit,), capped, ROSTER, CASE.kinds)
    assert len(others) == 1
    assert others[0].startswith("gpu-002: held by the power cap 50 % of the last minute, more since ")
    assert others[0].endswith(" on 3 of its 8 GPUs")


def test_the_node_around_a_lost_gpu_is_not_another_culprit() -> None:
    lost = Cause("gpu-001 GPU 1", "Xid 79", labels={"node": "gpu-001", "gpu": "1"})
    errors = Cause("gpu-001", "PCIe errors", labels=NODE)
    elsewhere = Cause("gpu-002", "PCIe errors", labels={"node": "gpu-002"})
    incident = training_incident(diagnosis=Diagnosis(START, (lost, errors)))
    assert culprits(incident) == ["gpu-001 GPU 1"]
    incident = training_incident(diagnosis=Diagnosis(START, (lost, elsewhere)))
    assert culprits(incident) == ["gpu-001 GPU 1", "gpu-002"]
    incident = training_incident(diagnosis=Diagnosis(START, (errors, lost)))
    assert culprits(incident) == ["gpu-001", "gpu-001 GPU 1"]
