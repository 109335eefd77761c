from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from alerting_fakes import START, FakePrometheus
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_alerting.diagnosis.batches import MfuCurve
from pyrometer_alerting.diagnosis.cost import add_up, lost_seconds
from pyrometer_alerting.diagnosis.curve_features import first_stall
from pyrometer_alerting.diagnosis.investigation import chart_curve
from pyrometer_alerting.model.incident import Cost
from pyrometer_kit.prometheus import Series


def frame(mfu: Sequence[float], seconds: float = 1.0, **columns: Any) -> pd.DataFrame:
    count = len(mfu)
    at = START + seconds * np.arange(1, count + 1)
    return pd.DataFrame({"at": at, "mfu": mfu, "seconds": seconds, "tagged": False, **columns})


def test_half_the_expected_mfu_loses_half_of_the_time() -> None:
    lost, until = lost_seconds(frame([0.2] * 100), 0.4, START, START + 100, stands=False)
    assert (lost, until) == (pytest.approx(50.0), START + 100)


def test_noise_adds_no_cost() -> None:
    lost, _until = lost_seconds(frame([0.3, 0.5] * 50), 0.4, START, START + 100, stands=False)
    assert lost == pytest.approx(0.0)


def test_time_in_which_nothing_ran_is_lost_in_full() -> None:
    gap = frame([0.4] * 10)
    gap.loc[5:, "at"] += 60
    lost, _until = lost_seconds(gap, 0.4, START, START + 100, stands=False)
    assert lost == pytest.approx(60.0)


def test_batches_whose_points_are_lost_or_late_ran_as_well() -> None:
    gap = frame([0.2] * 40, step=np.arange(40.0), attempt=0)
    kept = gap.drop(index=range(10, 30))
    assert lost_seconds(kept, 0.4, START, START + 40, stands=False)[0] == pytest.approx(20.0)
    restarted = kept.assign(attempt=[0] * 10 + [1] * 10)
    assert lost_seconds(restarted, 0.4, START, START + 40, stands=False)[0] == pytest.approx(30.0)


def test_checkpoints_are_no_loss() -> None:
    saving = frame([0.4] * 10, tagged=[False] * 5 + [True] + [False] * 4)
    saving.loc[5, "mfu"] = 0.01
    assert lost_seconds(saving, 0.4, START, START + 100, stands=False)[0] == pytest.approx(0.0)


def test_a_run_that_stands_loses_until_now() -> None:
    batches = frame([0.4] * 10)
    assert lost_seconds(batches, 0.4, START, START + 70, stands=True) == (pytest.approx(60.0), START + 70)
    assert lost_seconds(batches.iloc[:0], 0.4, START, START + 70, stands=True) == (70.0, START + 70)
    assert lost_seconds(batches.iloc[:0], 0.4, START, START + 70, stands=False) == (0.0, START)


@given(
    mfu=st.lists(st.floats(0.001, 0.9), min_size=2, max_size=40),
    cut=st.integers(1, 39),
    seconds=st.floats(0.1, 30.0),
)
def test_a_cost_counted_in_two_looks_equals_one_counted_at_once(mfu: list[float], cut: int, seconds: float) -> None:
    batches = frame(mfu, seconds)
    end = START + seconds * len(mfu)
    whole, _ = lost_seconds(batches, 0.4, START, end, stands=False)
    first, until = lost_seconds(batches, 0.4, START, START + seconds * min(cut, len(mfu)), stands=False)
    second, _ = lost_seconds(batches, 0.4, until, end, stands=False)
    assert first + second == pytest.approx(whole, abs=1e-6)


def test_the_cost_counts_on_from_what_is_known() -> None:
    prometheus = FakePrometheus()
    at = [START + index for index in range(1, 101)]
    for name, value in (("mfu_ratio", 0.2), ("step_seconds", 1.0)):
        prometheus.on(name, [Series({"attempt": "0"}, tuple((time, value) for time in at))])
    known = Cost(gpu_hours=7.0, gpus=72, expected=0.4, until=START + 50)
    cost = add_up(prometheus, "c", "r", known=known, begin=START, end=START + 100, expected=0.4, gpus=72)
    assert (cost.gpu_hours, cost.until) == (pytest.approx(7.0 + 72 * 25 / 3600), START + 100)


def served(*present: int) -> FakePrometheus:
    """Return a Prometheus with these batches of a second each, at half of the expected MFU."""
    prometheus = FakePrometheus()
    columns = {"mfu_ratio": lambda _index: 0.2, "step_seconds": lambda _index: 1.0, "batch_step": float}
    for name, value in columns.items():
        points = tuple((START + index, value(index)) for index in present)
        prometheus.on(name, [Series({"attempt": "0"}, points)])
    return prometheus


def test_late_batches_take_back_the_time_that_was_counted_while_they_were_missing() -> None:
    early = add_up(
        served(*range(1, 101)), "c", "r", known=None, begin=START, end=START + 400, expected=0.4, gpus=72, stands=True
    )
    assert early.gpu_hours == pytest.approx(72 * (50 + 300) / 3600)
    late = add_up(served(*range(1, 401)), "c", "r", known=early, begin=START, end=START + 400, expected=0.4, gpus=72)
    assert late.gpu_hours == pytest.approx(72 * 200 / 3600)


def test_what_is_settled_is_not_counted_again() -> None:
    known = None
    for end in range(100, 3000, 100):
        known = add_up(
            served(*range(1, end + 1)), "c", "r", known=known, begin=START, end=START + end, expected=0.4, gpus=72
        )
        assert known.gpu_hours == pytest.approx(72 * end / 2 / 3600)
    assert known is not None
    assert known.settled_until == START + 2300


def test_a_trouble_that_began_earlier_than_known_is_counted_from_there() -> None:
    prometheus = served(*range(1, 601))
    told = add_up(prometheus, "c", "r", known=None, begin=START + 500, end=START + 600, expected=0.4, gpus=72)
    whole = add_up(prometheus, "c", "r", known=told, begin=START, end=START + 600, expected=0.4, gpus=72)
    assert (told.gpu_hours, whole.gpu_hours) == (pytest.approx(1.0), pytest.approx(6.0))


def test_the_small_curve_has_no_more_points_than_slack_takes() -> None:
    batches = frame([0.4] * 1000, tagged=[False] * 500 + [True] * 5 + [False] * 495)
    batches.loc[500:504, "mfu"] = 0.01
    batches.loc[900, "mfu"] = 0.1
    drawn = chart_curve(batches, 0.42, START + 900)
    assert drawn is not None
    assert len(drawn.at) == len(drawn.median) == len(drawn.lowest) == 20
    assert min(drawn.lowest) == 0.1
    assert min(drawn.median) == 0.4
    assert drawn.at[0] > START + 600
    assert chart_curve(batches.head(1), 0.4, START) is None
    assert chart_curve(batches[batches["tagged"]], 0.4, START) is None


def stalls(every: int, first: int, count: int = 200) -> MfuCurve:
    ratio = np.ones(count)
    ratio[first::every] = 0.2
    at = START + 5.0 * np.arange(count)
    return MfuCurve(at, ratio, np.arange(float(count)), np.zeros(count, dtype=np.int64))


def test_stalls_that_return_count_from_the_first_one() -> None:
    assert first_stall(stalls(every=8, first=40), latest=START + 900) == START + 200


def test_stalls_after_the_drop_do_not_delay_its_beginning() -> None:
    assert first_stall(stalls(every=8, first=150), latest=START + 300) == START + 300


def test_a_curve_without_a_stall_begins_with_the_drop() -> None:
    assert first_stall(stalls(every=8, first=500), latest=START + 300) == START + 300
