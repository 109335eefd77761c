"""Why a part can't be read, as a word that fits a label."""

from __future__ import annotations

from pyrometer_exporters.framework.outcome import reason_of


def test_reasons_are_short_fixed_words() -> None:
    assert reason_of(FileNotFoundError(2, "x")) == "enoent"
    assert reason_of(OSError(99999, "x")) == "oserror"
