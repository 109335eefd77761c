"""A device and who reads it: one worker at a time, and another one in its place while a file of it hangs.

A read in the kernel can't be cancelled: the thread that waits for it is left alone, the file is not asked for again,
and a new worker reads all others. When the read comes back, the file is asked again a minute later.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyrometer_exporters.framework import lane
from pyrometer_exporters.framework.worker import LATE, Busy, PartError, Pending, Task, Worker, reason_of
from pyrometer_exporters.node.nic.kernel import Kernel
from pyrometer_exporters.node.nic.pci_function import PciFunctionReader
from pyrometer_exporters.node.nic.pcie import BUSY_BYTES_PER_SECOND, read_hops
from pyrometer_exporters.node.nic.readings import DeviceAccess, DeviceReading, Hop, PortReading
from pyrometer_exporters.node.nic.sysfs import Files, Folders, HungFiles
from pyrometer_exporters.node.nic.temperatures import read_temperatures
from pyrometer_exporters.node.nic.tiers import TierCache

# The reason of a device that went away between being listed and being read: that is no failure.
GONE = "gone"
# How many files of one device may hang at a time, each with its thread; with more, the device is what hangs.
MAX_HUNG = 4
# A read that has taken this long hangs: healthy ones take milliseconds, and nobody waits for those that take seconds
# because of the kernel's RTNL lock (5 s in node_exporter issue 1841). Where there is less time, half of it.
HUNG_SECONDS = 0.5
HUNG_SHARE = 0.5
# A device whose look in the shared thread takes longer is read in a thread of its own for the next minute. How long
# that takes says nothing of it: threads that read at once wait for each other's turn of the interpreter. 14 quick
# devices, once apart, each took longer than this and so stayed apart, at three times the CPU time. Nor does the first
# look say anything, which opens every file.
QUICK_SECONDS = 0.002
APART_SECONDS = 60.0


@dataclass(frozen=True)
class Read:
    """How to read a device, and its folder; ``begin`` gives what is then called for each look."""

    path: str
    begin: Callable[[DeviceAccess], Callable[[], DeviceReading]]


class Reader:
    """What only the worker touches that reads the device at the time."""

    def __init__(
        self, files: Files, hung: HungFiles, kernel: Kernel | None, early: float = 0.0, *, every_time: bool
    ) -> None:
        self.folders = Folders(files, hung, early)
        self.gone = False
        """Whether its last read came back after it was abandoned."""
        self._hung = hung
        self._inode = 0
        self._moved = (0, 0.0)
        self._read: Read | None = None
        self._access = DeviceAccess(self.folders, TierCache(early, every_time=every_time), PciFunctionReader(), kernel)

    def read(self, read: Read, now: float) -> DeviceReading:
        """A look at the device at the monotonic time ``now``; ``PartError`` where it can't be read."""
        kept = self._access.cache
        self.folders.begin(now)
        kept.begin(now)
        try:
            self._recognise(self.folders.present(read.path).inode)
            reading = self._looker(read)()
            temperatures = read_temperatures(self._access, read.path)
            hops = self._hops(reading)
        except (OSError, PartError) as error:
            raise self._why(error, read.path) from error
        finally:
            if self.folders.abandoned:
                self._end(now)
        failing = self.folders.failing(read.path)
        return reading._replace(temperatures=temperatures, hops=hops, ages=kept.end(), failing=failing)

    def _looker(self, read: Read) -> Callable[[], DeviceReading]:
        if read is not self._read:
            self._read, self._look = read, read.begin(self._access)
        return self._look

    def _hops(self, reading: DeviceReading) -> tuple[Hop, ...]:
        path, busy = reading.pci.path, self._busy(reading)
        return read_hops(self._access, path, busy=busy) if path else ()

    def _busy(self, reading: DeviceReading) -> bool:
        """Return whether the device has moved much data since the previous read."""
        before, then = self._moved
        moved = _traffic(reading.ports)
        self._moved = moved, self.folders.now
        return moved - before >= BUSY_BYTES_PER_SECOND * max(1.0, self.folders.now - then) and then > 0.0

    def _recognise(self, inode: int) -> None:
        """Nothing that was kept is true of a device that was made anew."""
        if inode != self._inode:
            self._access.cache.clear()
            self._inode = inode

    def _why(self, error: OSError | PartError, path: str) -> PartError:
        if not os.path.exists(path):  # noqa: PTH110
            return PartError(GONE)
        return error if isinstance(error, PartError) else PartError(reason_of(error), str(error))

    def _end(self, now: float) -> None:
        """What hung came back, long after ``now``: let the file be asked again, a while later."""
        self._hung.came_back(self.folders.current, now + time.monotonic() - self.folders.since)
        self.folders.close()
        self.gone = True


def _traffic(ports: tuple[PortReading, ...]) -> int:
    """Sum up the bytes of all ports in both directions."""
    groups = (group for port in ports for group in port.groups)
    return sum(raw * counter.factor for group in groups for counter, raw in group if counter.is_traffic)


class Device:
    """A device of the node, by its present name."""

    def __init__(self, name: str, new_reader: Callable[[HungFiles], Reader]) -> None:
        self._name = name
        self._new_reader = new_reader
        self._hung = HungFiles()
        self._left: list[Reader] = []
        self._task: Task[DeviceReading] | None = None
        self._apart_until = -math.inf
        self._telling = False
        self._worker, self._reader = self._fresh()

    @property
    def hanging(self) -> int:
        """How many of its files hang at present."""
        return sum(not reader.gone for reader in self._left)

    def look(self, read: Read, now: float) -> Look:
        """A look at the monotonic time ``now``, which is yet to begin; none where the one before is still under way."""
        self._left = [left for left in self._left if not left.gone]
        before, reader = self._task, self._reader
        if before is not None and not before.over:
            return Look(self, read, now, None, slow=True)
        self._task = Task(lambda: reader.read(read, now))
        if before is not None and before.seconds > QUICK_SECONDS and self._telling:
            self._apart_until = now + APART_SECONDS
        apart = now < self._apart_until
        if not apart:
            self._worker.close()  # an idle thread takes memory, see lane.Part
        self._telling = not apart and before is not None
        return Look(self, read, now, self._task, slow=apart)

    def begin(self, task: Task[Any]) -> None:
        """Do it in the device's own thread."""
        lane.begin(task, self._worker)

    def swap(self, worker: Worker[None]) -> Worker[None]:
        """Take the thread that reads this device at present for its own, and give the one that it had."""
        before, self._worker = self._worker, worker
        return before

    def waited(self, look: Look, until: float) -> Pending[DeviceReading]:
        """Wait until the monotonic time ``until``; the look itself, or a new one in its place if a file hangs."""
        if look.pending.outcome(until).reason != LATE or len(self._left) >= MAX_HUNG:
            return look.pending
        patience = min(HUNG_SECONDS, HUNG_SHARE * (until - look.pending.started))
        folders = self._reader.folders
        if time.monotonic() - folders.since < patience:
            return look.pending
        self._hung.add(folders.current)
        folders.abandoned = True
        self._left.append(self._reader)
        self._worker.close()
        self._worker, self._reader = self._fresh()
        self._task = None
        again = self.look(look.read, look.now)
        again.begin()
        return again.pending

    def close(self, until: float) -> bool:
        """Close the descriptors, waiting until the monotonic time ``until``; False if the worker is still busy."""
        if self._task is not None and not self._task.over:
            return False
        job = self._worker.start(self._reader.folders.close)
        if isinstance(job, Busy):
            return False
        job.outcome(until)
        self._worker.close()
        return True

    def _fresh(self) -> tuple[Worker[None], Reader]:
        return Worker(f"nic-{self._name}"), self._new_reader(self._hung)


class Look(lane.Job[DeviceReading]):
    """A look at a device; ``task`` is None where an earlier one is still under way."""

    def __init__(self, device: Device, read: Read, now: float, task: Task[DeviceReading] | None, *, slow: bool) -> None:
        super().__init__(device, task, slow=slow)
        self.device = device
        self.read = read
        self.now = now
