"""Compress a text of which most pieces are unchanged since the last time: only changed pieces are compressed.

A full flush ends each piece's deflate blocks at a byte and forgets what came before, so the compressed pieces can be
combined in any order. ``benchmarks/bench_exposition.py`` compares it with compressing the whole text.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

# RFC 1952: magic, deflate, no flags, no time, fastest, Unix. Then a last block without data, as each piece's are not.
_HEADER, _LAST_BLOCK = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\x03", b"\x03\x00"
_TRAILER = struct.Struct("<II")
_FASTEST = 1  # the higher levels take many times as long for little less
_RAW = -zlib.MAX_WBITS


class PiecewiseGzip:
    """Keeps the compressed pieces of the latest text. For one thread."""

    def __init__(self) -> None:
        self._kept: dict[bytes, bytes] = {}

    def compress(self, pieces: Sequence[bytes]) -> bytes:
        """Return the pieces, one after the other, as one gzip member."""
        # One compressor for all new pieces: creating it takes longer than compressing a small piece.
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
        return b"".join([*parts, _LAST_BLOCK, _TRAILER.pack(crc, size & 0xFFFFFFFF)])
