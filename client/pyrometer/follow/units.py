"""Numbers with units in words, thousands separators and pairs: what a format that nobody knows may print.

>>> number_of("1,234.5 ms", "seconds"), number_of("0.31/0.29", "loss"), number_of("12 thousand tokens", "tokens")
(1.2345, 0.31, 12000.0)
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyrometer.follow.log_line import NUMBER, parse_number

_TIMES = ("seconds", "elapsed")
_RATES = ("samples_per_second", "tokens_per_second", "gpu_tokens_per_second")
VALUES = (*_TIMES, "samples", "sequence", "tokens", *_RATES, "teraflops", "mfu", "loss", "grad_norm")
"""Values of a step beside its number: in seconds, counts, tokens or samples per second, TFLOP/s, and 0 to 1."""

_SECONDS = {
    "ns": 1e-9, "nanosecond": 1e-9, "us": 1e-6, "µs": 1e-6, "microsecond": 1e-6, "ms": 1e-3, "msec": 1e-3,
    "millisecond": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0,
    "hr": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0,
}  # fmt: skip
_COUNTS = {
    "k": 1e3, "thousand": 1e3, "m": 1e6, "mio": 1e6, "million": 1e6, "b": 1e9, "g": 1e9, "bn": 1e9, "billion": 1e9,
    "t": 1e12, "trillion": 1e12,
}  # fmt: skip
_TERAFLOPS = {"g": 1e-3, "gflop": 1e-3, "t": 1.0, "tflop": 1.0, "teraflop": 1.0, "p": 1e3, "pflop": 1e3}
_RATIO = {"%": 0.01, "percent": 0.01}
_UNITS: Mapping[str, Mapping[str, float]] = {
    **dict.fromkeys(_TIMES, _SECONDS), **dict.fromkeys(("samples", "sequence", "tokens", *_RATES), _COUNTS),
    "teraflops": _TERAFLOPS, "mfu": _RATIO,
}  # fmt: skip
# Names of what is counted are no units.
_NOUNS = r"(?:tok(?:en)?s?|samples?|seq(?:uence)?s?|iters?|steps?|it|flops?|flop)?"
_WORD = re.compile(r"\s*([a-zµ%]+)")
# 1 234 567 and 1'234'567; commas are NUMBER's own.
_SPACED = re.compile(r"(?<=\d)['\u2009\u202f_ ](?=\d{3}(?!\d))")
_PAIR = re.compile(
    rf"^\s*(?P<last>{NUMBER})\s*(?P<unit>[a-zµ%]*)\s*"
    rf"(?:/\s*(?P<mean>{NUMBER})|[(\[]\s*(?:avg|mean)?[:= ]*(?P<bracket>{NUMBER}))"
)
# How often instead of how long: 1.83it/s.
_PER_SECOND = re.compile(rf"^\s*({NUMBER})\s*(?:it|iters?|iterations?|steps?|batch(?:es)?)\s*/\s*s(?:ec(?:onds?)?)?\b")
# 1 day, 2:03:04 and 2h 3m 4s.
_DURATION = re.compile(rf"({NUMBER})\s*([a-zµ]+)[\s,]*")
_CLOCK = re.compile(r"\s*(\d+(?::\d\d){1,2}(?:\.\d+)?)\s*$")


def is_unit(unit: str, value: str) -> bool:
    """Return whether a unit's name is known for this value."""
    return _scale(unit, value) is not None


def number_of(text: str, value: str, unit: str = "", *, mean: bool = False) -> float | None:
    """Parse what a pattern found, into this module's units; None if it is no number.

    Args:
        text: Such as ``1,234.5 ms``, ``2 minutes``, ``1:02:03``, ``0.31/0.29`` or ``0.31 (0.29)``.
        value: One of :data:`VALUES`.
        unit: Of a number that is printed without one.
        mean: Take the second number of a pair.
    """
    text = _SPACED.sub("", text.lower())
    if value in _TIMES and (seconds := _duration(text)) is not None:
        return seconds
    pair = _PAIR.match(text)
    if pair is not None:
        digits, word = (pair["mean"] or pair["bracket"]) if mean else pair["last"], pair["unit"]
    else:
        match = re.match(rf"\s*({NUMBER})", text)
        if match is None:
            return None
        word_match = _WORD.match(text, match.end())
        digits, word = match[1], word_match[1] if word_match else ""
    number, scale = parse_number(digits), _scale(word, value)
    if scale is None or not word:
        scale = _scale(unit, value)
    return None if number is None or scale is None else number * scale


def _scale(unit: str, value: str) -> float | None:
    """Return the factor of a unit, 1 for none and for the name of what is counted."""
    units, word = _UNITS.get(value, {}), unit.strip().lower()
    for spelling in (word, word[:-1] if word[3:].endswith("s") else word, re.sub(rf"{_NOUNS}$", "", word)):
        if spelling in units:
            return units[spelling]
    return 1.0 if not re.sub(rf"^{_NOUNS}$", "", word) else None


def _duration(text: str) -> float | None:
    """Return the seconds of a clock, a rate, or several units in a row; None where it is none of these."""
    if (clock := _CLOCK.match(text)) is not None:
        return _clock(clock[1])
    if (rate := _PER_SECOND.match(text)) is not None:
        return 1 / number if (number := parse_number(rate[1])) else None
    total, end, units = 0.0, 0, 0
    while (match := _DURATION.match(text, end)) is not None and match[2].rstrip("s") in (*_SECONDS, ""):
        total += (parse_number(match[1]) or 0.0) * (_scale(match[2], "seconds") or 0.0)
        end, units = match.end(), units + 1
    if units and (clock := _CLOCK.match(text, end)) is not None:
        return total + _clock(clock[1])
    return total if units > 1 else None


def _clock(text: str) -> float:
    seconds = 0.0
    for digits in text.split(":"):
        seconds = seconds * 60 + float(digits)
    return seconds
