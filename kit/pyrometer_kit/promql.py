"""Pieces of PromQL from arbitrary text, escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable

_SPECIAL = r"\.+*?()|[]{}^$"


def quoted(value: str) -> str:
    r"""Return a string literal: backslash, quote and newline are escaped.

    >>> quoted('a"b')
    '"a\\\\"b"'
    """
    return json.dumps(value, ensure_ascii=False)


def matching(label: str, values: Iterable[str]) -> str:
    r"""Return a matcher for any of the values, each taken literally: RE2's special characters are escaped.

    >>> print(matching("node", ["a.b", "c"]))
    node=~"a\\.b|c"
    """
    literal = "|".join("".join(f"\\{char}" if char in _SPECIAL else char for char in value) for value in values)
    return f"{label}=~{quoted(literal)}"
