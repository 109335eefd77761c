"""The node as checks see it: its files, its GPUs, what is expected of it, and the limits."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from pyrometer_exporters.node.checks.parts import Facts
from pyrometer_exporters.node.checks.processes import KTHREADD, Process, read_processes
from pyrometer_exporters.node.gpu.inventory import PciBus
from pyrometer_exporters.node.nic.pci_function import link_name

T = TypeVar("T")

# Names of products in the firmware of machines without an instruction that says it, such as Arm's.
_VIRTUAL = r"(?i)virtual|KVM|QEMU|HVM domU|Google Compute Engine|OpenStack|VMware|Alibaba Cloud ECS"


class Gpus(Protocol):
    """Asks the driver, once; see ``gpus.py``."""

    def __call__(self, node: Node) -> Any:  # noqa: ANN401  GpuView, whose module loads the driver's binding
        """Return what the driver says of all GPUs; takes a few seconds at most."""
        ...


class StatFs(Protocol):
    """The part of ``os.statvfs_result`` that is used."""

    @property
    def f_frsize(self) -> int:
        """The bytes of a block."""
        ...

    @property
    def f_blocks(self) -> int:
        """The size in blocks."""
        ...

    @property
    def f_bfree(self) -> int:
        """The free blocks."""
        ...

    @property
    def f_bavail(self) -> int:
        """The free blocks for everybody."""
        ...

    @property
    def f_files(self) -> int:
        """The size in inodes."""
        ...

    @property
    def f_ffree(self) -> int:
        """The free inodes."""
        ...


@dataclass(frozen=True)
class Paths:
    """Where the node's files are."""

    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    rootfs: Path = Path("/")
    kmsg: Path = Path("/dev/kmsg")
    devices: Path = Path("/dev")
    """This process's own devices: in a container not the host's."""


class Expected:
    """The expectations of a node: stated in the configuration, and learned from what it had for a day."""

    def __init__(self, stated: Mapping[str, Any], learned: Facts) -> None:
        self.stated = stated
        self._learned = learned

    def get(self, key: str) -> Any:  # noqa: ANN401  its type is the key's, see config.py
        """Return what is stated, else None."""
        return self.stated.get(key)

    def learned(self, kind: str) -> Mapping[str, Any]:
        """Return the learned parts of a kind, by identity."""
        return self._learned.get(kind, {})


def kernel_clock_state() -> int | None:
    """Return adjtimex's verdict on the kernel's clock; asking changes nothing and needs no right."""
    import ctypes  # noqa: PLC0415  in the process of the checks only

    structure = ctypes.create_string_buffer(512)  # struct timex has 208 bytes; modes = 0 asks
    state = ctypes.CDLL(None).adjtimex(structure)
    return int(state) if state >= 0 else None


@dataclass
class Node:
    """One look at a node.

    Attributes:
        paths: where its files are.
        expected: what it should have.
        limits: thresholds by check.
        listed: the checks that the configuration lists under ``checks``: somebody cares for what they ask.
        earlier: what the look before this one kept.
        ask_gpus: asks the driver.
        statvfs: asks a file system; may hang.
        boottime: seconds since the boot.
        wall: seconds since the epoch.
        clock_state: the kernel's verdict on its clock, as adjtimex(2) returns it; None where it can't be asked.
    """

    paths: Paths
    expected: Expected
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    listed: Collection[str] = ()
    earlier: Mapping[str, Any] = field(default_factory=dict)
    ask_gpus: Gpus | None = None
    statvfs: Callable[[str], StatFs] = os.statvfs
    boottime: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    wall: Callable[[], float] = time.time
    clock_state: Callable[[], int | None] = kernel_clock_state
    _read: dict[str, Any] = field(default_factory=dict, repr=False)
    _real: dict[str, str] = field(default_factory=dict, repr=False)

    def once(self, key: str, read: Callable[[], T]) -> T:
        """Return what ``read`` returned at the first call with this key: several checks of a look need it."""
        if key not in self._read:
            self._read[key] = read()
        return cast("T", self._read[key])

    def limit(self, check: str, name: str) -> float:
        """Return a threshold of a check."""
        return self.limits[check][name]

    def text(self, path: Path | str) -> str | None:
        """Return the text of a small file without its line end; None where it can't be read."""
        try:
            # By a raw file, as a look reads a thousand of them.
            with open(path, "rb", buffering=0) as file:
                return file.read().decode("utf-8", "replace").strip()
        except OSError:
            return None

    def real(self, path: Path | str) -> str:
        """Return the path behind links; in a look each folder on the way is followed once, as devices share theirs."""
        key = os.fspath(path)
        if key not in self._real:
            folder, _, name = key.rpartition("/")
            place = f"{self.real(folder)}/{name}" if folder else key
            try:
                target = os.readlink(place)  # noqa: PTH115  as for text
            except OSError:
                self._real[key] = place
            else:
                self._real[key] = self.real(os.path.normpath(f"{place}/../{target}" if target[0] != "/" else target))
        return self._real[key]

    def driver(self, function: Path | str) -> str:
        """Return which driver has a PCI function; empty for none."""
        return link_name(f"{function}/driver")

    @property
    def gpus_on_bus(self) -> list[str] | None:
        """The PCI addresses of the GPUs that this node has on its bus, in order; None where the bus can't be seen."""
        return self.once("gpus on bus", self.pci_bus.gpus)

    @cached_property
    def pci_bus(self) -> PciBus:
        """The PCI bus; once :attr:`gpus_on_bus` was read, it knows which GPUs virtual machines have."""
        return PciBus(self.paths.sysfs)

    def number(self, path: Path | str) -> int | None:
        """Return the number in a small file; None where there is none."""
        text = self.text(path)
        try:
            return int(text, 0) if text else None
        except ValueError:
            return None

    def names(self, folder: Path | str) -> list[str]:
        """Return the names in a folder, in order; none where it doesn't exist."""
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208  as for text
        except OSError:
            return []

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """All processes of the node, listed once."""
        return read_processes(self.paths.procfs)

    @cached_property
    def sees_processes(self) -> bool:
        """True if these are the host's: a container's own are not, and some mounts of ``/proc`` hide other users'."""
        if any(process.pid == KTHREADD and process.is_of_kernel for process in self.processes):
            return True
        return not os.path.lexists(self.paths.procfs / "self/ns/pid")  # a copy of some files, as in a test

    @cached_property
    def sees_hardware(self) -> bool:
        """True if there is a sysfs to look at."""
        return (self.paths.sysfs / "bus/pci/devices").is_dir() or (self.paths.sysfs / "class").is_dir()

    @cached_property
    def is_virtual(self) -> bool:
        """True for a virtual machine, whose disks and memory come and go with its host's whim."""
        text = self.text(self.paths.procfs / "cpuinfo") or ""
        flags = re.search(r"^(?:flags|Features)\s*:.*$", text, re.MULTILINE)
        if flags is not None and "hypervisor" in flags[0].split():
            return True
        name = self.text(self.paths.sysfs / "class/dmi/id/product_name") or ""
        return re.search(_VIRTUAL, name) is not None

    @cached_property
    def gpus(self) -> Any:  # noqa: ANN401  see Gpus
        """The driver's answers, asked once."""
        if self.ask_gpus is None:
            raise RuntimeError("this run doesn't query the driver")
        return self.ask_gpus(self)
