"""Measure the CPU time of the driver library, to separate it from that of the exporter.

The simulated driver is Python: it costs CPU time that a real one doesn't, in the exporter's own process. A figure
"without device time" is the process's CPU time less what was spent in the library's functions.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pynvml

_CALLS = 2000  # to measure the meter itself


class LibraryMeter:
    """Stand in for ``pynvml.nvmlLib``: forward every call and sum up its CPU nanoseconds, the meter's own included."""

    def __init__(self, library: Any, own: int | None = None) -> None:  # noqa: ANN401  a CDLL or simulated
        self._library = library
        self._nanoseconds = 0
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
        """The CPU time spent in the library so far."""
        return self._nanoseconds / 1e9

    def _add(self, nanoseconds: int) -> None:
        with self._lock:
            self._nanoseconds += nanoseconds + self._own


class _NullLibrary:
    """A library with a function that does nothing."""

    @staticmethod
    def call() -> int:
        return 0


def _own_cost() -> int:
    """Return the nanoseconds per call that the meter itself needs outside of what it measures."""
    meter = LibraryMeter(_NullLibrary(), own=0)
    spent = []
    for call in (_NullLibrary.call, meter.call):
        start = time.thread_time_ns()
        for _ in range(_CALLS):
            call()
        spent.append(time.thread_time_ns() - start)
    return max(0, round((spent[1] - spent[0] - 1e9 * meter.seconds) / _CALLS))


@contextlib.contextmanager
def metered_library() -> Iterator[LibraryMeter]:
    """Meter the library under pynvml for the length of the block."""
    library = pynvml.nvmlLib
    pynvml.nvmlLib = meter = LibraryMeter(library)
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
    try:
        yield meter
    finally:
        pynvml.nvmlLib = library
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
