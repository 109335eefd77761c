"""Compress a text of which most pieces are unchanged since the last time: only changed pieces are compressed.

A full flush ends each piece's deflate blocks at a byte and forgets what came before, so the compressed pieces can be
combined in any order. ``benchmarks/bench_exposition.py`` compares it with compressing the whole text.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

# RFC 1952: magic, deflate, no flags, no time, fastest, Unix. Then a last block without data, as each piece's are not.
_HEADER, _LAST_BLOCK = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\x03", b"\x03\x00"
_TRAILER = struct.Struct("<II")
_FASTEST = 1  # the higher levels take many times as long for little less
_RAW = -zlib.MAX_WBITS
_SMALL = -9, 1  # as little memory as can be, for a line or two


class Zipped(NamedTuple):
    """The beginning of a gzip member, with what its end needs."""

    parts: tuple[bytes, ...]
    crc: int
    size: int

    def ended(self, last: bytes = b"") -> bytes:
        """Return the whole member; ``last`` follows the text so far."""
        parts = [*self.parts]
        if last:
            deflate = zlib.compressobj(_FASTEST, zlib.DEFLATED, *_SMALL)
            parts.append(deflate.compress(last) + deflate.flush(zlib.Z_FULL_FLUSH))
        trailer = _TRAILER.pack(zlib.crc32(last, self.crc), (self.size + len(last)) & 0xFFFFFFFF)
        return b"".join([*parts, _LAST_BLOCK, trailer])


class PiecewiseGzip:
    """Keeps the compressed pieces of the latest text. For one thread at a time."""

    def __init__(self) -> None:
        self._kept: dict[bytes, bytes] = {}

    def compress(self, pieces: Sequence[bytes]) -> Zipped:
        """Return the pieces, one after the other, as the beginning of a gzip member."""
        # One for all that are new: it takes longer to make than a small piece to compress.
        deflate = zlib.compressobj(_FASTEST, zlib.DEFLATED, _RAW)
        before, self._kept = self._kept, {}
        crc = size = 0
        parts = [_HEADER]
        for piece in pieces:
            # Bytes keep their hash, so a piece that is the same object is found at once.
            zipped = before.get(piece) or deflate.compress(piece) + deflate.flush(zlib.Z_FULL_FLUSH)
            self._kept[piece] = zipped
            parts.append(zipped)
            crc = zlib.crc32(piece, crc)
            size += len(piece)
        return Zipped(tuple(parts), crc, size)
