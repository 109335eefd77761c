"""A program that reads the clock-event bitmask 200 times a second, independently of our exporter's code."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

import pynvml

from pyrometer_exporters.commands.gpu_check.place import Place, say

FREQUENCY = 200.0


def main(place: Place) -> None:
    """Watch until standard input ends; then report each change of the bitmask, and how often it was read."""
    stop = threading.Event()
    threading.Thread(target=_set_at_end_of_input, args=[stop], daemon=True).start()
    with place.nvml() as handle:
        read = _reader(handle)
        say(ready=True)
        last, reads, due = None, 0, time.monotonic()
        changes = []
        while not stop.is_set():
            mask, now = read(), time.monotonic()
            reads += 1
            if mask != last:
                changes.append((now, mask))
                last = mask
            due = max(due + 1 / FREQUENCY, now - 1)
            time.sleep(max(0.0, due - time.monotonic()))
        say(reads=reads, changes=changes)  # only now: nobody reads meanwhile, and a full pipe would hold us up


def _set_at_end_of_input(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


def _reader(handle: object) -> Callable[[], int]:
    """Return a function that reads the bitmask; the name of NVML's own changed with R535."""
    for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        try:
            function = pynvml._nvmlGetFunctionPointer(name)  # noqa: SLF001  the wrapper has only one of the names
        except pynvml.NVMLError:
            continue
        mask = ctypes.c_ulonglong()

        def read(function: Callable[..., int] = function, mask: ctypes.c_ulonglong = mask) -> int:
            code = function(handle, ctypes.byref(mask))
            if code:
                raise pynvml.NVMLError(code)
            return mask.value

        return read
    raise SystemExit("this driver has no bitmask of clock events")


def seconds_by_bit(changes: list[tuple[float, int]], begin: float, end: float) -> dict[int, float]:
    """Return for how long each bit was set between two times, from the changes of the bitmask.

    >>> seconds_by_bit([(0.0, 4), (2.0, 0), (3.0, 12)], 1.0, 4.0)
    {4: 2.0, 8: 1.0}
    """
    found: dict[int, float] = {}
    for (at, mask), (until, _) in zip(changes, [*changes[1:], (end, 0)], strict=False):
        held = min(until, end) - max(at, begin)
        if held <= 0:
            continue
        for bit in _bits(mask):
            found[bit] = found.get(bit, 0.0) + held
    return found


def changes_by_bit(changes: list[tuple[float, int]]) -> dict[int, int]:
    """Return how often each bit came or went.

    >>> changes_by_bit([(0.0, 4), (2.0, 0), (3.0, 12)])
    {4: 2, 8: 1}
    """
    return dict(Counter(bit for (_, before), (_, after) in pairwise(changes) for bit in _bits(before ^ after)))


def _bits(mask: int) -> Iterator[int]:
    return (1 << number for number in range(64) if mask >> number & 1)
