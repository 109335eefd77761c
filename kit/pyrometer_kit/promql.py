"""Pieces of PromQL, LogQL and Alertmanager's matchers from arbitrary text, escaped."""

from __future__ import annotations

from collections.abc import Iterable

_SPECIAL = r"\.+*?()|[]{}^$"
# All that Go's three readers of strings take in one way: escapes of other characters, such as JSON's of an emoji, one
# or the other refuses. Prometheus takes U+FFFD itself for broken UTF-8, and refuses the query.
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\ufffd": r"\ufffd"})


def quoted(value: str) -> str:
    r"""Return a string literal: backslash, quote, newline and U+FFFD are escaped.

    >>> print(quoted('a"b'))
    "a\"b"
    """
    return f'"{value.translate(_ESCAPES)}"'


def any_of(values: Iterable[str]) -> str:
    r"""Return a pattern of any of these values, each taken literally: RE2's special characters are escaped.

    >>> print(any_of(["a.b", "c"]))
    a\.b|c
    """
    return "|".join("".join(f"\\{char}" if char in _SPECIAL else char for char in value) for value in values)


def matching(label: str, values: Iterable[str]) -> str:
    r"""Return a matcher for any of the values, each taken literally.

    >>> print(matching("node", ["a.b", "c"]))
    node=~"a\\.b|c"
    """
    return f"{label}=~{quoted(any_of(values))}"
