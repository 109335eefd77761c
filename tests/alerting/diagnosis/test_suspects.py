from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from alerting_fakes import START, FakePrometheus, training_incident

from pyrometer_alerting.diagnosis.causes import diagnose
from pyrometer_alerting.diagnosis.evidence import Evidence
from pyrometer_alerting.diagnosis.host_evidence import HostEvidence, RankEvidence, gather_host, gather_ranks
from pyrometer_alerting.diagnosis.suspects import (
    Suspect,
    least_waiting,
    suspects_from_hosts,
    suspects_from_ranks,
    weigh_shape,
)
from pyrometer_alerting.model.incident import Cause, Shape
from pyrometer_kit.prometheus import Series

GPUS = pd.DataFrame([{"node": f"gpu-{n:03d}", "gpu": str(g)} for n in range(4) for g in range(8)])


def point(value: float, **labels: str) -> Series:
    return Series(labels, ((START, value),))


def waits(slow: float = 0.62, node: str = "gpu-002") -> pd.DataFrame:
    rows = [
        {**place, "rank": str(rank), "stage": "", "wait": 0.60 + 0.005 * (rank % 5)}
        for rank, place in enumerate(GPUS.to_dict("records"))
    ]
    frame = pd.DataFrame(rows)
    frame.loc[(frame["node"] == node) & (frame["gpu"] == "3"), "wait"] = slow
    return frame


def causes(**found: Any) -> tuple[Cause, ...]:
    evidence = Evidence(nodes=("gpu-002",), gpus=GPUS, **found)
    return diagnose(training_incident(), evidence, [], START + 60).causes


def test_the_rank_that_waits_least_is_named_with_its_gpu() -> None:
    (cause,) = causes(ranks=RankEvidence(waits=waits(slow=0.25)))
    assert (cause.part, cause.cause) == ("gpu-002 GPU 3", "the other ranks wait for it")
    assert cause.evidence == ("rank 19 waits least: 25.0 % of its step, 61.0 % the median rank",)


def test_ranks_that_wait_alike_accuse_nobody() -> None:
    assert least_waiting(waits()) is None
    assert least_waiting(waits().head(3)) is None


def test_ranks_are_compared_within_their_stage() -> None:
    frame = waits()
    frame.loc[frame["node"] == "gpu-001", ["stage", "wait"]] = ["1", 0.2]
    assert least_waiting(frame) is None


def test_a_fatal_xid_weighs_more_than_an_applications() -> None:
    xids = pd.DataFrame(
        [
            {"node": "gpu-001", "gpu": "2", "xid": "79", "count": 1.0},
            {"node": "gpu-003", "gpu": "2", "xid": "43", "count": 2.0},
            {"node": "gpu-200", "gpu": "2", "xid": "79", "count": 2.0},
        ]
    )
    found = causes(hosts=HostEvidence(xids=xids))
    assert [(cause.part, cause.cause) for cause in found] == [("gpu-001 GPU 2", "Xid 79"), ("gpu-003 GPU 2", "Xid 43")]
    assert found[1].against == ("not one of the Xids that take a GPU out of service",)


def test_pressure_names_the_host_and_what_was_normal() -> None:
    row = {"node": "gpu-001", "resource": "CPU", "now": 0.62, "before": 0.01, "usual": 0.012}
    (cause,) = causes(hosts=HostEvidence(pressure=pd.DataFrame([row])))
    assert (cause.part, cause.cause) == ("gpu-001", "CPU pressure")
    said = "its tasks wait for CPU 62.0 % of the time, 1.2 % on the median node, 1.0 % before the drop"
    assert cause.evidence == (said,)


@pytest.mark.parametrize(
    ("part", "cause"),
    [("data", "data loading"), ("gc", "garbage collection"), ("checkpoint", "saving a checkpoint")],
)
def test_a_part_that_grew_on_all_ranks_is_nobodys_fault(part: str, cause: str) -> None:
    parts = pd.DataFrame([{"part": part, "rank": "7", "worst": 0.35, "now": 0.3, "before": 0.02}])
    (found,) = causes(ranks=RankEvidence(parts=parts))
    assert (found.part, found.cause, found.labels) == ("no single part", cause, None)
    assert found.evidence == ("takes 30.0 % of the median rank's step, 2.0 % before",)


def test_a_part_that_grew_on_one_rank_names_it() -> None:
    parts = pd.DataFrame([{"part": "data", "rank": "9", "worst": 0.4, "now": 0.02, "before": 0.02}])
    (found,) = causes(ranks=RankEvidence(waits=waits(), parts=parts))
    assert (found.part, found.cause) == ("gpu-001 rank 9", "data loading")


def test_several_findings_of_one_part_are_one_cause() -> None:
    xids = pd.DataFrame([{"node": "gpu-002", "gpu": "3", "xid": "79", "count": 1.0}])
    (cause,) = causes(hosts=HostEvidence(xids=xids), ranks=RankEvidence(waits=waits(slow=0.2)))
    assert cause.cause == "Xid 79"
    assert cause.evidence[1].startswith("the other ranks wait for it (rank 19 waits least")


def test_the_curve_speaks_for_and_against() -> None:
    dips = Shape("frequent_dips", 0.9, "dips")
    hot, lanes = Suspect({}, "heat", 50.0, 0.0, kind="throttle"), Suspect({}, "lanes", 50.0, 0.0, kind="pcie")
    for suspect in (hot, lanes):
        weigh_shape(suspect, dips)
    assert hot.score > 50
    assert lanes.score < 50
    assert lanes.against == ["the MFU curve (frequent dips) is not what this causes"]
    weigh_shape(hot, Shape("unknown", 0.9, ""))
    assert not hot.against


def test_without_a_culprit_the_curve_says_where_to_look() -> None:
    (cause,) = causes(shape=Shape("noisy", 0.8, "good on average, noisier", look_at="the switches"))
    assert cause.part == "unknown"
    assert "for such an MFU curve, check the switches" in cause.evidence


def test_hosts_and_ranks_that_nobody_measures_are_missing_evidence() -> None:
    nothing = FakePrometheus()
    assert gather_host(nothing, "c1", ["gpu-001"], START, START + 60).missing[0].startswith("no CPU, memory or disk")
    assert gather_ranks(nothing, "c1", "r", START, START + 60).missing[0].startswith("no parts of the steps")


def test_only_hosts_that_stand_out_and_did_not_before_are_under_pressure() -> None:
    class Hosts(FakePrometheus):
        before = 0.02

        def instant(self, query: str, at: float) -> list[Series]:
            if "cpu_waiting" in query:
                busy = 0.5 if at > START else self.before
                return [point(0.02, node=f"gpu-{n:03d}") for n in range(4)] + [point(busy, node="gpu-009")]
            return [point(0.5, node=f"gpu-{n:03d}") for n in range(4)] if "memory_waiting" in query else []

    prometheus = Hosts()
    found = gather_host(prometheus, "c1", ["gpu-009"], START, START + 60)
    assert found.pressure[["node", "resource"]].to_numpy().tolist() == [["gpu-009", "CPU"]]
    prometheus.before = 0.5
    assert gather_host(prometheus, "c1", ["gpu-009"], START, START + 60).pressure.empty


def test_nothing_found_accuses_nobody() -> None:
    assert suspects_from_hosts(HostEvidence(), GPUS) == []
    assert suspects_from_ranks(RankEvidence()) == []
