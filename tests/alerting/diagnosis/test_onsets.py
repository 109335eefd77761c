"""When a trouble began that no fall of the MFU shows: a stopped run, a run that stalls now and then."""

from __future__ import annotations

import numpy as np
import pandas as pd
from alerting_fakes import START, FakePrometheus, alert, training_incident

from pyrometer_alerting.diagnosis.look import Questions
from pyrometer_alerting.diagnosis.onset import has_run_since, stalls, stalls_since, stopped_at
from pyrometer_kit.prometheus import Series

STALLED = alert("TrainStalls", labels={"run": "llama-70b", "component": "train"})


def asked(prometheus: FakePrometheus, now: float) -> Questions:
    return Questions(prometheus, training_incident(members=(STALLED,)), now)


def steps(*seconds: float) -> list[tuple[float, float]]:
    """Return the ends of consecutive steps of these lengths with their lengths."""
    at, points = START, []
    for each in seconds:
        at += each
        points.append((at, each))
    return points


def test_a_run_that_stands_should_have_ended_its_next_step() -> None:
    prometheus = FakePrometheus()
    prometheus.on("pyrometer_train_last_step_timestamp_seconds", [Series({}, ((START + 100, START),))])
    prometheus.on("pyrometer_train_batch_step_seconds", [Series({}, ((START, 4.0),))])
    assert stopped_at(asked(prometheus, START + 100)) == START + 4
    assert stopped_at(asked(prometheus, START + 50)) is None


def test_stalls_began_with_the_first_that_others_followed() -> None:
    points = steps(*[1.0] * 50, 9.0, *[1.0] * 400, 9.0, *[1.0] * 60, 12.0, *[1.0] * 20)
    prometheus = FakePrometheus()
    prometheus.on("pyrometer_train_batch_step_seconds", [Series({}, tuple(points))])
    began = START + 50 + 9 + 400
    assert stalls_since(asked(prometheus, points[-1][0])) == began
    # Planned work is no stall: without the tagged one, the last is the first.
    prometheus.on("pyrometer_train_batch_tag", [Series({"tag": "checkpoint"}, ((began + 9.0, 1.0),))])
    assert stalls_since(asked(prometheus, points[-1][0])) == began + 9 + 60


def test_planned_pauses_that_became_long_began_with_the_first_long_one() -> None:
    usual, long = [*[1.0] * 40, 1.5], [*[1.0] * 40, 9.0]
    points = steps(*usual * 8, *long * 6)
    saved = tuple((at, 1.0) for at, seconds in points if seconds > 1.0)
    prometheus = FakePrometheus()
    prometheus.on("pyrometer_train_batch_step_seconds", [Series({}, tuple(points))])
    prometheus.on("pyrometer_train_batch_tag", [Series({"tag": "checkpoint"}, saved)])
    assert stalls_since(asked(prometheus, points[-1][0])) == START + 8 * 41.5 + 40
    alike = steps(*usual * 14)
    calm = FakePrometheus()
    calm.on("pyrometer_train_batch_step_seconds", [Series({}, tuple(alike))])
    calm.on("pyrometer_train_batch_tag", [Series({}, tuple((at, 1.0) for at, seconds in alike if seconds > 1.0))])
    assert stalls_since(asked(calm, alike[-1][0])) is None


def test_only_a_firing_alert_says_that_a_run_stalls() -> None:
    assert stalls(training_incident(members=(STALLED,)))
    assert not stalls(training_incident())


def mfu(until: float, low: float) -> pd.Series[float]:
    """Return an MFU by time that is low from a time on, without batches after the end."""
    at = np.arange(START, until, 5.0)
    return pd.Series(np.where(at >= low, 0.05, 0.4), index=at)


def test_a_run_that_stands_since_its_drop_has_no_second_one() -> None:
    assert not has_run_since(mfu(until=START + 300, low=START + 290), START + 290)
    assert has_run_since(mfu(until=START + 700, low=START + 290), START + 290)
    assert not has_run_since(pd.Series(dtype=float), START)
