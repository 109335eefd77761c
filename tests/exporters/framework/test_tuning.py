"""The exporter's memory settings, tried in a process of their own."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

# A thread's own arena of glibc's reserves 64 MB of addresses.
_ARENAS = """
import sys, threading
from pathlib import Path
from pyrometer_exporters.framework import tuning

if "keep" in sys.argv:
    tuning.keep()
kept, all_have = [], threading.Barrier(5)
def allocate():
    kept.append([bytes(10_000) for _ in range(50)])
    all_have.wait()
    all_have.wait()
for _ in range(4):
    threading.Thread(target=allocate).start()
all_have.wait()
maps = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if "---p" in line]
all_have.wait()
print(sum(int(end, 16) - int(start, 16) > 50_000_000 for start, end in maps))
"""

_COLLECTIONS = """
import gc, sys
from pyrometer_exporters.framework import tuning

if "settle" in sys.argv:
    tuning.settle()
before = sum(generation["collections"] for generation in gc.get_stats())
for _ in range(50):
    kept = [(str(number),) for number in range(3000)]
print(sum(generation["collections"] for generation in gc.get_stats()) - before)
"""


def _printed(program: str, *arguments: str) -> int:
    command = [sys.executable, "-c", program, *arguments]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc, which alone has arenas")
def test_threads_share_one_arena() -> None:
    assert _printed(_ARENAS) > 0
    assert _printed(_ARENAS, "keep") == 0


def test_samples_that_come_and_go_are_not_looked_through_for_cycles() -> None:
    default, settled = _printed(_COLLECTIONS), _printed(_COLLECTIONS, "settle")
    assert settled <= min(default, 20)
    if sys.version_info < (3, 12):  # Python 3.13 hardly looks at these on its own
        assert default > 50
