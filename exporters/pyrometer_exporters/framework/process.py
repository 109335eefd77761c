"""``process_*`` metrics of the exporter itself, under the names that all dashboards know (prometheus_client's)."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from functools import cache

from pyrometer_exporters.framework.metrics import Family, Sample

_TICKS, _PAGE_BYTES = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_VIRTUAL_MEMORY = Family("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.")
_RESIDENT_MEMORY = Family("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.")
_START_TIME = Family("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.")
_CPU = Family("process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.")
_MAX_FDS = Family("process_max_fds", "gauge", "Maximum number of open file descriptors.")
_OPEN_FDS = Family("process_open_fds", "gauge", "Number of open file descriptors.")


def process_samples() -> Iterator[Sample]:
    """CPU seconds, memory, open files and start time of this process, read from /proc/self."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        yield _VIRTUAL_MEMORY.sample(int(fields[20]))
        yield _RESIDENT_MEMORY.sample(int(fields[21]) * _PAGE_BYTES)
        yield _START_TIME.sample(_boot_time() + int(fields[19]) / _TICKS)
        yield _CPU.sample((int(fields[11]) + int(fields[12])) / _TICKS)
        yield _MAX_FDS.sample(soft)
        yield _OPEN_FDS.sample(_open_files())
    except (OSError, ValueError, IndexError):
        return  # no /proc: none of these


def _open_files() -> int:
    # Since kernel 6.2 the folder's size is their number: to list a thousand takes half a millisecond on every scrape.
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))  # noqa: PTH116, PTH208


@cache
def _boot_time() -> float:
    with open("/proc/stat", encoding="ascii", errors="replace") as file:
        return next((float(line.split()[1]) for line in file if line.startswith("btime ")), 0.0)
