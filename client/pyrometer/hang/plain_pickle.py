"""Load a pickle of plain values from a stranger: dict, list, tuple, str, bytes, int, float, bool and None.

pickle's unpickler in C is ten times as fast as the one in Python, and takes gigabytes for a few bytes that name a high
memo number. So the opcodes are looked through first: where each is one that a dump of PyTorch has, and no memo number
is high, the one in C reads it. All else is left to the one in Python, which refuses whatever could be called.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import NoReturn


class RefusedError(ValueError):
    """A pickle that would call something or refer to something outside of it."""


# Opcodes of fixed length (``pickletools.opcodes``), memo numbers below 2^21; bounded, as `re` marks each.
_FIXED = re.compile(
    rb"(?:[()\]}aesutld.N012\x85\x86\x87\x88\x89\x94]+|[Kqh].|M..|[Jj].{4}|r..[\x00-\x1f]\x00|G.{8}"
    rb"|\x80[\x00-\x05]|\x95.{8}|\x8a(?:\x08.{8}|\x07.{7}|\x06.{6}|\x05.{5}|\x04.{4}|\x03...|\x02..|\x01.|\x00)){1,2000}",
    re.DOTALL,
)
_LONG_TEXT = ord("X")
_SHORT_TEXTS = frozenset(b"\x8cUC")


class _InC(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise RefusedError(f"refused: it tries to load {module}.{name}")


class _InPython(pickle._Unpickler):  # noqa: SLF001  see above
    """Without the arrays for which it would take as many bytes as a pickle claims to have."""

    dispatch = dict(pickle._Unpickler.dispatch)  # noqa: RUF012, SLF001
    del dispatch[pickle.BYTEARRAY8[0]]

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse whatever a pickle could call."""
        raise RefusedError(f"refused: it tries to load {module}.{name}")

    def persistent_load(self, pid: object) -> NoReturn:  # noqa: ARG002  the name that pickle gives it
        """Refuse references to what is not in the file."""
        raise RefusedError("refused: it refers to something outside the file")


def load(data: bytes) -> object:
    """Return the value.

    Raises:
        RefusedError: it would call something.
        Exception: whatever else a broken pickle raises.
    """
    reader = _InC if _is_usual(data) else _InPython
    value: object = reader(io.BytesIO(data)).load()
    return value


def _is_usual(data: bytes) -> bool:
    at, end = 0, len(data)
    while at < end:
        run = _FIXED.match(data, at)
        if run is not None:
            at = run.end()
            if at >= end:
                return True
        opcode = data[at]
        if opcode == _LONG_TEXT:
            at += 5 + int.from_bytes(data[at + 1 : at + 5], "little")
        elif opcode in _SHORT_TEXTS:
            at += 2 + (data[at + 1] if at + 1 < end else end)
        elif run is None:
            return False
    return False
