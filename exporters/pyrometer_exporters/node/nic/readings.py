"""What one look at a device gave, before anything is remembered or served of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from pyrometer_exporters.framework.worker import reason_of
from pyrometer_exporters.node.nic.counters import Counter
from pyrometer_exporters.node.nic.hardware import Hardware, Place
from pyrometer_exporters.node.nic.kernel import Kernel
from pyrometer_exporters.node.nic.parse import number
from pyrometer_exporters.node.nic.sysfs import Folder, Folders
from pyrometer_exporters.node.nic.tiers import Kept, Tier

if TYPE_CHECKING:
    from pyrometer_exporters.node.nic.pcie import Hop
    from pyrometer_exporters.node.nic.temperatures import Temperature

Counts = tuple[tuple[Counter, int], ...]
NOTHING: Mapping[Any, Any] = MappingProxyType({})


@dataclass
class Access:
    """How the worker of one device reads it; it belongs to that worker alone."""

    folders: Folders
    kept: Kept
    hardware: Hardware
    kernel: Kernel | None = None
    """None where the tree that is read is not this machine's."""


class PortReading(NamedTuple):
    """A port, or an interface without RDMA (``port`` empty).

    Attributes:
        port: its number as text.
        active: whether the link is up; None where that couldn't be read.
        admin_down: whether an administrator has switched it off.
        rate: bits per second; None unless the link is up.
        down_sources: raw counts of link losses by source; None where one that exists couldn't be read this time.
        ifindex: changes when the interface was made anew.
        state_id: as the kernel numbers states: 4 is ACTIVE; None for an interface without RDMA.
        physical_state_id: 5 is LinkUp.
        mtu: bytes, of its interface.
        settings: what its interface is set to, by the kernel's name of the file.
        lifespan: for how many seconds the kernel keeps hardware counters before it asks the device again.
        fec_mode: of its interface: ``rs``, ``baser``, ``llrs``, ``off``; empty where nobody says.
        down_reason: why the link is down, in a word; empty while it is up or where nobody says.
        failed: groups of files none of which could be read, with the reason.
        groups: the raw values of the counters that could be read; the last of the fields. A group, and a count in it,
            is the same object as long as it says the same.
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
    """A device: an RDMA device or an interface without RDMA.

    Attributes:
        inode: of its folder in sysfs, which changes when the driver is reloaded.
        node_guid: the device's own; empty where it has none.
        board: its board's id, such as ``MT_0000000838``; empty where it has none.
        counts: the counters of the whole device.
        link_is_constant: whether the driver reports a link that is always up (EFA).
        ages: how old the oldest value of each tier is, in seconds.
        temperatures: of the device and its module.
        hops: the PCIe links from the device up.
        failing: files that can't be read at present, below the device's folder, with the errno.
    """

    name: str
    inode: int
    node_guid: str
    place: Place
    firmware: str
    ports: tuple[PortReading, ...]
    board: str = ""
    counts: Counts = ()
    link_is_constant: bool = False
    ages: Mapping[Tier, float] = NOTHING
    temperatures: tuple[Temperature, ...] = ()
    hops: tuple[Hop, ...] = ()
    failing: tuple[tuple[str, int], ...] = ()


class Counters:
    """The counters of ``table`` that a folder has; belongs to the worker that reads the device.

    What a file says is made a number of where it isn't what it said before.
    """

    def __init__(self, table: Iterable[Counter]) -> None:
        self._table = tuple(table)
        self._names: frozenset[str] | None = None
        self._listed: list[Counter] = []
        self._files: list[str] = []
        self._texts: list[bytes | None] = []
        self._found: list[tuple[Counter, int] | None] = []
        self._counts: Counts = ()

    def read(self, folder: Folder) -> tuple[Counts, str | None]:
        """Those that give a number; the same object as before where all are what they were.

        The second value is None, or the reason why none could be read although there are some. A text that is no
        number, such as ``N/A (no PMA)``, means that the hardware doesn't count this: no failure.
        """
        if folder.names is not self._names:
            self._list(folder.names)
        texts, failures = folder.several(self._files)
        if texts != self._texts:
            self._take(texts)
        none = failures and len(failures) == len(texts)
        return self._counts, reason_of(failures[0]) if none else None

    def _list(self, names: frozenset[str]) -> None:
        self._listed = [counter for counter in self._table if counter.file in names]
        self._files = [counter.file for counter in self._listed]
        self._texts, self._found = [None] * len(self._files), [None] * len(self._files)
        self._counts = ()
        self._names = names

    def _take(self, texts: list[bytes | None]) -> None:
        for index, (text, before) in enumerate(zip(texts, self._texts, strict=True)):
            if text != before:
                raw = None if text is None else number(text)
                self._found[index] = None if raw is None else (self._listed[index], raw)
        self._texts = texts
        self._counts = tuple(filter(None, self._found))
