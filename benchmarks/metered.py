"""What a driver's library takes for itself, so that it can be told from what the exporter takes.

The simulated driver is Python: it costs CPU time that a real one doesn't, in the exporter's own process. A figure
"without device time" is the process's CPU time less what was spent in the library's functions.

As a program it runs the node exporter over simulated GPUs, as ``python -m pyrometer_simulator.node`` does, and keeps
the sum in a file: ``metered.py GPUS SUM FASTER [flags of the exporter]``. What is read at most every so many seconds
is read so many times as often, so that a scrape each 0.15 s finds due what one each 15 s would.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml

from pyrometer_exporters.node.gpu import field_subject
from pyrometer_exporters.node.main import main as node_exporter
from pyrometer_exporters.node.nic import tiers
from pyrometer_simulator.nvml import installed

_SUM = struct.Struct("=q")
_CALLS = 2000  # to learn what the meter takes


class MeteredLibrary:
    """In place of ``pynvml.nvmlLib``: hands every call on and adds up its CPU nanoseconds, with the meter's own."""

    def __init__(
        self,
        library: Any,  # noqa: ANN401  a CDLL or simulated
        kept: memoryview | None = None,
        own: int | None = None,
    ) -> None:
        self._library = library
        self._kept = memoryview(bytearray(_SUM.size)) if kept is None else kept
        self._lock = threading.Lock()
        self._own = _own_cost() if own is None else own

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = getattr(self._library, name)

        def call(*arguments: object) -> int:
            start = time.thread_time_ns()
            try:
                return int(function(*arguments))
            finally:
                self._add(time.thread_time_ns() - start)

        setattr(self, name, call)
        return call

    @property
    def seconds(self) -> float:
        """CPU time spent in the library so far."""
        return device_seconds(self._kept)

    def _add(self, nanoseconds: int) -> None:
        with self._lock:
            _SUM.pack_into(self._kept, 0, _SUM.unpack_from(self._kept)[0] + nanoseconds + self._own)


class _Nothing:
    """A library with a function that does nothing."""

    @staticmethod
    def call() -> int:
        return 0


def _own_cost() -> int:
    """Nanoseconds that the meter takes for a call, outside of what it measures: neither exporter nor driver does."""
    metered_calls = MeteredLibrary(_Nothing(), own=0)
    spent = []
    for call in (_Nothing.call, metered_calls.call):
        start = time.thread_time_ns()
        for _ in range(_CALLS):
            call()
        spent.append(time.thread_time_ns() - start)
    return max(0, round((spent[1] - spent[0] - 1e9 * metered_calls.seconds) / _CALLS))


def device_seconds(kept: memoryview) -> float:
    """The sum that another process keeps."""
    return float(_SUM.unpack_from(kept)[0]) / 1e9


@contextlib.contextmanager
def shared_sum(path: Path) -> Iterator[memoryview]:
    """The sum in a file, which may be new."""
    with path.open("ab+") as file:
        file.truncate(mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), mmap.PAGESIZE) as mapped, memoryview(mapped) as view:
            yield view


@contextlib.contextmanager
def metered(kept: memoryview | None = None) -> Iterator[MeteredLibrary]:
    """Meter the library that is under pynvml."""
    library = pynvml.nvmlLib
    pynvml.nvmlLib = found = MeteredLibrary(library, kept)
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
    try:
        yield found
    finally:
        pynvml.nvmlLib = library
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001


def main() -> int:
    gpus, kept, faster, *flags = sys.argv[1:]
    tiers.SLACK /= float(faster)
    field_subject.SELDOM_SECONDS /= float(faster)
    with installed(Path(gpus)), shared_sum(Path(kept)) as view, metered(view):
        return node_exporter(flags)


if __name__ == "__main__":
    sys.exit(main())
