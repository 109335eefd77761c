"""An interface: ``class/net/<name>``.

Sample::

    $ cat /sys/class/net/eth0/{operstate,flags,speed,carrier_down_count,statistics/rx_bytes}
    up
    0x1003
    100000
    1
    54326210
"""

from __future__ import annotations

from dataclasses import dataclass

from pyrometer_exporters.framework.worker import PartError, reason_of
from pyrometer_exporters.node.nic import parse
from pyrometer_exporters.node.nic.counters import CARRIER_DOWNS, INTERFACE
from pyrometer_exporters.node.nic.hardware import Hardware
from pyrometer_exporters.node.nic.readings import Counts, DeviceReading, PortReading, read_counters
from pyrometer_exporters.node.nic.sysfs import Folder, Folders

# include/uapi/linux/if_arp.h: ARPHRD_ETHER, ARPHRD_INFINIBAND
_LINK_LAYERS = {"1": "Ethernet", "32": "InfiniBand"}


@dataclass(frozen=True)
class Interface:
    """What an interface says. ``carrier_downs`` is None where the kernel doesn't count or the read failed."""

    name: str
    ifindex: int
    admin_up: bool | None
    link_up: bool | None
    rate: int | None
    carrier_downs: int | None
    counts: Counts
    failed: str | None


def read_interface(folders: Folders, path: str, *, with_rate: bool) -> Interface:
    """Read the interface at ``path``; what can't be read is None. Raises ``OSError`` if it can't even be looked at.

    Without ``with_rate`` nothing is read that waits for the kernel's RTNL lock, which took others more than 5 s
    (node_exporter issue 1841): an RDMA port has its own rate and must not wait for its interface's.
    """
    folder = folders.present(path)
    # Counters before the state: a link lost in between then shows in the state now and in the counter the next time,
    # never the other way round, and link_down.py takes it for the one event it is.
    counts, failed = read_counters(folders.get(f"{path}/statistics"), INTERFACE)
    downs = _number(folder, "carrier_down_count")
    if downs is not None:
        counts = (*counts, (CARRIER_DOWNS, downs))
    else:  # kernels before 4.16 count both directions together
        changes = _number(folder, "carrier_changes")
        downs = None if changes is None else changes // 2
    admin_up = _parsed_flags(folder)
    link_up = _link_up(folder)
    # EINVAL while the link is down.
    rate = parse.speed(folder.text("speed") or "") if link_up and with_rate else None
    ifindex = _number(folder, "ifindex") or 0
    return Interface(path.rpartition("/")[2], ifindex, admin_up, link_up, rate, downs, counts, failed)


def read_interface_device(folders: Folders, hardware: Hardware, path: str) -> DeviceReading:
    """An interface without RDMA as a device of its own. Raises ``PartError`` where nothing of it can be read."""
    found = read_interface(folders, path, with_rate=True)
    folder = folders.get(path)
    if found.link_up is None and found.admin_up is None and not found.counts:
        try:
            folder.read("operstate")
        except OSError as error:
            raise PartError(reason_of(error), str(error)) from error
    port = PortReading(
        port="",
        active=found.link_up,
        admin_down=found.admin_up is False,
        rate=found.rate,
        counts=found.counts,
        down_sources={"carrier_down_count": found.carrier_downs},
        ifindex=found.ifindex,
        netdev=found.name,
        link_layer=_LINK_LAYERS.get(folder.text("type") or "", ""),
        failed=(("statistics", found.failed),) if found.failed else (),
    )
    place = hardware.of(folder)
    return DeviceReading(found.name, folder.inode, "", place.pci_bus_id, place.driver, "", (port,))


def _link_up(folder: Folder) -> bool | None:
    """From operstate; drivers that don't keep it say ``unknown``, and then the carrier tells."""
    state = folder.text("operstate")
    if state != "unknown":
        return None if state is None else state == "up"
    carrier = _number(folder, "carrier")  # EINVAL while administratively down
    return None if carrier is None else carrier == 1


def _parsed_flags(folder: Folder) -> bool | None:
    text = folder.text("flags")
    return None if text is None else parse.admin_up(text)


def _number(folder: Folder, name: str) -> int | None:
    text = folder.text(name)
    return None if text is None else parse.number(text)
