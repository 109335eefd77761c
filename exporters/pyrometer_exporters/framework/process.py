"""``process_*`` metrics of the exporter itself, under the names that all dashboards know (prometheus_client's).

Not by prometheus_client's ProcessCollector: importing it takes several MB of an exporter's memory budget, and reading
``/proc`` its way costs a few times as much at every scrape.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator

from pyrometer_exporters.framework.metrics import Families, Sample, new_sample
from pyrometer_kit.proc_stat import read_stat

_ROWS = Families()
_VIRTUAL_MEMORY = _ROWS.gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.")
_RESIDENT_MEMORY = _ROWS.gauge("process_resident_memory_bytes", "Resident memory size in bytes.")
_START_TIME = _ROWS.gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.")
_CPU = _ROWS.counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.")
_MAX_FDS = _ROWS.gauge("process_max_fds", "Maximum number of open file descriptors.")
_OPEN_FDS = _ROWS.gauge("process_open_fds", "Number of open file descriptors.")


class Process:
    """This process, read from /proc/self; no samples where there is no /proc."""

    def __init__(self) -> None:
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._started: float | None = None
        try:
            self._started = _start_time()
            # Kept open, as it is read at each scrape.
            self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError, IndexError):
            self._statm = -1

    def samples(self) -> Iterator[Sample]:
        """Yield CPU seconds, memory, open files and start time."""
        try:
            virtual, resident, _ = os.pread(self._statm, 200, 0).split(None, 2)
            yield new_sample(_VIRTUAL_MEMORY, (), int(virtual) * self._page_bytes)
            yield new_sample(_RESIDENT_MEMORY, (), int(resident) * self._page_bytes)
            if self._started is not None:
                yield new_sample(_START_TIME, (), self._started)
            yield new_sample(_CPU, (), time.process_time())
            yield new_sample(_MAX_FDS, (), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
            yield new_sample(_OPEN_FDS, (), _open_files())
        except (OSError, ValueError):
            return


def _open_files() -> int:
    # Since kernel 6.2 the folder's size is their number, which saves listing them.
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))  # noqa: PTH116, PTH208


def _start_time() -> float:
    return _boot_time() + read_stat("/proc", "self").started / os.sysconf("SC_CLK_TCK")


def _boot_time() -> float:
    with open("/proc/stat", encoding="ascii", errors="replace") as file:
        return next((float(line.split()[1]) for line in file if line.startswith("btime ")), 0.0)
