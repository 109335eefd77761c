"""Describe what a check found, one line per finding, with the next step."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """Hold one line of a check's answer.

    Attributes:
        level: ``ok``, ``note`` (nothing is wrong, but somebody may want to know), or ``missing``.
        what: the thing, and how it is.
        do: the next step; empty where there is none.
    """

    level: str
    what: str
    do: str = ""

    def __str__(self) -> str:
        """Return the line as people read it.

        >>> str(Finding("missing", "channel #gpu: the bot is not a member", "type /invite @pyrometer there"))
        'missing  channel #gpu: the bot is no member: type /invite @pyrometer there'
        """
        return f"{self.level:8} {self.what}{f': {self.do}' if self.do else ''}"
