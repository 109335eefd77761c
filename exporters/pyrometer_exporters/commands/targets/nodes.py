"""Parse nodes and their racks from a host list or from the output of `sinfo`.

Three forms are accepted: a host list per line, followed by the rack; `sinfo` with its header, whose column NODELIST is
used; `sinfo --Node --noheader --format='%N ...'`, whose first column is used. Columns end with blanks or, where a line
has one, with a `|`, as with `--format='%N|%f'`. A node that is named more than once, as by sinfo for each of its
partitions, counts once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyrometer_exporters.commands.targets.hostlist import expand
from pyrometer_kit.errors import UsageError

COLUMN = "NODELIST"


def parse(lines: Iterable[str], rack: re.Pattern[str] | None = None) -> dict[str, str]:
    """Return the rack of each node, empty if unknown, in the order of the list.

    Args:
        lines: text with or without line ends; empty lines and comments after a ``#`` are skipped.
        rack: searched for in a line's words after the names, then in each name; its first group is the rack. Without
            one, a line's second word is its rack if it has two.

    Raises:
        UsageError: A line can't be parsed, or a node is in two racks; the message has the line's number.
    """
    racks: dict[str, str] = {}
    column = 0
    for number, line in enumerate(lines, start=1):
        words = _columns(line)
        if COLUMN in words:
            column = words.index(COLUMN)
        elif words:
            try:
                _take(racks, words, column, rack)
            except UsageError as error:
                msg = f"line {number}: {error}"
                raise UsageError(msg) from None
    return racks


def _columns(line: str) -> list[str]:
    if "|" not in line:
        return line.partition("#")[0].split()
    # A reason may have a "#" and blanks, and columns may be empty.
    return [] if line.startswith("#") else [column.strip() for column in line.split("|")]


def _take(racks: dict[str, str], words: list[str], column: int, rack: re.Pattern[str] | None) -> None:
    if column >= len(words):
        msg = f"no column {COLUMN}: {' '.join(words)!r}"
        raise UsageError(msg)
    if words[column] == "n/a":  # a partition without nodes
        return
    rest = " ".join([*words[:column], *words[column + 1 :]])
    for name in expand(words[column]):
        found = _rack(name, rest, rack) if rack else (words[1] if len(words) == 2 and column == 0 else "")
        known = racks.setdefault(name, found)
        if known and found and known != found:
            msg = f"{name} is in rack {known} and in rack {found}"
            raise UsageError(msg)
        racks[name] = known or found


def _rack(name: str, rest: str, rack: re.Pattern[str]) -> str:
    found = rack.search(rest) or rack.search(name)
    return (found[1] or "") if found else ""
