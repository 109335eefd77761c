"""The result of one read of a device, before anything of it is remembered or served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.framework.outcome import reason_of
from pyrometer_exporters.node.nic.counters import Counter
from pyrometer_exporters.node.nic.kernel import Kernel
from pyrometer_exporters.node.nic.parse import number
from pyrometer_exporters.node.nic.pci_function import PciFunction, PciFunctionReader
from pyrometer_exporters.node.nic.sysfs import Folder, Folders
from pyrometer_exporters.node.nic.tiers import Tier, TierCache

Counts = tuple[tuple[Counter, int], ...]
"""Counters with their raw values."""
NOTHING: Mapping[Any, Any] = MappingProxyType({})


@dataclass
class DeviceAccess:
    """Everything that a reader of one device uses; it belongs to the thread that reads the device."""

    folders: Folders
    cache: TierCache
    pci_functions: PciFunctionReader
    kernel: Kernel | None = None
    """None where the tree that is read is not this machine's."""


class Temperature(NamedTuple):
    """One sensor, in degrees Celsius; ``critical`` is None where the firmware has no threshold, written as 0."""

    sensor: str
    celsius: float
    critical: float | None


class Hop(NamedTuple):
    """The PCIe link above a function; None where the kernel doesn't know. Speeds in transfers per second and lane."""

    function: str
    width: int | None
    width_max: int | None
    speed: float | None
    speed_max: float | None


class PortReading(NamedTuple):
    """A port, or an interface without RDMA (``port`` empty).

    Attributes:
        port: the port's number as text.
        active: whether the link is up; None where that couldn't be read.
        admin_down: whether an administrator has switched the port off.
        rate: bits per second; None unless the link is up.
        down_sources: raw counts of link losses by source; None where a source exists but couldn't be read this time.
        ifindex: the kernel's number of the interface, which changes when the interface is created again.
        state_id: the port's state as the kernel numbers it: 4 is ACTIVE; None for an interface without RDMA.
        physical_state_id: the physical state as the kernel numbers it: 5 is LinkUp.
        mtu: the interface's MTU, in bytes.
        settings: the interface's settings, by the kernel's file name.
        lifespan: for how many seconds the kernel caches hardware counters before it asks the device again.
        fec_mode: the interface's FEC: ``rs``, ``baser``, ``llrs``, ``off``; empty where unknown.
        down_reason: why the link is down, in a word; empty while it is up or where unknown.
        failed: groups of files none of which could be read, each with the reason.
        groups: the raw values of the counters that could be read, by group of files.
    """

    port: str
    active: bool | None
    admin_down: bool
    rate: int | None
    down_sources: Mapping[str, int | None] = NOTHING
    ifindex: int = 0
    netdev: str = ""
    guid: str = ""
    link_layer: str = ""
    state_id: int | None = None
    physical_state_id: int | None = None
    mtu: int | None = None
    settings: tuple[tuple[str, int], ...] = ()
    lifespan: float | None = None
    fec_mode: str = ""
    down_reason: str = ""
    failed: tuple[tuple[str, str], ...] = ()
    groups: tuple[Counts, ...] = ()


class DeviceReading(NamedTuple):
    """A device: an RDMA device, or an interface without RDMA.

    Attributes:
        inode: the inode of the device's sysfs folder, which changes when the driver is reloaded.
        node_guid: the device's own GUID; empty where it has none.
        board: the board's id, such as ``MT_0000000838``; empty where it has none.
        counts: the counters of the whole device.
        link_is_constant: whether the driver reports a link that is always up (EFA).
        ages: the age of the oldest value of each tier, in seconds.
        temperatures: the sensors of the device and its module.
        hops: the PCIe links from the device up to its root port.
        failing: files that can't be read at present, below the device's folder, each with the errno.
        representor: whether it stands for a virtual function's end inside the NIC, and has no cable.
        of_fabric_manager: whether it is one with which a fabric manager reaches the NVSwitches.
    """

    name: str
    inode: int
    node_guid: str
    pci: PciFunction
    firmware: str
    ports: tuple[PortReading, ...]
    board: str = ""
    counts: Counts = ()
    link_is_constant: bool = False
    ages: Mapping[Tier, float] = NOTHING
    temperatures: tuple[Temperature, ...] = ()
    hops: tuple[Hop, ...] = ()
    failing: tuple[tuple[str, int], ...] = ()
    representor: bool = False
    of_fabric_manager: bool = False


class CounterFiles:
    """The counters of a folder; belongs to the thread that reads the device.

    A file is parsed only when its text has changed.
    """

    def __init__(self) -> None:
        self._table: Sequence[Counter] = ()
        self._names: frozenset[str] | None = None
        self._repeats = False
        """True if the folder has a series under two names."""
        self._listed: list[Counter] = []
        self._files: list[str] = []
        self._texts: list[bytes | None] = []
        self._parsed: list[tuple[Counter, int] | None] = []
        self._counts: Counts = ()

    def read(self, folder: Folder, table: Sequence[Counter]) -> tuple[Counts, str | None]:
        """Return the counters of ``table`` that have a number, and the reason if all of several files failed.

        Each series comes once, even if a driver has it under two names. A text that is no number, such as ``N/A (no
        PMA)``, means that the hardware doesn't count this: not a failure.
        """
        if folder.names is not self._names or table is not self._table:
            self._list(folder.names, table)
        texts, failures = folder.several(self._files)
        if texts != self._texts:
            self._parse(texts)
        all_failed = failures and len(failures) == len(texts)
        return self._counts, reason_of(failures[0]) if all_failed else None

    def _list(self, names: frozenset[str], table: Sequence[Counter]) -> None:
        self._listed = [counter for counter in table if counter.file in names]
        self._repeats = len(set(map(_series, self._listed))) < len(self._listed)
        self._files = [counter.file for counter in self._listed]
        self._texts, self._parsed = [None] * len(self._files), [None] * len(self._files)
        self._counts = ()
        self._names, self._table = names, table

    def _parse(self, texts: list[bytes | None]) -> None:
        for index, (text, before) in enumerate(zip(texts, self._texts, strict=True)):
            if text != before:
                raw = None if text is None else number(text)
                self._parsed[index] = None if raw is None else (self._listed[index], raw)
        self._texts = texts
        counts = filter(None, self._parsed)
        self._counts = (
            tuple({_series(count[0]): count for count in counts}.values()) if self._repeats else tuple(counts)
        )


def _series(counter: Counter) -> tuple[Family, tuple[str, ...]]:
    return counter.family, counter.labels
