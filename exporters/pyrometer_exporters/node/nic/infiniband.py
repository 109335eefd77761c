"""An RDMA device (InfiniBand, RoCE, Omni-Path, EFA): ``class/infiniband/<device>/ports/<n>``.

Sample::

    $ cd /sys/class/infiniband/mlx5_0/ports/1; cat state phys_state rate link_layer counters/link_downed
    4: ACTIVE
    5: LinkUp
    400 Gb/sec (4X NDR)
    InfiniBand
    0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyrometer_exporters.framework.worker import PartError, reason_of
from pyrometer_exporters.node.nic import parse
from pyrometer_exporters.node.nic.counters import EXTENDED, NARROW_LINK, NARROW_REST, PMA_LINK, PMA_REST, Counter
from pyrometer_exporters.node.nic.drivers import OTHER, Driver, driver_of
from pyrometer_exporters.node.nic.ethernet import Ethernet, physical_downs, read_ethernet, why_down
from pyrometer_exporters.node.nic.hardware import Place
from pyrometer_exporters.node.nic.link_down import LINK_DOWNED, LINK_DOWNED_MAXIMUM
from pyrometer_exporters.node.nic.netdev import NO_INTERFACE, Interface, InterfaceFiles
from pyrometer_exporters.node.nic.readings import Access, Counters, Counts, DeviceReading, PortReading
from pyrometer_exporters.node.nic.sysfs import Folder
from pyrometer_exporters.node.nic.tiers import COUNTERS, IDENTITY, LINK

ETHERNET = "Ethernet"
# The down ones of enum ib_port_phys_state (include/rdma/ib_verbs.h).
_PHYSICAL_STATES = {1: "sleep", 2: "polling", 3: "disabled", 4: "training", 6: "error_recovery", 7: "test"}


class _Around(NamedTuple):
    """What a port is read with.

    ``only_guid`` is the device's GUID if it has one port only, which is then that port's too, else None.
    """

    pci_driver: str
    driver: Driver
    only_guid: str | None


class _Counted(NamedTuple):
    """Counters that are read together; ``failed`` is the reason where there are some and none could be read."""

    counts: Counts
    failed: str | None


class _Identity(NamedTuple):
    """What doesn't change while a port lives."""

    link_layer: str
    netdev: str
    guid: str
    lifespan: float | None
    pma_link: tuple[Counter, ...]
    pma_rest: tuple[Counter, ...]


class _Link(NamedTuple):
    """What tells of the link, read in this order: counters first, then the state, as in :class:`InterfaceFiles`."""

    counts: Counts
    downs: int | None
    active: bool | None
    state_id: int | None
    physical_state_id: int | None
    counters_failed: str | None
    state_failed: str | None


class _Said(NamedTuple):
    """All that a port's reading is made of."""

    identity: _Identity
    interface: Interface
    link: _Link
    rate: int | None
    ethernet: Ethernet
    rest: _Counted
    extended: _Counted
    hardware: _Counted
    down_sources: dict[str, int | None]
    down_reason: str


class RdmaDevice:
    """The device at ``path``; belongs to the worker that reads it.

    ``net`` is the folder of interfaces, ``candidates`` the interfaces on the same PCI function that may be read.
    """

    def __init__(self, access: Access, path: str, net: str, candidates: Sequence[str]) -> None:
        self._access, self._path, self._net, self._candidates = access, path, net, candidates
        self._name = path.rpartition("/")[2]
        self._place, self._driver = Place("", ""), OTHER
        self._ports_path = f"{path}/ports"
        self._names: frozenset[str] | None = None
        self._ports: list[_Port] = []
        self._group = _Group(access, f"{path}/hw_counters")

    def read(self) -> DeviceReading:
        """A look at it.

        Raises ``PartError`` where nothing of any port could be read, ``OSError`` where the folder couldn't be.
        """
        folder = self._access.folders.present(self._path)
        place = self._access.hardware.of(folder)
        if place is not self._place:
            self._place, self._driver = place, driver_of(place.driver, self._name)
        driver = self._driver
        node_guid, firmware, board = self._access.kept.get(IDENTITY, self._path, lambda: _texts(folder))
        readers = self._ports_of(self._access.folders.get(self._ports_path).names)
        around = _Around(place.driver, driver, node_guid if len(readers) == 1 else None)
        ports = tuple(reader.read(around) for reader in readers)
        if ports and ports[0].failed and not any(reader.answered for reader in readers):
            raise PartError(ports[0].failed[0][1], f"no file of {self._path} can be read")
        counts = self._group.read(driver.of_device).counts if driver.device else ()
        return DeviceReading(
            self._name, folder.inode, node_guid, place, firmware, ports, board, counts, driver.link_is_constant
        )  # fmt: skip

    def _ports_of(self, names: frozenset[str]) -> list[_Port]:
        if names is not self._names:
            numbers = sorted((name for name in names if name.isdecimal()), key=int)
            self._names, self._ports = names, [self._port(number) for number in numbers]
        return self._ports

    def _port(self, number: str) -> _Port:
        return _Port(self._access, self._path, number, self._net, self._candidates)


def _texts(folder: Folder) -> tuple[str, str, str]:
    return parse.guid(folder.text("node_guid") or ""), folder.text("fw_ver") or "", folder.text("board_id") or ""


class _Group:
    """The counters of a folder, every 30 s, each series once."""

    def __init__(self, access: Access, path: str) -> None:
        self._access, self._path = access, path
        self._table: tuple[Counter, ...] = ()
        self._counters = Counters(())
        self._once: tuple[Counts, tuple[Counts, ...], Counts] = (), (), ()

    def read(self, table: tuple[Counter, ...], *taken: Counts) -> _Counted:
        """Those of ``table`` but for those of families ``taken``."""
        return self._access.kept.get(COUNTERS, self._path, lambda: self._read(table, taken))

    def _read(self, table: tuple[Counter, ...], taken: tuple[Counts, ...]) -> _Counted:
        if table is not self._table:
            self._table, self._counters = table, Counters(table)
        try:
            counts, failed = self._counters.read(self._access.folders.get(self._path))
        except OSError as error:
            return _Counted((), reason_of(error))
        if self._once[0] is not counts or self._once[1] != taken:
            self._once = counts, taken, _once(counts, taken)
        return _Counted(self._once[2], failed)


class _Port:
    """A port; ``answered`` tells whether any of its files could be read in the last look."""

    def __init__(self, access: Access, device: str, number: str, net: str, candidates: Sequence[str]) -> None:
        self._access, self._folders, self._kept = access, access.folders, access.kept
        self._number, self._net, self._candidates = number, net, candidates
        self._path = path = f"{device}/ports/{number}"
        # The interfaces' names are in the key: one that was renamed is looked for at once.
        self._key = (path, *candidates)
        self._interface = InterfaceFiles(access, "", rtnl=False)
        self._pma = _Pma(access, path)
        self._rest, self._extended = _Group(access, f"{path}/counters"), _Group(access, f"{path}/counters_ext")
        self._hardware = _Group(access, f"{path}/hw_counters")
        self._said: _Said | None = None
        self._reading = PortReading(number, active=None, admin_down=False, rate=None)
        self.answered = False

    def read(self, around: _Around) -> PortReading:
        """A look at it: the same object as the one before gave where it gave the same."""
        said = self._ask(around)
        if said != self._said:
            self._said, self._reading = said, self._put_together(said)
        return self._reading

    def _ask(self, around: _Around) -> _Said:
        folder = self._folders.get(self._path)
        identity = self._kept.get(IDENTITY, self._key, lambda: self._identity(folder, around.only_guid))
        # Before the port's state: a link lost in between then shows in the state now and in the counter the next time.
        interface = self._read_interface(identity.netdev)
        link = self._kept.get(LINK, self._path, lambda: self._pma.link(folder, identity.pma_link))
        rate = self._rate(folder, link) if link.active else None
        ethernet = read_ethernet(self._access, identity.netdev, around.pci_driver)
        rest = self._rest.read(identity.pma_rest)
        extended = self._extended.read(EXTENDED)
        # A driver that has its traffic in both has it twice: PMA's is everybody's.
        taken = (link.counts, rest.counts) if around.driver.repeats_pma else ()
        hardware = self._hardware.read(around.driver.of_port, *taken)
        sources = self._down_sources(folder, link, interface, identity.link_layer)
        reason = "" if link.active else self._why_down(link, interface)
        return _Said(identity, interface, link, rate, ethernet, rest, extended, hardware, sources, reason)

    def _put_together(self, said: _Said) -> PortReading:
        identity, interface, link, rate, ethernet, rest, extended, hardware, sources, reason = said
        groups = (link.counts, rest.counts, extended.counts, hardware.counts)
        self.answered = any(groups) or link.active is not None
        roce_down = identity.link_layer == ETHERNET and interface.admin_up is False
        return PortReading(
            port=self._number,
            active=link.active,
            admin_down=link.physical_state_id == parse.PHYS_DISABLED or roce_down,
            rate=rate,
            groups=(*groups, *interface.groups, ethernet.counts),
            down_sources=sources,
            ifindex=interface.ifindex,
            netdev=interface.name,
            guid=identity.guid,
            link_layer=identity.link_layer,
            state_id=link.state_id,
            physical_state_id=link.physical_state_id,
            mtu=interface.mtu,
            settings=interface.settings,
            lifespan=identity.lifespan,
            fec_mode=ethernet.fec_mode,
            down_reason=reason,
            failed=_failed(link, rest, hardware),
        )

    def _rate(self, folder: Folder, link: _Link) -> int | None:
        """Of a link that is up: one that is down reports 10 Gb/sec or another constant. It changes with a loss only."""
        key = (self._path, "rate", link.downs or 0)
        return self._kept.get(COUNTERS, key, lambda: parse.rate(folder.text("rate") or "")) or None

    def _identity(self, folder: Folder, only_guid: str | None) -> _Identity:
        link_layer = folder.text("link_layer") or ""
        try:
            lifespan = parse.number(self._folders.get(f"{folder.path}/hw_counters").text("lifespan") or "")
        except OSError:
            lifespan = None
        seconds = None if lifespan is None else lifespan / 1000
        pma = (PMA_LINK, PMA_REST)
        if self._folders.get(f"{folder.path}/counters_ext").names:
            pma = NARROW_LINK, NARROW_REST
        # A RoCE port's GIDs follow its addresses, and a device with one port has that port's GUID.
        guid = parse.gid_guid(folder.text("gids/0") or "") if link_layer != ETHERNET else ""
        netdev = self._interface_name(folder, link_layer, alone=only_guid is not None)
        return _Identity(link_layer, netdev, guid or only_guid or "", seconds, *pma)

    def _down_sources(
        self, folder: Folder, link: _Link, interface: Interface, link_layer: str
    ) -> dict[str, int | None]:
        """The raw counts of link losses. IPoIB that is switched off, as it often is, says nothing about the port."""
        sources: dict[str, int | None] = {}
        if "counters" in folder.names:
            sources[LINK_DOWNED] = link.downs
        if interface.name and (link_layer == ETHERNET or interface.admin_up is not False):
            sources["carrier_down_count"] = interface.carrier_downs
        if sources.get("carrier_down_count") is None and link.downs in (None, LINK_DOWNED_MAXIMUM):
            downs = physical_downs(self._access, interface.name)
            sources.update({} if downs is None else {"link_down_events_phy": downs})
        return sources

    def _why_down(self, link: _Link, interface: Interface) -> str:
        return why_down(self._access, interface.name) or _PHYSICAL_STATES.get(link.physical_state_id or 0, "")

    def _read_interface(self, name: str) -> Interface:
        if name != self._interface.name:
            self._interface = InterfaceFiles(self._access, f"{self._net}/{name}", rtnl=False)
        try:
            return self._interface.read() if name else NO_INTERFACE
        except OSError:
            return NO_INTERFACE  # it went away meanwhile: the port is served without

    def _interface_name(self, folder: Folder, link_layer: str, *, alone: bool) -> str:
        """The port's own: the kernel's word for RoCE, else the interface on the same function with the same index."""
        own = folder.text("gid_attrs/ndevs/0") if link_layer == ETHERNET else None
        if own in self._candidates:
            return own or ""
        # ib0 before its children ib0.8001.
        ordered = sorted(self._candidates, key=lambda name: (len(name), name))
        matching = [name for name in ordered if self._index(name) == int(self._number) - 1]
        return next(iter(matching or (ordered if alone else [])), "")

    def _index(self, name: str) -> int:
        try:
            text = self._folders.get(f"{self._net}/{name}").text("dev_port")
        except OSError:
            return 0
        return (parse.number(text) if text is not None else 0) or 0


class _Pma:
    """What tells of a port's link."""

    def __init__(self, access: Access, path: str) -> None:
        self._folders, self._path = access.folders, f"{path}/counters"
        self._table: tuple[Counter, ...] = ()
        self._counters = Counters(())
        self._said: tuple[object, ...] = ()
        self._link = _Link((), None, None, None, None, None, None)

    def link(self, folder: Folder, table: tuple[Counter, ...]) -> _Link:
        """Read anew; the same object where it says the same."""
        if table is not self._table:
            self._table, self._counters = table, Counters(table)
        try:
            counts, counts_failed = self._counters.read(self._folders.get(self._path))
        except OSError as error:
            counts, counts_failed = (), reason_of(error)
        files = ("state", "phys_state") if "phys_state" in folder.names else ("state",)
        texts, failures = folder.several(files)
        failed = reason_of(failures[0]) if texts[0] is None else None
        said = (counts, counts_failed, texts, failed)
        if said != self._said:
            self._said, self._link = said, _link(counts, counts_failed, texts, failed)
        return self._link


def _link(counts: Counts, counts_failed: str | None, texts: list[bytes | None], failed: str | None) -> _Link:
    """``texts``: of the state and the physical state; ``failed``: why there is none of the state."""
    state, physical, *_ = (*(parse.code((text or b"").decode("utf-8", "replace")) for text in texts), None)
    active = None if state is None else state in (parse.STATE_ACTIVE, parse.STATE_ACTIVE_DEFER)
    downs = next((raw for counter, raw in counts if counter.file == LINK_DOWNED), None)
    state_failed = "unparsable" if state is None and failed is None else failed
    return _Link(counts, downs, active, state, physical, counts_failed, state_failed)


def _failed(link: _Link, rest: _Counted, hardware: _Counted) -> tuple[tuple[str, str], ...]:
    """Groups of files none of which could be read."""
    pma = None if link.counts or rest.counts else link.counters_failed or rest.failed
    failed = (("counters", pma), ("hw_counters", hardware.failed), ("state", link.state_failed))
    return tuple((group, reason) for group, reason in failed if reason)


def _once(counts: Counts, taken: tuple[Counts, ...]) -> Counts:
    """Each series once, should a driver have the same under its old and its new name, and none of those ``taken``."""
    others = {counter.family for group in taken for counter, _ in group}
    series = {(count[0].family, count[0].labels): count for count in counts}
    return tuple(found for (family, _), found in series.items() if family not in others)
