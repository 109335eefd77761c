from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer.follow.units import VALUES, is_unit, number_of


@pytest.mark.parametrize(
    ("text", "value", "number"),
    [
        ("1.5", "seconds", 1.5), ("1,234.5 ms", "seconds", 1.2345), ("350 milliseconds", "seconds", 0.35),
        ("2 minutes", "seconds", 120.0), ("1:02:03", "seconds", 3723.0),
        ("02:03.5", "elapsed", 123.5), ("1.5h", "elapsed", 5400.0),
        ("1.83it/s", "seconds", 1 / 1.83), ("6.87s/it", "seconds", 6.87), ("5 steps/s", "seconds", 0.2),
        ("1 day, 2:03:04", "elapsed", 93_784.0), ("2h 3m 4s", "elapsed", 7384.0), ("1.2 s (avg 1.1 s)", "seconds", 1.2),
        ("12 thousand tokens", "tokens", 12_000.0), ("4.2M", "tokens", 4.2e6), ("4 million", "tokens", 4e6),
        ("1 048 576 tok", "tokens", 1_048_576.0),
        ("1'048'576", "tokens", 1_048_576.0), ("1_048_576", "tokens", 1_048_576.0),
        ("12.5k tokens/s", "tokens_per_second", 12_500.0), ("7,785 tok/s/GPU", "gpu_tokens_per_second", 7785.0),
        ("1.2 PFLOP/s", "teraflops", 1200.0), ("412.5 TFLOPS", "teraflops", 412.5), ("41.2%", "mfu", 0.412),
        ("41.2 percent", "mfu", 0.412), ("2.31", "loss", 2.31), ("-1e-3", "loss", -0.001),
    ],
)  # fmt: skip
def test_units_in_words_and_separators(text: str, value: str, number: float) -> None:
    assert number_of(text, value) == pytest.approx(number)


@pytest.mark.parametrize("text", ["0.31/0.29", "0.31 / 0.29", "0.31 (0.29)", "0.31 (avg: 0.29)", "0.31 [mean 0.29]"])
def test_of_a_pair_the_last_counts_unless_the_mean_is_asked_for(text: str) -> None:
    assert number_of(text, "loss") == 0.31
    assert number_of(text, "loss", mean=True) == 0.29


def test_a_comma_separates_thousands_and_nothing_else() -> None:
    assert number_of("2,37", "loss") is None
    assert number_of("0,450", "loss") is None
    assert number_of("12,34,567", "tokens") is None
    assert number_of("25, 3", "loss") == 25


def test_a_pair_may_have_a_unit() -> None:
    assert number_of("310 ms (290)", "seconds") == pytest.approx(0.31)
    assert number_of("310 (290)", "seconds", "ms", mean=True) == pytest.approx(0.29)


def test_a_unit_on_the_line_goes_before_the_one_that_was_given() -> None:
    assert number_of("2.5", "seconds", "ms") == pytest.approx(0.0025)
    assert number_of("2.5 s", "seconds", "ms") == 2.5


@pytest.mark.parametrize("text", ["", "nan", "n/a", "fast", "inf"])
def test_what_is_no_number_is_none(text: str) -> None:
    assert number_of(text, "loss") is None


def test_units_are_known_by_value() -> None:
    assert is_unit("ms", "seconds")
    assert not is_unit("ms", "tokens")
    assert not is_unit("furlongs", "seconds")


@given(st.text(max_size=40), st.sampled_from(VALUES), st.booleans())
def test_any_text_is_a_number_or_none(text: str, value: str, mean: bool) -> None:
    number = number_of(text, value, mean=mean)
    assert number is None or abs(number) < 1e305
