"""Boards learn of open incidents what the channel says: who did it, why, since when, how sure, and what it cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from alerting_fakes import START, alert, training_incident

from pyrometer_alerting.app.gauges import LONGEST_LABEL, MOST_INCIDENTS, incident_gauges
from pyrometer_alerting.model.incident import Cause, Cost, Diagnosis, Incident

STARTED, LOST = "pyrometer_incident_start_timestamp_seconds", "pyrometer_incident_lost_gpu_hours"
HOT = Cause("gpu-042 GPU 3", "throttled by heat", labels={"node": "gpu-042", "gpu": "3"}, confidence="high")


def shown(*incidents: Incident, url: str = "https://alerts.example") -> list[tuple[dict[str, str], float]]:
    """The labels and the start of each incident."""
    return [(dict(key), value) for key, value in incident_gauges(incidents, url).get(STARTED, {}).items()]


def diagnosed(cause: Cause = HOT, **kwargs: Any) -> Incident:
    cost = Cost(12.5, 4088, 0.45, START + 60)
    return training_incident(diagnosis=Diagnosis(START + 9, (cause,), onset=START - 30, cost=cost), **kwargs)


def test_a_diagnosed_incident_has_its_culprit_cause_and_onset() -> None:
    ((labels, since),) = shown(diagnosed(acknowledged="ada"))
    assert since == START - 30
    assert labels == {
        "cluster": "c1", "id": "incident-1", "alert": "TrainMfuDropped", "severity": "critical", "run": "llama-70b",
        "job_id": "",
        "node": "gpu-042", "gpu": "3", "part": "gpu-042 GPU 3", "cause": "throttled by heat", "confidence": "high",
        "acknowledged": "ada", "link": "https://alerts.example/#incident-1",
    }  # fmt: skip


def test_its_cost_is_that_of_the_incident_and_absent_while_unknown() -> None:
    (lost,) = incident_gauges([diagnosed()], "")[LOST].values()
    assert lost == 12.5
    assert LOST not in incident_gauges([training_incident()], "")


def test_a_training_symptom_without_a_cause_is_unknown() -> None:
    ((labels, since),) = shown(training_incident(), url="")
    assert (labels["part"], labels["cause"], labels["confidence"], labels["link"]) == ("unknown", "unknown", "", "")
    assert since == START


def test_an_alert_of_a_part_needs_no_diagnosis() -> None:
    lost = alert("GpuLost", labels={"node": "gpu-007", "gpu": "1"})
    ((labels, _),) = shown(training_incident(run="", component="gpu", alertname="GpuLost", members=(lost,)))
    assert (labels["part"], labels["cause"], labels["node"], labels["gpu"]) == ("gpu-007 GPU 1", "", "gpu-007", "1")


def test_only_open_incidents_of_the_channel_are_shown() -> None:
    over, info = diagnosed(resolved_at=START + 60), diagnosed(severity="info")
    assert shown(over, info, diagnosed(joined_into="other")) == []


def test_a_storm_is_bounded_and_the_worst_stay() -> None:
    many = [diagnosed(id=f"w{number}", severity="warning") for number in range(MOST_INCIDENTS + 5)]
    ids = [labels["id"] for labels, _ in shown(*many, diagnosed(id="worst"))]
    assert ids == ["worst", *(f"w{number}" for number in range(MOST_INCIDENTS - 1))]


def test_long_and_hostile_texts_are_cut() -> None:
    ((labels, _),) = shown(diagnosed(replace(HOT, cause="x" * 500 + "\n", part="a\x00b")))
    assert len(labels["cause"]) == LONGEST_LABEL
    assert "\x00" not in labels["part"]


def test_the_page_has_an_address_only_where_it_is_known() -> None:
    assert incident_gauges([], "http://h:9096") == {"pyrometer_alerting_page_info": {(("url", "http://h:9096"),): 1.0}}
    assert incident_gauges([], "") == {}


def test_a_cause_of_no_single_part_points_to_no_node() -> None:
    ((labels, _),) = shown(
        diagnosed(Cause("no single part", "data loading"), members=(alert(labels={"node": "gpu-9"}),))
    )
    assert (labels["part"], labels["node"], labels["gpu"]) == ("no single part", "", "")


def test_a_link_is_never_cut() -> None:
    address = "https://alerts.example/" + "a" * 200
    ((labels, _),) = shown(diagnosed(), url=address)
    assert labels["link"] == f"{address}/#incident-1"
