"""The time between failures and its interval, against published tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_alerting.channel.digest.mtbf import mtbf, poisson_interval


def test_the_exact_interval_is_garwoods() -> None:
    # The tables of Garwood (1936) as in every text on Poisson counts, 90 %.
    assert poisson_interval(0) == (0.0, pytest.approx(2.9957, abs=1e-3))
    assert poisson_interval(1) == (pytest.approx(0.0513, abs=1e-3), pytest.approx(4.7439, abs=1e-3))
    assert poisson_interval(10) == (pytest.approx(5.4254, abs=1e-3), pytest.approx(16.9622, abs=1e-3))


def test_llama_3_had_an_interruption_every_three_hours() -> None:
    found = mtbf(419, 54 * 24)
    assert found.hours == pytest.approx(3.09, abs=0.01)
    assert 2.8 < found.low < found.hours < found.high < 3.4


@given(st.integers(0, 200))
def test_the_interval_holds_its_count(count: int) -> None:
    low, high = poisson_interval(count)
    assert low <= count < high
