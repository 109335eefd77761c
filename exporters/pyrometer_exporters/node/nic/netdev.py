"""Read a network interface: ``class/net/<name>``.

Sample::

    $ cat /sys/class/net/eth0/{operstate,flags,speed,carrier_down_count,statistics/rx_bytes}
    up
    0x1003
    100000
    1
    54326210
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pyrometer_exporters.framework.outcome import PartError, reason_of
from pyrometer_exporters.node.nic import parse
from pyrometer_exporters.node.nic.counters import CARRIER, CARRIER_DOWNS, INTERFACE
from pyrometer_exporters.node.nic.ethernet import read_ethernet, why_down
from pyrometer_exporters.node.nic.readings import CounterFiles, Counts, DeviceAccess, DeviceReading, PortReading
from pyrometer_exporters.node.nic.sysfs import Folder
from pyrometer_exporters.node.nic.tiers import COUNTERS, IDENTITY, LINK

# include/uapi/linux/if_arp.h: ARPHRD_ETHER, ARPHRD_INFINIBAND
_LINK_LAYERS = {"1": "Ethernet", "32": "InfiniBand"}
# The kernel's name of a port that is a function's end inside the NIC's switch: pf0vf3, c1pf0sf88; an uplink is p0.
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+", re.ASCII)
# The settings that node_exporter reads besides counters; none of these files waits for the RTNL lock.
SETTINGS = (
    "addr_assign_type", "dev_id", "dormant", "flags", "ifindex", "iflink", "link_mode", "name_assign_type",
    "netdev_group", "tx_queue_len", "type",
)  # fmt: skip


class Interface(NamedTuple):
    """One read of an interface.

    ``carrier_downs`` is None where the kernel doesn't count or the read failed; ``groups`` are the counters, by tier.
    """

    name: str
    ifindex: int
    admin_up: bool | None
    link_up: bool | None
    rate: int | None
    carrier_downs: int | None
    groups: tuple[Counts, ...]
    mtu: int | None
    settings: tuple[tuple[str, int], ...]
    failed: str | None


NO_INTERFACE = Interface("", 0, None, None, None, None, (), None, (), None)


class _Link(NamedTuple):
    counts: Counts
    carrier_downs: int | None
    admin_up: bool | None
    link_up: bool | None


class InterfaceFiles:
    """The files of the interface at ``path``; belongs to the thread that reads it.

    Without ``rtnl``, no file is read that waits for the kernel's RTNL lock, which has taken more than 5 s
    (node_exporter issue 1841): an RDMA port has its own rate and must not wait for its interface's.
    """

    def __init__(self, access: DeviceAccess, path: str, *, rtnl: bool) -> None:
        self.name = path.rpartition("/")[2]
        self._access, self._path, self._rtnl = access, path, rtnl
        self._statistics, self._carrier = CounterFiles(), CounterFiles()

    def read(self) -> Interface:
        """Read the interface; a value that can't be read is None. Raises ``OSError`` if its folder can't be read."""
        cache, path = self._access.cache, self._path
        folder = self._access.folders.present(path)
        link = cache.get(LINK, path, lambda: _link(folder, rtnl=self._rtnl))
        counts, failed = cache.get(COUNTERS, path, lambda: self._counters(folder))
        # EINVAL while the link is down.
        speed = cache.get(COUNTERS, (path, "speed"), lambda: _speed(folder)) if link.link_up else None
        ifindex, mtu, settings = cache.get(IDENTITY, (path, folder.inode), lambda: _settings(folder))
        return Interface(
            self.name, ifindex, link.admin_up, link.link_up, speed, link.carrier_downs, (link.counts, counts), mtu,
            settings, failed,
        )  # fmt: skip

    def _counters(self, folder: Folder) -> tuple[Counts, str | None]:
        try:
            counts, failed = self._statistics.read(self._access.folders.get(f"{self._path}/statistics"), INTERFACE)
        except OSError as error:
            counts, failed = (), reason_of(error)
        counts += self._carrier.read(folder, CARRIER)[0]
        return counts, failed


class InterfaceDevice:
    """An interface without RDMA as a device of its own."""

    def __init__(self, access: DeviceAccess, path: str) -> None:
        self._access, self._path = access, path
        self._files = InterfaceFiles(access, path, rtnl=True)

    def read(self) -> DeviceReading:
        """Read the interface.

        Raises:
            PartError: none of its files can be read.
            OSError: it is gone.
        """
        interface = self._files.read()
        folder = self._access.folders.get(self._path)
        if interface.link_up is None and interface.admin_up is None and not any(interface.groups):
            try:
                folder.read("operstate")
            except OSError as error:
                raise PartError(reason_of(error), str(error)) from error
        pci = self._access.pci_functions.of(folder)
        ethernet = read_ethernet(self._access, interface.name, pci.driver)
        port = PortReading(
            port="",
            active=interface.link_up,
            admin_down=interface.admin_up is False,
            rate=interface.rate,
            groups=(*interface.groups, ethernet.counts),
            down_sources={"carrier_down_count": interface.carrier_downs},
            ifindex=interface.ifindex,
            netdev=interface.name,
            link_layer=_LINK_LAYERS.get(str(dict(interface.settings).get("type")), ""),
            mtu=interface.mtu,
            settings=interface.settings,
            fec_mode=ethernet.fec_mode,
            down_reason="" if interface.link_up else _why_down(self._access, interface),
            failed=(("statistics", interface.failed),) if interface.failed else (),
        )
        representor = self._access.cache.get(IDENTITY, (self._path, "representor"), lambda: _is_representor(folder))
        return DeviceReading(interface.name, folder.inode, "", pci, "", (port,), representor=representor)


def _is_representor(folder: Folder) -> bool:
    name = folder.text("phys_port_name") if "phys_port_name" in folder.names else None
    return name is not None and _REPRESENTOR.fullmatch(name) is not None


def _why_down(access: DeviceAccess, interface: Interface) -> str:
    return "admin" if interface.admin_up is False else why_down(access, interface.name) or "no_carrier"


def _link(folder: Folder, *, rtnl: bool) -> _Link:
    # Counters before the state: a link lost in between shows in the state now and in the counter the next time, never
    # the other way round, so that link_down.py counts it as one event.
    downs = _number(folder, "carrier_down_count")
    counts: Counts = () if downs is None else ((CARRIER_DOWNS, downs),)
    if downs is None:  # kernels before 4.16 count both directions together
        changes = _number(folder, "carrier_changes")
        downs = None if changes is None else changes // 2
    flags = folder.text("flags")
    admin_up = None if flags is None else parse.admin_up(flags)
    # An RDMA port has a state of its own.
    link_up = _link_up(folder) if rtnl else None
    return _Link(counts, downs, admin_up, link_up)


def _link_up(folder: Folder) -> bool | None:
    """Read operstate; drivers that don't maintain it report ``unknown``, and then the carrier decides."""
    state = folder.text("operstate")
    if state != "unknown":
        return None if state is None else state == "up"
    carrier = _number(folder, "carrier")  # EINVAL while administratively down
    return None if carrier is None else carrier == 1


def _speed(folder: Folder) -> int | None:
    return parse.speed(folder.text("speed") or "")


def _settings(folder: Folder) -> tuple[int, int | None, tuple[tuple[str, int], ...]]:
    """Read the interface's index, its MTU and the other settings that could be read."""
    values = ((name, parse.setting(folder.text(name) or "")) for name in SETTINGS)
    settings = tuple((name, value) for name, value in values if value is not None)
    return _number(folder, "ifindex") or 0, _number(folder, "mtu"), settings


def _number(folder: Folder, name: str) -> int | None:
    text = folder.text(name)
    return None if text is None else parse.number(text)
