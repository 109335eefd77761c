"""Tune malloc and the garbage collector for an exporter: each scrape needs again what the last one freed."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from typing import Final

# malloc.h, mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# More than a scrape of a large node allocates and frees.
KEPT_BYTES: Final = 16 << 20
# None of a scrape's thousands of samples is in a cycle, and the next scrape frees them. With Python's own 700 the
# collector would traverse them several times in each scrape.
YOUNG_OBJECTS: Final = 10_000


def keep() -> None:
    """Have glibc keep freed memory, in one arena for all threads; does nothing with other C libraries.

    Else each scrape has pages of the kernel again (``benchmarks/bench_node_exporter.py`` measures the memory).
    """
    with suppress(AttributeError):  # musl has none of this
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)


def settle() -> None:
    """Exempt all objects that exist now from garbage collection, which would delay a scrape now and then."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
