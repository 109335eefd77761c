"""A device and who reads it: one worker at a time, and another one in its place while a file of it hangs.

A read in the kernel can't be cancelled: the thread that waits for it is left alone, the file is not asked for again,
and a new worker reads all others. When the read comes back, the file is asked again a minute later.
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
# A device whose look in the shared thread takes longer is read in a thread of its own for a while.
QUICK_SECONDS = 0.002


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
        self._member, self._reader = self._fresh()

    @property
    def hanging(self) -> int:
        """How many of its files hang at present."""
        return sum(not reader.gone for reader in self._left)

    def look(self, read: Read, now: float, *, apart: bool = False) -> Look:
        """Return a look at the monotonic time ``now``, which is yet to begin; see :meth:`Member.task`."""
        self._left = [left for left in self._left if not left.gone]
        reader = self._reader
        return Look(self, read, now, self._member.task(lambda: reader.read(read, now), apart=apart, now=now))

    def waited(self, look: Look, until: float) -> Task[DeviceReading]:
        """Wait until the monotonic time ``until``; return the look's task, or a new one if a file of it hangs."""
        if look.task.outcome(until).reason != LATE or len(self._left) >= MAX_HUNG:
            return look.task
        patience = min(HUNG_SECONDS, HUNG_SHARE * (until - look.task.started))
        folders = self._reader.folders
        if time.monotonic() - folders.since < patience:
            return look.task
        self._hung.add(folders.current)
        folders.abandoned = True
        self._left.append(self._reader)
        self._member.close()
        self._member, self._reader = self._fresh()
        again = self.look(look.read, look.now, apart=True)
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
class Look:
    """A look at a device; its task has failed as late where an earlier one is still under way."""

    device: Device
    read: Read
    now: float
    task: Task[DeviceReading]
