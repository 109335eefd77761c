"""Text of strangers is cleaned, escaped and cut as if one looked at each character."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from pyrometer_alerting.model import text

odd = st.text(alphabet="ab<& \n\u202e\u200b\u2800\u3164\U0001f600\u00e9\u0301", max_size=40)
ESCAPES = {"&": "&amp;", "<": "&lt;"}


@given(odd)
def test_clean_drops_what_is_invisible_and_nothing_else(value: str) -> None:
    shown = [c for c in " ".join(value.split()) if unicodedata.category(c)[0] != "C" and c not in "\u2800\u3164"]
    assert text.clean(value) == "".join(shown)


@given(odd, st.integers(1, 60))
def test_as_many_whole_characters_are_kept_as_fit_with_the_ellipsis(value: str, limit: int) -> None:
    pieces = [ESCAPES.get(char, char) for char in text.clean(value)]
    cut = text.mrkdwn(value, limit)
    assert text.units(cut) <= limit
    if text.units("".join(pieces)) <= limit:
        assert cut == "".join(pieces)
    else:
        kept = len(text.unescape(cut)) - 1
        assert cut == "".join(pieces[:kept]) + text.ELLIPSIS
        assert text.units("".join(pieces[: kept + 1])) > limit - 1
