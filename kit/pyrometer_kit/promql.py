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


def literal(value: str) -> str:
    """Return a regular expression that matches this value alone: RE2's special characters are escaped."""
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in value)


def matching(label: str, values: Iterable[str]) -> str:
    r"""Return a matcher for any of the values, each taken literally.

    >>> print(matching("node", ["a.b", "c"]))
    node=~"a\\.b|c"
    """
    return f"{label}=~{quoted('|'.join(map(literal, values)))}"
