from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from alerting_fakes import benchmark
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyrometer_alerting.diagnosis.batches import curve_of, daily_amplitude
from pyrometer_alerting.diagnosis.signature import KINDS, SHOWN, Reference, classify
from pyrometer_kit.prometheus import Series
from pyrometer_simulator.mfu_traces import Trace, trace


def verdict(run: Trace, reference: Reference | None = None) -> Any:
    curve = curve_of(run.at, run.mfu / run.expected, run.step, run.attempt, run.tagged)
    return classify(curve, reference or Reference(), run.silent_seconds)


def test_the_confusion_table_in_the_docs_is_what_the_classifier_does() -> None:
    module = benchmark("signature_confusion")
    generated = module.PAGE.read_text(encoding="utf-8").partition(module.BEGIN)[2].partition(module.END)[0]
    assert generated == module.measured(), "python benchmarks/signature_confusion.py --write"


def test_confidences_are_sorted_ratios_of_known_kinds() -> None:
    for kind in ("steady", "frequent_dips", "unknown"):
        confidences = verdict(trace(kind, 1, 3.0)).confidences
        assert set(confidences) <= set(KINDS)
        assert list(confidences.values()) == sorted(confidences.values(), reverse=True)
        assert all(SHOWN <= value <= 1 for value in confidences.values())


def test_numbers_are_in_the_words() -> None:
    assert re.search(r"\d+ dips to \d\d %, one every \d+ s", verdict(trace("frequent_dips", 4, 1.0)).said)
    assert re.search(r"at \d\d % of the expected MFU", verdict(trace("third_from_start", 4, 1.0)).said)


@pytest.mark.parametrize("kind", ["tenth_from_start", "third_from_start", "low_from_start"])
def test_against_its_own_best_no_run_is_low_from_the_start(kind: str) -> None:
    run = trace(kind, 3, 3.0)
    own = run.mfu / float(np.quantile(run.mfu, 0.9))
    curve = curve_of(run.at, own, run.step, run.attempt, run.tagged)
    found = classify(curve, Reference(own=True))
    assert found is not None
    assert found.kind == "steady"


def test_a_run_that_was_good_before_the_window_was_not_low_from_the_start() -> None:
    found = verdict(trace("low_from_start", 3, 3.0), Reference(best_before=1.0))
    assert found.kind == "unknown"


def test_too_few_batches_are_no_verdict() -> None:
    run = trace("steady", 1, 3.0)
    curve = curve_of(run.at[:25], run.mfu[:25], run.step[:25], run.attempt[:25], run.tagged[:25] | (run.step[:25] > 19))
    assert classify(curve, Reference()) is None


def test_tagged_batches_and_their_neighbours_do_not_count() -> None:
    run = trace("steady", 2, 1.0)
    assert run.mfu[run.tagged].max() < 0.5 * run.expected
    assert verdict(run).kind == "steady"
    assert verdict(Trace(**{**vars(run), "tagged": np.zeros_like(run.tagged)})).kind in ("regular_stalls", "unknown")


def test_a_drop_of_the_last_half_minute_is_seen_in_an_hour_of_batches() -> None:
    run = trace("steady", 5, 0.25)
    run.mfu[run.at > run.at[-1] - 30] *= 0.6
    assert verdict(run).kind == "step_down"


def test_three_flaps_of_a_link_at_equal_gaps_are_a_burst_and_no_checkpoint() -> None:
    run = trace("steady", 5, 0.25)
    for seconds in (1000, 1003, 1006, 1009):
        run.mfu[int(seconds / 0.25)] *= 0.2
    assert verdict(run).kind == "stall_burst"


def test_a_wave_of_the_day_is_told_from_a_drift() -> None:
    times = np.arange(0, 2 * 86_400, 600.0)
    wave = 0.45 * (1 + 0.012 * np.sin(2 * np.pi * times / 86_400)) + np.random.default_rng(1).normal(
        0, 0.001, len(times)
    )
    assert daily_amplitude(Series({}, tuple(zip(times, wave, strict=True)))) == pytest.approx(0.012, rel=0.1)
    drift = np.linspace(0.45, 0.44, len(times))
    assert daily_amplitude(Series({}, tuple(zip(times[:100], wave[:100], strict=True)))) == 0.0
    assert daily_amplitude(Series({}, tuple(zip(times, drift, strict=True)))) < 0.01
    found = verdict(trace("steady", 1, 3.0), Reference(wave=0.012))
    assert found.kind == "daily_wave"


@settings(max_examples=60)
@example(ratios=[1.0, 8.98846567431158e307], seconds=2.0, silent=0.0)
@given(
    ratios=st.lists(st.floats(allow_nan=True, allow_infinity=True) | st.floats(0.001, 2.0), min_size=0, max_size=120),
    seconds=st.floats(0.001, 1000.0),
    silent=st.floats(0, 1e6),
)
def test_whatever_is_stored_gives_a_verdict_or_none(ratios: list[float], seconds: float, silent: float) -> None:
    count = len(ratios)
    at = seconds * np.arange(count, dtype=float)
    zeros = np.zeros(count, dtype=np.int64)
    curve = curve_of(at, np.array(ratios, dtype=float), np.arange(count, dtype=float), zeros, zeros.astype(bool))
    found = classify(curve, Reference(), silent)
    if found is not None:
        assert sum(found.confidences.values()) <= 1.01
        assert found.kind in KINDS
