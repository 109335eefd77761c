"""An incident keeps its answers from one look to the next; numbers alone are news only now and then."""

from __future__ import annotations

from dataclasses import replace

from alerting_fakes import START, FakePrometheus, training_incident

from pyrometer_alerting.diagnosis.diagnostician import is_news, merge_diagnoses
from pyrometer_alerting.diagnosis.investigation import investigate
from pyrometer_alerting.model.incident import Cause, Cost, Diagnosis, Shape

NOW = START + 60
DROP = NOW - 40


def test_the_curve_of_the_drop_outlives_it_while_the_cost_counts_on() -> None:
    hot = Cause("gpu-042 GPU 3", "hardware thermal throttling", labels={"node": "gpu-042", "gpu": "3"})
    drop, calm = Shape("step_down", 0.9, "down"), Shape("steady", 1.0, "steady")
    early, late = Cost(1.0, 8, 0.4, NOW), Cost(2.0, 8, 0.4, NOW + 60)
    during = Diagnosis(at=NOW, causes=(hot,), onset=DROP, shape=drop, cost=early)
    merged = merge_diagnoses(during, Diagnosis(at=NOW + 60, onset=None, shape=calm, cost=late))
    assert (merged.shape, merged.cost) == (drop, late)
    assert merge_diagnoses(during, Diagnosis(at=NOW + 60, onset=None)).cost == early
    assert is_news(during, replace(merged, at=NOW + 60))


def test_what_a_run_lost_that_stood_to_the_end_is_told_at_the_end() -> None:
    cost = Cost(12.5, 64, 0.45, NOW, since=DROP, settled_until=DROP)
    incident = training_incident(diagnosis=Diagnosis(NOW, cost=cost), resolved_at=NOW + 30)
    assert investigate(FakePrometheus(), incident, [], NOW + 30).cost == cost


def test_numbers_alone_are_news_only_now_and_then() -> None:
    before = Diagnosis(0.0, (Cause("p", "c", ("1 s",)),))
    assert not is_news(before, Diagnosis(10.0, (Cause("p", "c", ("11 s",)),)))
    assert is_news(before, Diagnosis(901.0, (Cause("p", "c", ("902 s",)),)))
    assert is_news(before, Diagnosis(1.0, (Cause("q", "c", ("1 s",)),)))
    assert not is_news(before, Diagnosis(99.0, before.causes))
