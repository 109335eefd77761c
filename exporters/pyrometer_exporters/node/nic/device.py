"""Read a device in one thread at a time, and in a new one while a file of the device hangs.

A read in the kernel can't be cancelled: its thread is abandoned, the file is skipped, and a new reader in a new thread
reads the other files. After the read has returned, the file is read again a minute later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyrometer_exporters.framework.outcome import LATE, PartError, reason_of
from pyrometer_exporters.framework.scheduling import Member, Task, begin_apart
from pyrometer_exporters.node.nic.kernel import Kernel
from pyrometer_exporters.node.nic.pci_function import PciFunctionReader
from pyrometer_exporters.node.nic.pcie import BUSY_BYTES_PER_SECOND, read_hops
from pyrometer_exporters.node.nic.readings import DeviceAccess, DeviceReading, Hop, PortReading
from pyrometer_exporters.node.nic.sysfs import MOST_OPEN, Files, Folders, HungFiles
from pyrometer_exporters.node.nic.temperatures import read_temperatures
from pyrometer_exporters.node.nic.tiers import TierCache

# The reason of a device that was removed between being listed and being read: not a failure.
GONE = "gone"
# How many files of one device may hang at a time, each with its thread; beyond that, the device counts as hung.
MAX_HUNG = 4
# A read that has taken this long hangs: healthy reads take milliseconds, and waiting for the kernel's RTNL lock takes
# seconds (5 s in node_exporter issue 1841). With less time left, HUNG_SHARE of it.
HUNG_SECONDS = 0.5
HUNG_SHARE = 0.5
# A device whose read takes longer in the shared thread gets a thread of its own for a while.
QUICK_SECONDS = 0.002


@dataclass(frozen=True)
class DeviceSource:
    """The folder of a device, and how to read it: ``open`` returns the function that each read calls."""

    path: str
    open: Callable[[DeviceAccess], Callable[[], DeviceReading]]


class Reader:
    """The state of reading a device; only the thread that reads the device at the time uses it."""

    def __init__(
        self,
        files: Files,
        hung: HungFiles,
        kernel: Kernel | None,
        *,
        every_time: bool,
        most_open: Callable[[], int] = lambda: MOST_OPEN,
    ) -> None:
        self.folders = Folders(files, hung, most_open)
        self.gone = False
        """Whether its last read has returned after the reader was abandoned."""
        self._hung = hung
        self._inode = 0
        self._moved = (0, 0.0)
        self._source: DeviceSource | None = None
        self._access = DeviceAccess(self.folders, TierCache(every_time=every_time), PciFunctionReader(), kernel)

    def read(self, source: DeviceSource, now: float) -> DeviceReading:
        """Read the device at the monotonic time ``now``. Raises ``PartError`` where it can't be read."""
        cache = self._access.cache
        self.folders.begin(now)
        cache.begin(now)
        try:
            self._drop_cache_if_replaced(self.folders.present(source.path).inode)
            reading = self._read_function(source)()
            temperatures = read_temperatures(self._access, source.path)
            hops = self._hops(reading)
        except (OSError, PartError) as error:
            raise _part_error(error, source.path) from error
        finally:
            if self.folders.abandoned:
                self._end(now)
        failing = self.folders.failing(source.path)
        return reading._replace(temperatures=temperatures, hops=hops, ages=cache.ages(), failing=failing)

    def _read_function(self, source: DeviceSource) -> Callable[[], DeviceReading]:
        if source is not self._source:
            self._source, self._function = source, source.open(self._access)
        return self._function

    def _hops(self, reading: DeviceReading) -> tuple[Hop, ...]:
        path, busy = reading.pci.path, self._busy(reading)
        return read_hops(self._access, path, busy=busy) if path else ()

    def _busy(self, reading: DeviceReading) -> bool:
        """Return whether the device has moved much data since the previous read."""
        before, then = self._moved
        moved = _traffic(reading.ports)
        self._moved = moved, self.folders.now
        return moved - before >= BUSY_BYTES_PER_SECOND * max(1.0, self.folders.now - then) and then > 0.0

    def _drop_cache_if_replaced(self, inode: int) -> None:
        """Drop all cached values if the device was removed and added again."""
        if inode != self._inode:
            self._access.cache.clear()
            self._inode = inode

    def _end(self, now: float) -> None:
        """End an abandoned reader, whose read returned long after ``now``: allow the file again later."""
        self._hung.came_back(self.folders.current, now + time.monotonic() - self.folders.since)
        self.folders.close()
        self.gone = True


def _part_error(error: OSError | PartError, path: str) -> PartError:
    if not os.path.exists(path):  # noqa: PTH110
        return PartError(GONE)
    return error if isinstance(error, PartError) else PartError(reason_of(error), str(error))


def _traffic(ports: tuple[PortReading, ...]) -> int:
    """Sum up the bytes of all ports in both directions."""
    groups = (group for port in ports for group in port.groups)
    return sum(raw * counter.factor for group in groups for counter, raw in group if counter.is_traffic)


class Device:
    """A device of the node under its present name: its reader, and the readers whose read hangs."""

    def __init__(self, name: str, new_reader: Callable[[HungFiles], Reader]) -> None:
        self._name = name
        self._new_reader = new_reader
        self._hung = HungFiles()
        self._abandoned: list[Reader] = []
        self._member, self._reader = self._fresh()

    @property
    def hanging(self) -> int:
        """How many files of the device hang at present."""
        return sum(not reader.gone for reader in self._abandoned)

    def prepare(self, source: DeviceSource, now: float, *, apart: bool = False) -> DeviceRead:
        """Return a read at the monotonic time ``now`` that has not begun yet; see :meth:`Member.task`."""
        self._abandoned = [reader for reader in self._abandoned if not reader.gone]
        reader = self._reader
        task = self._member.task(lambda: reader.read(source, now), apart=apart, now=now)
        return DeviceRead(self, source, now, task)

    def retry_if_hung(self, read: DeviceRead, until: float) -> Task[DeviceReading]:
        """Wait until the monotonic time ``until``; return the read's task, or a new read's if a file hangs."""
        if read.task.outcome(until).reason != LATE or len(self._abandoned) >= MAX_HUNG:
            return read.task
        limit = min(HUNG_SECONDS, HUNG_SHARE * (until - read.task.started))
        folders = self._reader.folders
        if time.monotonic() - folders.since < limit:
            return read.task
        self._hung.add(folders.current)
        folders.abandoned = True
        self._abandoned.append(self._reader)
        self._member.close()
        self._member, self._reader = self._fresh()
        again = self.prepare(read.source, read.now, apart=True)
        begin_apart(again.task)
        return again.task

    def close(self, until: float) -> bool:
        """Close the descriptors, waiting until the monotonic time ``until``; False if a read is still under way."""
        if self._member.busy or self._member.worker.busy:
            return False
        self._member.worker.start(self._reader.folders.close).outcome(until)
        self._member.close()
        return True

    def _fresh(self) -> tuple[Member, Reader]:
        return Member(f"nic-{self._name}", QUICK_SECONDS), self._new_reader(self._hung)


@dataclass(frozen=True)
class DeviceRead:
    """One read of a device; its task has failed as late where an earlier read is still under way."""

    device: Device
    source: DeviceSource
    now: float
    task: Task[DeviceReading]
