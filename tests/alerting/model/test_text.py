"""Text of strangers is cleaned, escaped and cut as if one looked at each character."""

from __future__ import annotations

import re
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


def test_cut_text_never_ends_inside_an_escape() -> None:
    for limit in range(1, 40):
        cut = text.mrkdwn("<&>" * 20, limit)
        assert text.units(cut) <= limit
        assert re.fullmatch(r"(&lt;|&amp;|&gt;)*…?", cut)


def test_durations_read_well() -> None:
    shown = [text.duration(seconds) for seconds in (0, 40, 119, 720, 3600 * 3 + 300, 3600 * 52)]
    assert shown == ["0 s", "40 s", "119 s", "12 min", "3 h 5 min", "2 d 4 h"]


def test_names_are_rendered_as_they_are() -> None:
    """Slack has no escape for formatting and emoji: look-alikes stand for what it would render."""
    assert text.mrkdwn("*b* ~s~ _i_ `c` :fire: a:smile:b :100:", 99) == (
        "\u2217b\u2217 \u223cs\u223c \u02cdi\u02cd 'c' \u2236fire: a\u2236smile:b \u2236100:"
    )
    plain = "gpu_042 mlx5_5/1 03:12:05 b8:ce:f6:03 0000:18:00.0 fe80::ba:f603:1 host:9935: refused"
    assert text.mrkdwn(plain, 200) == plain
    assert text.mrkdwn("> q", 9) == "\u203a q"
