"""Which qualities a client's headers give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_kit.negotiation import coding_quality, prefers_openmetrics


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False), ("*/*", False), ("text/plain", False), ("application/openmetrics-text", True),
        ("application/openmetrics-text;q=0.9,text/plain;q=0.1", False), ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text,*/*;q=0.1", False), ("application/openmetrics-text,text/*;q=0", True),
        ("APPLICATION/OPENMETRICS-TEXT ; Q=0.5", True),
    ],
)  # fmt: skip
def test_openmetrics_is_for_those_who_refuse_the_text(accept: str, openmetrics: bool) -> None:
    assert prefers_openmetrics(accept) is openmetrics


@given(st.text(max_size=60))
def test_no_header_breaks_it(header: str) -> None:
    assert not coding_quality(header, "gzip") > 1
    prefers_openmetrics(header)
