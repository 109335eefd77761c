"""Write samples of any time into a Prometheus through its remote-write receiver, staleness markers included.

The protocol is one protobuf message, compressed with snappy; the message here is laid out with numpy, and snappy's
format allows text that is not compressed at all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pyrometer_simulator.http_call import call

Floats = npt.NDArray[np.float64]
# Prometheus' own NaN for "this series has ended" (model/value/value.go).
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
_SAMPLE_BYTES = 18  # tag, length; tag, float64; tag, six bytes of time: milliseconds between 1971 and 2109 take six
_CHUNK = 8 << 20


class Batch:
    """Series to be written; nothing is sent before `chunks` is read."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.samples = 0

    def add(self, labels: Mapping[str, str], at: Floats, values: Floats) -> None:
        """Add a series: its labels with `__name__`, times (Unix seconds, ascending), values."""
        if len(at):
            self._parts.append(_series(_labels(labels), _samples(_times(at), values)))
            self.samples += len(at)

    def add_target(self, series: Sequence[Mapping[str, str]], at: Floats, values: Floats) -> None:
        """Add the series of one target: values by (time, series), NaN where absent; each end gets its marker."""
        times, marked = _times(at), with_markers(values)
        for place, labels in enumerate(series):
            column = marked[:, place]
            kept = ~np.isnan(column) | _is_stale(column)
            if kept.any():
                self._parts.append(_series(_labels(labels), _samples(times[kept], column[kept])))
                self.samples += int(kept.sum())

    def chunks(self) -> Iterator[bytes]:
        """Yield write requests of a few MB each."""
        pending: list[bytes] = []
        size = 0
        for part in self._parts:
            pending.append(part)
            size += len(part)
            if size > _CHUNK:
                yield b"".join(pending)
                pending, size = [], 0
        if pending:
            yield b"".join(pending)


_HEADERS = {
    "Content_Encoding": "snappy",
    "Content_Type": "application/x-protobuf",
    "X_Prometheus_Remote_Write_Version": "0.1.0",
}


def write(url: str, batch: Batch) -> None:
    """Send a batch to the Prometheus at an address.

    Raises:
        OSError: it refuses the samples, or does not answer.
    """
    for chunk in batch.chunks():
        reply = call(f"{url}/api/v1/write", snappy_literal(chunk), seconds=60, **_HEADERS)
        if reply.status >= 300:
            raise OSError(f"{url} refuses samples: {reply.status} {reply.body[:200]!r}")


def with_markers(values: Floats) -> Floats:
    """Return values by (time, series) with a staleness marker at the first gap after each stretch of values."""
    absent = np.isnan(values)
    ended = absent[1:] & ~absent[:-1]
    marked = values.copy()
    marked[1:][ended] = STALE
    return marked


def snappy_literal(data: bytes) -> bytes:
    """Return data in snappy's block format, as one literal."""
    if not data:
        return b"\0"
    return _varint(len(data)) + b"\xfc" + struct.pack("<I", len(data) - 1) + data


def _is_stale(values: Floats) -> npt.NDArray[np.bool_]:
    bits: npt.NDArray[np.uint64] = np.ascontiguousarray(values).view(np.uint64)
    return np.equal(bits, np.uint64(0x7FF0000000000002))


def _times(at: Floats) -> npt.NDArray[np.uint8]:
    """Return the times as varints of milliseconds, six bytes each."""
    milliseconds = np.round(np.asarray(at) * 1000).astype(np.uint64)
    shifts = np.arange(6, dtype=np.uint64) * np.uint64(7)
    encoded = (milliseconds[:, None] >> shifts) & np.uint64(0x7F)
    encoded[:, :5] |= np.uint64(0x80)
    return encoded.astype(np.uint8)


def _samples(times: npt.NDArray[np.uint8], values: Floats) -> bytes:
    buffer = np.empty((len(times), _SAMPLE_BYTES), np.uint8)
    buffer[:, 0], buffer[:, 1], buffer[:, 2], buffer[:, 11] = 0x12, _SAMPLE_BYTES - 2, 0x09, 0x10
    buffer[:, 3:11] = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(-1, 8)
    buffer[:, 12:] = times
    return buffer.tobytes()


def _labels(labels: Mapping[str, str]) -> bytes:
    encoded = []
    for name, value in sorted(labels.items()):
        if value:
            pair = _field(1, name.encode()) + _field(2, value.encode())
            encoded.append(_field(1, pair))
    return b"".join(encoded)


def _series(labels: bytes, samples: bytes) -> bytes:
    return b"\x0a" + _varint(len(labels) + len(samples)) + labels + samples


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
