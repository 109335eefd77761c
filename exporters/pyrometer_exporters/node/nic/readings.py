"""What one look at a device gave, before anything is remembered or served of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyrometer_exporters.framework.worker import reason_of
from pyrometer_exporters.node.nic.counters import Counter
from pyrometer_exporters.node.nic.parse import number
from pyrometer_exporters.node.nic.sysfs import Folder

Counts = tuple[tuple[Counter, int], ...]


@dataclass(frozen=True)
class PortReading:
    """A port, or an interface without RDMA (``port`` empty).

    Attributes:
        port: its number as text.
        active: whether the link is up; None where that couldn't be read.
        admin_down: whether an administrator has switched it off.
        rate: bits per second; None unless the link is up.
        counts: the raw values of the counters that could be read.
        down_sources: raw counts of link losses by source; None where one that exists couldn't be read this time.
        ifindex: changes when the interface was made anew.
        failed: groups of files none of which could be read, with the reason.
    """

    port: str
    active: bool | None
    admin_down: bool
    rate: int | None
    counts: Counts = ()
    down_sources: Mapping[str, int | None] = field(default_factory=dict)
    ifindex: int = 0
    netdev: str = ""
    guid: str = ""
    link_layer: str = ""
    failed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class DeviceReading:
    """A device: an RDMA device or an interface without RDMA.

    Attributes:
        node_guid: the device's own; empty where it has none.
        inode: of its folder in sysfs, which changes when the driver is reloaded.
        link_is_constant: whether the driver reports a link that is always up (EFA).
    """

    name: str
    inode: int
    node_guid: str
    pci_bus_id: str
    driver: str
    firmware: str
    ports: tuple[PortReading, ...]
    link_is_constant: bool = False


def read_counters(folder: Folder, table: Iterable[Counter]) -> tuple[Counts, str | None]:
    """The counters of ``table`` that the folder has and that give a number.

    The second value is None, or the reason why none could be read although there are some. A text that is no number,
    such as ``N/A (no PMA)``, means that the hardware doesn't count this: no failure.
    """
    counts: list[tuple[Counter, int]] = []
    answered, reason = False, None
    for counter in table:
        if counter.file not in folder.names:
            continue
        try:
            raw = number(folder.read(counter.file))
        except OSError as error:
            reason = reason or reason_of(error)
            continue
        answered = True
        if raw is not None:
            counts.append((counter, raw))
    return tuple(counts), None if answered else reason
