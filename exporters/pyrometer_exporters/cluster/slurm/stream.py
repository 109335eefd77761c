"""Read a long JSON document piece by piece: its one long list entry by entry, never all of it at once.

squeue's answer is 5 to 10 kB a job, 60 MB for 6,000 jobs; parsed as a whole it takes five times as much memory.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Mapping
from typing import Any

from pyrometer_exporters.framework.outcome import PartError

# A job is 10 kB, or a hundred with a long list of nodes.
MAX_ENTRY = 4 << 20
_BLANK = " \t\n\r"
_ENDS = frozenset(_BLANK + ",:]}")


class DocumentReader:
    """Takes a JSON object in pieces, and hands on the entries of the list under ``key``.

    Attributes:
        rest: All other values of the object, by their keys.
        found: Whether the list was there.
    """

    def __init__(self, key: str, take: Callable[[Mapping[str, Any]], None]) -> None:
        """Call ``take`` with each entry that is an object."""
        self.rest: dict[str, Any] = {}
        self.found = False
        self._key = key
        self._take = take
        self._decoder = json.JSONDecoder(strict=False)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._text = ""
        self._state: Callable[[], bool] = self._open

    def feed(self, data: bytes) -> None:
        """Take the next piece.

        Raises:
            PartError: ``bad_answer`` if it can't be JSON of this kind, ``too_large`` if one value is too long.
        """
        self._text += self._decode(data)
        try:
            while self._state():
                pass
        except RecursionError:
            raise PartError("bad_answer", "not JSON: nested too deeply") from None
        if len(self._text) > MAX_ENTRY:
            raise PartError("too_large", f"has a value larger than {MAX_ENTRY >> 20} MiB")

    def finish(self) -> None:
        """End the document.

        Raises:
            PartError: ``bad_answer`` if it has not ended.
        """
        if self._state != self._end or self._text.strip():
            raise PartError("bad_answer", f"not JSON: unexpected end or text: {self._text[:40]!r}")

    def _open(self) -> bool:
        return self._symbol({"{": self._first_member})

    def _first_member(self) -> bool:
        return self._symbol({"}": self._end}, otherwise=self._member)

    def _member(self) -> bool:
        """Read a key, its colon and its value, or the beginning of the list."""
        key, after = self._value(self._text)
        if not isinstance(key, str):
            return self._wrong_unless(after < 0)
        value = self._text[after:].lstrip(_BLANK)
        if not value:
            return False
        if value[0] != ":":
            return self._wrong_unless(fine=False)
        value = value[1:].lstrip(_BLANK)
        if key == self._key and value[:1] == "[":
            self.found, self._text, self._state = True, value[1:], self._first_entry
            return True
        content, after = self._value(value)
        if after < 0:
            return False
        self.rest[key] = content
        self._text, self._state = value[after:], self._after_member
        return True

    def _after_member(self) -> bool:
        return self._symbol({",": self._member, "}": self._end})

    def _first_entry(self) -> bool:
        return self._symbol({"]": self._after_member}, otherwise=self._entry)

    def _entry(self) -> bool:
        entry, after = self._value(self._text)
        if after < 0:
            return False
        if isinstance(entry, dict):
            self._take(entry)
        self._text, self._state = self._text[after:], self._after_entry
        return True

    def _after_entry(self) -> bool:
        return self._symbol({",": self._entry, "]": self._after_member})

    def _end(self) -> bool:
        return False

    def _symbol(self, then: Mapping[str, Callable[[], bool]], otherwise: Callable[[], bool] | None = None) -> bool:
        """Pass one of these symbols; return False where more has to come first."""
        self._text = self._text.lstrip(_BLANK)
        if not self._text:
            return False
        follows = then.get(self._text[0])
        if follows is not None:
            self._text, self._state = self._text[1:], follows
            return True
        if otherwise is None:
            return self._wrong_unless(fine=False)
        self._state = otherwise
        return True

    def _value(self, text: str) -> tuple[Any, int]:
        """Return the value that the text begins with and where it ends, a negative number where more has to come."""
        begin = len(text) - len(text.lstrip(_BLANK))
        try:
            value, after = self._decoder.raw_decode(text, begin)
        except ValueError:
            return None, -1
        return (value, after) if text[after : after + 1] in _ENDS else (None, -1)  # a number may go on

    def _wrong_unless(self, fine: bool) -> bool:
        if not fine:
            raise PartError("bad_answer", f"not JSON: {self._text[:40]!r}")
        return False
