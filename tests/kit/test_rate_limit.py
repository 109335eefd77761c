"""The rate limit: tokens over time, and Go's durations."""

from __future__ import annotations

import pytest

from pyrometer_kit.rate_limit import TokenBucket, duration


def test_a_burst_is_allowed_and_then_one_request_per_interval() -> None:
    now = 100.0
    bucket = TokenBucket(2.0, 3, lambda: now)
    assert [bucket.take() for _ in range(5)] == [True, True, True, False, False]
    now += 2.0
    assert [bucket.take() for _ in range(2)] == [True, False]
    now += 1000.0
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0.0), ("1s", 1.0), ("100ms", 0.1), ("1m30s", 90.0), ("1.5h", 5400.0), ("5us", 5e-6)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1", "s", "1 s", "-1s", "1d", "1s2", "one"])
def test_everything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        duration(text)
