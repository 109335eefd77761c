"""Read the JSON report of NCCL RAS (2.28.7 and newer) rank by rank, so that one of 20 MB takes no memory to speak of.

A rank is ``{"rank": 0, "host": "172.16.64.245", "pid": 1524344, "cuda_dev": 0, "nvml_dev": 0, "status": {"init_state":
0, "async_error": 0, "finalize_called": false, "destroy_flag": false, "abort_flag": false}, "collective_counts":
{"AllReduce": 6650, ...}}``; one that is missing has ``"status": {"unresponsive": true, "considered_dead": false}``.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.nccl.snapshot import Communicator, Peer, Snapshot, state_of

# A rank takes 600 bytes, with host names and longer names of collectives perhaps twice that.
_MOST_VALUE_CHARACTERS = 64 * 1024
_MOST_COMMUNICATORS = 65_536
_MOST_KINDS = 32
_MOST_NUMBER = 1 << 62
_SPACE = re.compile(r"[ \t\r\n]*")


def read(chunks: Iterator[bytes]) -> Snapshot:
    """Read a whole report.

    Raises:
        PartError: it isn't one, or not all of it came.
    """
    text, snapshot = _Text(chunks), Snapshot(form="json")
    try:
        for name in text.names():
            if name == "communicators":
                _read_communicators(text, snapshot)
            else:
                value = text.value()
                if name == "nccl_version":
                    snapshot.version = str(value)[:64]
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise PartError("malformed", f"the report can't be parsed: {type(error).__name__} {str(error)[:80]}") from None
    snapshot.nodes = len({peer.host for peer in snapshot.peers})
    return snapshot


def _read_communicators(text: _Text, snapshot: Snapshot) -> None:
    hashes: set[str] = set()
    for _ in text.elements():
        if len(snapshot.communicators) >= _MOST_COMMUNICATORS:
            raise PartError("too_large", f"more than {_MOST_COMMUNICATORS} communicators in one answer")
        snapshot.communicators.append(_read_communicator(text, snapshot, hashes))


def _read_communicator(text: _Text, snapshot: Snapshot, hashes: set[str]) -> Communicator:
    comm, second = Communicator("", 0), ""
    for name in text.names():
        if name == "ranks":
            for _ in text.elements():
                _add_rank(text.value(), comm, snapshot)
        elif name == "missing_ranks":
            for _ in text.elements():
                _add_missing(text.value(), comm, snapshot)
        else:
            value = text.value()
            if name == "size":
                comm.size = _number(value)
            elif name == "hash":
                comm.name = str(value)[:64]
            elif name == "secondary_hash":
                second = str(value)[:64]
    if comm.name in hashes:  # only both together are unique
        comm.name = f"{comm.name} {second}"
    hashes.add(comm.name)
    return comm


def _add_rank(value: dict[str, Any], comm: Communicator, snapshot: Snapshot) -> None:
    status, counts = value["status"], value["collective_counts"]
    if len(counts) > _MOST_KINDS:
        raise ValueError(f"{len(counts)} kinds of collectives")
    state = state_of(_number(status["init_state"]), _number(status["async_error"]))
    comm.ending |= any(status.get(flag) is True for flag in ("finalize_called", "destroy_flag", "abort_flag"))
    kinds = {str(kind)[:32]: _number(count) for kind, count in counts.items()}
    comm.add(_small(value["rank"]), snapshot.number(_peer(value)), state, kinds)


def _add_missing(value: dict[str, Any], comm: Communicator, snapshot: Snapshot) -> None:
    status = value["status"]
    dead, unresponsive = status.get("considered_dead") is True, status.get("unresponsive") is True
    state = "dead" if dead else "unresponsive" if unresponsive else "missing"
    comm.add_absent(_small(value["rank"]), snapshot.number(_peer(value)), state)


def _peer(value: dict[str, Any]) -> Peer:
    return Peer(str(value["host"])[:64], _small(value["pid"]), _small(value["nvml_dev"]))


def _number(value: object) -> int:
    if not isinstance(value, int) or abs(value) > _MOST_NUMBER:
        raise ValueError(f"{str(value)[:20]} is not a count")
    return value


def _small(value: object) -> int:
    if not isinstance(value, int) or abs(value) >= 1 << 31:
        raise ValueError(f"{str(value)[:20]} is not a number of 32 bits")
    return value


class _Text:
    """A JSON text that arrives in chunks; objects and arrays are entered step by step, all else is decoded whole."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decode = json.JSONDecoder().raw_decode
        self._text = ""
        self._at = 0
        self._ended = False

    def names(self) -> Iterator[str]:
        """Yield the names of an object; the caller reads each one's value before the next."""
        for _ in self._items("{", "}"):
            name = self.value()
            if not isinstance(name, str):
                raise TypeError("a name is missing")
            self._take(":")
            yield name

    def elements(self) -> Iterator[None]:
        """Stop at each element of an array; the caller reads it."""
        return self._items("[", "]")

    def value(self) -> Any:  # noqa: ANN401  any JSON value
        """Decode the next value.

        Raises:
            ValueError: it isn't JSON, or longer than any in a report.
        """
        self._peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError:
                if not self._may_grow():
                    raise
            else:
                if end < len(self._text) or not self._may_grow():  # a number may go on in the next chunk
                    self._at = end
                    return value
            self._more()

    def _items(self, begin: str, end: str) -> Iterator[None]:
        self._take(begin)
        if self._peek() == end:
            self._at += 1
            return
        while True:
            yield
            if self._peek() == end:
                self._at += 1
                return
            self._take(",")

    def _take(self, character: str) -> None:
        next_character = self._peek()
        if next_character != character:
            raise ValueError(
                f"{next_character!r} in place of {character!r}" if next_character else "it ends in the middle"
            )
        self._at += 1

    def _peek(self) -> str:
        """Return the next character that isn't space; empty at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._more()

    def _may_grow(self) -> bool:
        return not self._ended and len(self._text) - self._at < _MOST_VALUE_CHARACTERS

    def _more(self) -> None:
        chunk = next(self._chunks, b"")
        self._ended = not chunk
        self._text = self._text[self._at :] + self._decoder.decode(chunk, final=self._ended)
        self._at = 0
