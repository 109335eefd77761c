"""Reduce the shapes of Slurm's JSON in different releases to one.

A state was ``"RUNNING"`` up to 23.02 and is ``["RUNNING", "CONFIGURING"]`` since 23.11; a number was plain up to 22.05
and is ``{"set": true, "infinite": false, "number": 3}`` since; a node was in ``nodes`` and is in ``sinfo``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pyrometer_exporters.framework.outcome import PartError

# A node may be given as gpu-[001-512,600]: more names than this are a mistake.
MAX_NAMES = 100_000
_WORDS = re.compile(r"[A-Za-z_]+")
_BRACKET = re.compile(r"^(?P<head>[^\[\]]*)\[(?P<ranges>[\d,\-]+)\](?P<tail>.*)$")


def document(data: bytes, *keys: str) -> list[Mapping[str, Any]]:
    """Return the entries under the first of ``keys`` that the JSON document has.

    Raises:
        PartError: ``bad_answer`` if it isn't such a document, ``refused`` if Slurm reports errors in it: an error must
            not look like an empty queue.
    """
    try:
        # Reasons and names of jobs are bytes that somebody typed, in whatever encoding his terminal had; and a line
        # break in one need not be escaped.
        content = json.loads(data.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise PartError("bad_answer", f"not JSON: {error}") from None
    return checked(content, *keys)


def checked(content: object, *keys: str) -> list[Mapping[str, Any]]:
    """Return the entries of a document that was read; raises as :func:`document` does."""
    if not isinstance(content, dict):
        raise PartError("bad_answer", "JSON, but not an object")
    if content.get("errors"):
        raise PartError("refused", _first_error(content["errors"]))
    entries = next((content[key] for key in keys if isinstance(content.get(key), list)), None)
    if entries is None:
        raise PartError("bad_answer", f"no list named {' or '.join(keys)}")
    return [entry for entry in entries if isinstance(entry, dict)]


def words(value: object) -> frozenset[str]:
    """Return the words of a state, whatever its shape.

    >>> sorted(words("idle+drain*")), sorted(words(["IDLE", "DRAIN"]))
    (['DRAIN', 'IDLE'], ['DRAIN', 'IDLE'])
    """
    texts = value if isinstance(value, list) else [value]
    return frozenset(word.upper() for text in texts if isinstance(text, str) for word in _WORDS.findall(text))


def number(value: object) -> float | None:
    """Return a number, whatever its shape, or None if it is unset, infinite, or no number."""
    if isinstance(value, Mapping):
        if value.get("set") is False or value.get("infinite") is True:
            return None
        value = value.get("number")
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    # A float comparison also refuses NaN, which JSON lacks but Python's reader accepts.
    return float(value) if plain and -1e300 < value < 1e300 else None  # type: ignore[arg-type, operator]


def text(value: object) -> str:
    """Return a text as one line, a number as its digits, or an empty text for anything else."""
    if isinstance(value, str):
        return " ".join(value.split())
    digits = number(value)
    return "" if digits is None else f"{digits:.0f}"


def names(value: object) -> Iterator[str]:
    """Return node names, with ranges in brackets written out.

    >>> list(names(["login", "gpu-[008-010,12]-ib"]))
    ['login', 'gpu-008-ib', 'gpu-009-ib', 'gpu-010-ib', 'gpu-12-ib']
    """
    left = MAX_NAMES
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str) and item:
            for name in _written_out(item, left):
                left -= 1
                yield name


def _written_out(item: str, most: int) -> Iterator[str]:
    match = _BRACKET.match(item)
    if match is None:
        yield item
        return
    for part in match["ranges"].split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            for index in range(int(first), min(int(last or first), int(first) + most) + 1):
                # Only the first bracket: a second stays as it is, and still tells such nodes apart.
                yield f"{match['head']}{index:0{len(first)}d}{match['tail']}"


def _first_error(errors: object) -> str:
    first = errors[0] if isinstance(errors, list) and errors else errors
    if isinstance(first, Mapping):
        first = first.get("description") or first.get("error") or "no reason given"
    return " ".join(str(first).split())[:200]
