"""Expand Slurm's form of many names: ``gpu-[001-003,010],login1``. Source: slurm.conf(5), NodeName; scontrol(1)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from pyrometer_kit.errors import UsageError

# More than any cluster has; `n[0-999999999]` is a typing error and would fill the memory.
MOST_NAMES = 100_000
_PART = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def expand(text: str) -> list[str]:
    """Return all names of a host list, in its order.

    >>> expand("gpu-[08-10]")
    ['gpu-08', 'gpu-09', 'gpu-10']

    Raises:
        UsageError: The text is no host list, or one of too many names.
    """
    return [name for item in split(text) for name in _names(item)]


def split(text: str) -> list[str]:
    """Split a list at the commas that are not inside brackets.

    Raises:
        UsageError: The brackets don't match.
    """
    items, depth = [""], 0
    for char in text:
        depth += {"[": 1, "]": -1}.get(char, 0)
        if depth not in (0, 1):
            break
        if char == "," and depth == 0:
            items.append("")
        else:
            items[-1] += char
    if depth != 0:
        msg = f"{text!r}: unbalanced brackets; expected a name or a list such as gpu-[001-064,070]"
        raise UsageError(msg)
    return items


def _names(item: str) -> Iterator[str]:
    # Text and bracketed lists in turn: "a[1-2]b[3]" is "a", "1-2", "b", "3", "".
    pieces = _PART.split(item)
    choices = [_numbers(piece, item) if number % 2 else [piece] for number, piece in enumerate(pieces)]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > MOST_NAMES:
        msg = f"{item!r} stands for {count} names; at most {MOST_NAMES} are allowed"
        raise UsageError(msg)
    for parts in itertools.product(*choices):
        name = "".join(parts)
        if not _NAME.fullmatch(name):
            msg = f"{name!r} is not a host name; expected a name or a list such as gpu-[001-064,070]"
            raise UsageError(msg)
        yield name


def _numbers(text: str, item: str) -> list[str]:
    """Expand ``001-003,010``; numbers keep the width of the first."""
    numbers: list[str] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        first, last = (found[1], found[2] or found[1]) if found else ("1", "0")
        if not 0 <= int(last) - int(first) < MOST_NAMES:
            msg = f"{part!r} in {item!r} is not a range of numbers"
            raise UsageError(msg)
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers
