from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from alerting_fakes import FakePrometheus, alert, benchmark, training_incident
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.evidence import build_evidence
from pyrometer_alerting.diagnosis.batches import MfuCurve
from pyrometer_alerting.diagnosis.diagnostician import merge_diagnoses
from pyrometer_alerting.diagnosis.investigation import investigate
from pyrometer_alerting.diagnosis.look import LOOK_BACK_SECONDS
from pyrometer_alerting.diagnosis.onset import STEP_SECONDS
from pyrometer_alerting.diagnosis.signature import (
    LEAST_BATCHES,
    LEAST_SECONDS,
    MAX_CONFIDENCE,
    TOO_EARLY,
    Drop,
    classify_drop,
)
from pyrometer_kit.prometheus import Series
from pyrometer_simulator.mfu_traces import Fall, fall

KINDS = ("step_down", "spell", "frequent_dips", "gradual_decline", "stall_burst", "rare_stalls", "noisy", "unknown")


def seen(run: Fall, seconds: float) -> MfuCurve:
    kept = run.run.at <= run.began + seconds
    return MfuCurve(run.run.at[kept], run.run.mfu[kept], run.run.step[kept], run.run.attempt[kept])


def verdict(run: Fall, seconds: float, onset: float | None = None) -> Any:
    return classify_drop(seen(run, seconds), Drop(run.began + 9, onset))


def test_the_table_of_drops_in_the_docs_is_what_the_classifier_does_and_no_answer_is_surer_than_it_earned() -> None:
    module = benchmark("signature_drops")
    found = module.measured()
    generated = module.PAGE.read_text(encoding="utf-8").partition(module.BEGIN)[2].partition(module.END)[0]
    assert generated == module.page(found), "python benchmarks/signature_drops.py --write"
    said = {kind: [one for one in module.old_enough(found) if one.said == kind] for kind in MAX_CONFIDENCE}
    assert {
        kind for kind in MAX_CONFIDENCE if len(said[kind]) >= 20 and module.earned(said[kind]) < MAX_CONFIDENCE[kind]
    } == set()
    assert {one.said for one in module.old_enough(found)} <= set(MAX_CONFIDENCE)


def test_stalls_of_just_before_a_drop_are_not_its_shape() -> None:
    """Seen: a link flapped three times, and 9 s into the drop it was a burst of deep stalls, 100 % sure."""
    run = fall("step_down", 5, 0.25)
    assert (run.run.mfu[run.run.at <= run.began] < 0.5).sum() == 3
    assert verdict(run, 9.0, run.began + 5) is TOO_EARLY
    found = verdict(run, LEAST_SECONDS + 1, run.began + 5)
    assert found.kind == "step_down"
    assert "stall_burst" not in found.confidences


def test_the_shape_of_a_drop_comes_when_enough_of_it_was_seen() -> None:
    for kind in ("step_down", "frequent_dips"):
        run = fall(kind, 3, 1.0)
        kinds = [verdict(run, seconds, run.began).kind for seconds in (9, 60, 119, 130, 300, 900)]
        assert kinds == ["unknown"] * 3 + [kind] * 3


def test_a_slow_run_waits_for_twenty_batches() -> None:
    run = fall("step_down", 3, 30.0)
    drop = Drop(run.began + 60, run.began)
    kinds = [classify_drop(seen(run, 30.0 * batches), drop) for batches in (10, 19, 20)]
    assert [found is TOO_EARLY for found in kinds] == [True, True, False]


@settings(max_examples=60, deadline=None)
@given(
    drawn=st.tuples(st.sampled_from(KINDS), st.integers(0, 10_000), st.sampled_from((0.25, 1.0, 3.0, 10.0, 30.0))),
    fired=st.floats(0, 300),
    onset=st.none() | st.floats(-30, 300),
    share=st.floats(0, 0.99),
)
def test_whatever_was_before_a_young_drop_has_no_shape(
    drawn: tuple[str, int, float], fired: float, onset: float | None, share: float
) -> None:
    run, step_seconds = fall(*drawn), drawn[2]
    drop = Drop(run.began + fired, None if onset is None else run.began + onset)
    for least in (LEAST_SECONDS, (LEAST_BATCHES - 1) * step_seconds):  # the alert may fire within a batch
        now = min(drop.began(seen(run, 1e9)), drop.fired_at) + share * least
        assert classify_drop(seen(run, now - run.began), drop) is TOO_EARLY


def test_no_drop_is_surer_than_such_answers_were_right() -> None:
    for kind in KINDS:
        for seed in range(4):
            run = fall(kind, seed, 3.0)
            found = verdict(run, 600.0, run.began)
            assert found.confidences[found.kind] <= MAX_CONFIDENCE.get(found.kind, 1.0)


def test_three_stalls_in_a_row_are_not_regular_stalls() -> None:
    run = fall("steady", 4, 1.0, flaps=False)
    for seconds in (150, 153, 156, 159):
        run.run.mfu[np.searchsorted(run.run.at, run.began + seconds)] *= 0.2
    found = verdict(run, 200.0)
    assert not {"regular_stalls", "rare_stalls"} & {kind for kind, share in found.confidences.items() if share > 0.5}
    assert verdict(run, 900.0).kind == "stall_burst"


def test_the_onset_is_the_step_itself_and_without_one_the_moment_of_the_alert() -> None:
    run = fall("step_down", 2, 0.25)
    for onset in (-12.0, 0.0, 6.0):
        assert Drop(run.began + 30, run.began + onset).began(seen(run, 60)) == pytest.approx(run.began)
    assert Drop(run.began - 100, run.began).began(seen(run, 60)) == run.began - 100
    calm = fall("steady", 2, 0.25)
    assert Drop(calm.began + 30, calm.began).began(seen(calm, 60)) == calm.began + 30


def test_a_run_that_stands_is_known_at_once() -> None:
    run = fall("step_down", 2, 1.0)
    found = classify_drop(seen(run, 20), Drop(run.began + 9, run.began), silent_seconds=61.0)
    assert found is not None
    assert found.kind == "stopped"


def test_too_few_batches_are_no_verdict_and_a_drop_older_than_the_window_has_one() -> None:
    run = fall("step_down", 2, 1.0)
    assert classify_drop(run_part(run, 10), Drop(0.0)) is None
    old = classify_drop(run_part(run, 600), Drop(run.began - 9000, run.began - 9000))
    assert old is not None


def run_part(run: Fall, batches: int) -> MfuCurve:
    last = slice(len(run.run.at) - batches, None)
    return MfuCurve(run.run.at[last], run.run.mfu[last], run.run.step[last], run.run.attempt[last])


class Training(FakePrometheus):
    """A Prometheus that has the batches of such a run, and no other trouble."""

    def __init__(self, run: Fall) -> None:
        super().__init__()
        self.run = run
        ranks = [Series({"node": "gpu-040", "gpu": str(gpu)}, ((0.0, 1.0),)) for gpu in range(8)]
        self.on("rank_info", ranks)
        self.on("^sum.*count_over_time", [Series({}, ((0.0, 3600 / float(run.run.at[0])),))])
        self.on("mfu_ratio:expected", [Series({}, ((0.0, 1.0),))])

    def instant(self, query: str, at: float) -> list[Series]:
        if not query.endswith("]"):  # not the stored samples of a range
            return super().instant(query, at)
        values = {"mfu_ratio": self.run.run.mfu, "batch_step{": self.run.run.step}
        known = self.run.run.at <= at
        return [
            Series({}, tuple(zip(self.run.run.at[known].tolist(), found[known].tolist(), strict=True)))
            for name, found in values.items()
            if name in query
        ]

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        if "avg_over_time(pyrometer_train_batch_mfu_ratio" not in query:
            return super().range(query, start, end, step)
        at, mfu = self.run.run.at, self.run.run.mfu
        grid = np.arange(end - LOOK_BACK_SECONDS, end + 0.1, STEP_SECONDS)
        means = [(float(t), mfu[(at > t - STEP_SECONDS) & (at <= t)]) for t in grid]
        return [Series({}, tuple((t, float(found.mean())) for t, found in means if len(found)))]


def told(run: Fall, *ages: float, name: str = "TrainMfuDropped") -> list[str]:
    """Return the incident's messages at these ages of the drop in seconds; the alert fires at the first."""
    fired = run.began + ages[0]
    member = alert(name, labels={"run": "llama-70b", "component": "train"}, starts_at=fired)
    incident = training_incident(alertname=name, members=(member,), started_at=fired, received_at=fired)
    shown = []
    for age in (ages[0], *ages):  # the first look is a quick one
        found = investigate(Training(run), incident, [], run.began + age)
        incident = replace(incident, diagnosis=merge_diagnoses(incident.diagnosis, found))
        shown.append(build_evidence(incident, Style()).text)
    return shown[1:]


def test_the_message_has_the_curve_of_the_drop_as_soon_as_it_is_known_and_nothing_of_before_it() -> None:
    shown = told(fall("step_down", 5, 0.25), 9.0, 19.0, 60.0, 115.0, 125.0, 600.0)
    assert ["MFU curve" in text for text in shown] == [False] * 4 + [True] * 2
    assert "_MFU curve:_ stepped down and stayed down" in shown[-1]
    assert "75 % sure" in shown[-1]
    assert not [text for text in shown if "burst" in text]


def test_the_curve_of_a_drop_stays_known_when_its_beginning_is_out_of_sight() -> None:
    run = fall("step_down", 5, 1.0)
    shown = told(run, 9.0, 130.0, 1000.0, 3500.0)
    assert ["MFU curve" in text for text in shown] == [False, True, True, True]


def test_a_drop_that_is_over_says_so() -> None:
    run = fall("spell", 5, 1.0)
    lasted = run.back - run.began
    during, after = told(run, 9.0, lasted - 20.0, lasted + 60.0)[1:]
    assert "stepped down and stayed down" in during
    assert "was low for a while and came back" in after


def test_a_run_that_was_slow_from_its_start_is_looked_at_whole() -> None:
    (shown,) = told(fall("step_down", 5, 1.0), 60.0, name="TrainMfuLow")
    assert "MFU curve" in shown
