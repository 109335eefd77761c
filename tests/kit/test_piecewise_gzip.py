"""A text that is compressed piece by piece, again and again."""

from __future__ import annotations

import gzip
import zlib
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from pyrometer_kit.piecewise_gzip import PiecewiseGzip

_PIECES = st.lists(st.sampled_from([b"", b"a", b"line 1\n" * 900, b"line 2\n" * 900, bytes(range(256))]), max_size=6)


@given(st.lists(_PIECES, max_size=5), st.sampled_from([b"", b"last\n", b"line 2\n" * 900]))
def test_every_text_reads_back_the_same(texts: list[list[bytes]], last: bytes) -> None:
    compress = PiecewiseGzip().compress
    for pieces in texts:
        zipped = compress(pieces).ended(last)
        assert gzip.decompress(zipped) == b"".join([*pieces, last])
        # Readers that stop after the first member get all of it.
        reader = zlib.decompressobj(zlib.MAX_WBITS | 16)
        assert reader.decompress(zipped) == b"".join([*pieces, last])
        assert reader.eof
        assert not reader.unused_data


def test_only_pieces_that_changed_are_compressed() -> None:
    one = PiecewiseGzip()
    steady, moved = b"steady\n" * 1000, b"moved\n" * 1000
    one.compress([steady, b"before\n" * 1000])
    deflate = _Counting()
    with patch("pyrometer_kit.piecewise_gzip.zlib.compressobj", return_value=deflate):
        assert gzip.decompress(one.compress([steady, moved]).ended()) == steady + moved
    assert deflate.given == [moved]


def test_only_the_latest_text_is_kept() -> None:
    one = PiecewiseGzip()
    for number in range(50):
        one.compress([str(number).encode()])
    assert len(one._kept) == 1


class _Counting:
    def __init__(self) -> None:
        self._real = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
        self.given: list[bytes] = []

    def compress(self, data: bytes) -> bytes:
        self.given.append(data)
        return self._real.compress(data)

    def flush(self, mode: int) -> bytes:
        return self._real.flush(mode)
