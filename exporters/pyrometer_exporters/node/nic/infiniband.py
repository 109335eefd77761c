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

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.framework.worker import PartError, reason_of
from pyrometer_exporters.node.nic import parse
from pyrometer_exporters.node.nic.counters import EXTENDED, NARROW_LINK, NARROW_REST, PMA_LINK, PMA_REST, Counter
from pyrometer_exporters.node.nic.drivers import Driver, driver_of
from pyrometer_exporters.node.nic.ethernet import physical_downs, read_ethernet, why_down
from pyrometer_exporters.node.nic.link_down import LINK_DOWNED, LINK_DOWNED_MAXIMUM
from pyrometer_exporters.node.nic.netdev import NO_INTERFACE, Interface, read_interface
from pyrometer_exporters.node.nic.readings import Access, Counts, DeviceReading, PortReading, read_counters
from pyrometer_exporters.node.nic.sysfs import Folder
from pyrometer_exporters.node.nic.tiers import COUNTERS, IDENTITY, LINK

ETHERNET = "Ethernet"
# The down ones of enum ib_port_phys_state (include/rdma/ib_verbs.h).
_PHYSICAL_STATES = {1: "sleep", 2: "polling", 3: "disabled", 4: "training", 6: "error_recovery", 7: "test"}
Failed = tuple[tuple[str, str], ...]


class _Around(NamedTuple):
    """What a port is read with.

    ``net`` and ``candidates`` as in :func:`read_rdma_device`; ``only_guid`` is the device's GUID if it has one port
    only, which is then that port's too, else None.
    """

    net: str
    candidates: Sequence[str]
    pci_driver: str
    driver: Driver
    only_guid: str | None


class _Group(NamedTuple):
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
    """What tells of the link, read in this order: counters first, then the state, as in :func:`read_interface`."""

    counts: Counts
    active: bool | None
    state_id: int | None
    physical_state_id: int | None
    counters_failed: str | None
    state_failed: str | None


def read_rdma_device(access: Access, path: str, net: str, candidates: Sequence[str]) -> DeviceReading:
    """Read the device at ``path``.

    ``net`` is the folder of interfaces, ``candidates`` the interfaces on the same PCI function that may be read.
    Raises ``PartError`` where nothing of any port could be read, ``OSError`` where the folder couldn't be.
    """
    folder = access.folders.present(path)
    name = path.rpartition("/")[2]
    place = access.hardware.of(folder)
    driver = driver_of(place.driver, name)
    node_guid, firmware, board = access.kept.get(IDENTITY, path, lambda: _texts(folder))
    numbers = sorted((name for name in access.folders.get(f"{path}/ports").names if name.isdecimal()), key=int)
    only_guid = node_guid if len(numbers) == 1 else None
    reader = _PortReader(access, path, _Around(net, candidates, place.driver, driver, only_guid))
    ports = tuple(reader.read(number) for number in numbers)
    if ports and not reader.answered and ports[0].failed:
        raise PartError(ports[0].failed[0][1], f"no file of {path} can be read")
    counts = reader.group(f"{path}/hw_counters", driver.device.values()).counts
    return DeviceReading(
        name, folder.inode, node_guid, place, firmware, ports, board, counts, driver.link_is_constant
    )  # fmt: skip


def _texts(folder: Folder) -> tuple[str, str, str]:
    return parse.guid(folder.text("node_guid") or ""), folder.text("fw_ver") or "", folder.text("board_id") or ""


class _PortReader:
    """Reads the ports of one device in one look; ``answered`` tells whether any of its files could be read."""

    def __init__(self, access: Access, path: str, around: _Around) -> None:
        self._folders, self._kept = access.folders, access.kept
        self._path = path
        self._net, self._candidates, self._pci_driver, self._driver, self._only_guid = around
        self._access = access
        self.answered = False

    def read(self, port: str) -> PortReading:
        path = f"{self._path}/ports/{port}"
        folder = self._folders.get(path)
        # The interfaces' names are in the key: one that was renamed is looked for at once.
        key = (path, *self._candidates)
        identity = self._kept.get(IDENTITY, key, lambda: self._identity(folder, port))
        # Before the port's state: a link lost in between then shows in the state now and in the counter the next time.
        interface = self._interface(identity.netdev)
        link = self._kept.get(LINK, path, lambda: self._link(folder, identity))
        rate = self._rate(folder, link) if link.active else None
        ethernet = read_ethernet(self._access, identity.netdev, self._pci_driver)
        groups, failed = self._counters(path, link, identity)
        self.answered = self.answered or any(groups) or link.active is not None
        roce_down = identity.link_layer == ETHERNET and interface.admin_up is False
        return PortReading(
            port=port,
            active=link.active,
            admin_down=link.physical_state_id == parse.PHYS_DISABLED or roce_down,
            rate=rate,
            groups=(*groups, *interface.groups, ethernet.counts),
            down_sources=self._down_sources(folder, link, interface, identity.link_layer),
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
            down_reason="" if link.active else self._why_down(link, interface),
            failed=failed,
        )

    def group(self, path: str, table: Iterable[Counter], taken: Collection[Family] = ()) -> _Group:
        """The counters of a folder but for those of families ``taken``, every 30 s."""

        def read() -> _Group:
            try:
                counts, reason = read_counters(self._folders.get(path), table)
            except OSError as error:
                return _Group((), reason_of(error))
            return _Group(_once(counts, taken), reason)

        return self._kept.get(COUNTERS, path, read)

    def _counters(self, path: str, link: _Link, identity: _Identity) -> tuple[tuple[Counts, ...], Failed]:
        rest = self.group(f"{path}/counters", identity.pma_rest)
        extended = self.group(f"{path}/counters_ext", EXTENDED)
        # A driver that has its traffic in both has it twice: PMA's is everybody's.
        repeated = link.counts + rest.counts if self._driver.repeats_pma else ()
        taken = {counter.family for counter, _ in repeated}
        hardware = self.group(f"{path}/hw_counters", self._driver.port.values(), taken)
        pma_failed = None if link.counts or rest.counts else link.counters_failed or rest.failed
        failed = (("counters", pma_failed), ("hw_counters", hardware.failed), ("state", link.state_failed))
        groups = (link.counts, rest.counts, extended.counts, hardware.counts)
        return groups, tuple((group, reason) for group, reason in failed if reason)

    def _link(self, folder: Folder, identity: _Identity) -> _Link:
        try:
            counts, counts_failed = read_counters(self._folders.get(f"{folder.path}/counters"), identity.pma_link)
        except OSError as error:
            counts, counts_failed = (), reason_of(error)
        state, state_failed = self._state(folder)
        physical = parse.code(folder.text("phys_state") or "")
        active = None if state is None else state in (parse.STATE_ACTIVE, parse.STATE_ACTIVE_DEFER)
        return _Link(counts, active, state, physical, counts_failed, state_failed)

    def _rate(self, folder: Folder, link: _Link) -> int | None:
        """Of a link that is up: one that is down reports 10 Gb/sec or another constant. It changes with a loss only."""
        downs = next((raw for counter, raw in link.counts if counter.file == LINK_DOWNED), 0)
        key = (folder.path, "rate", downs)
        return self._kept.get(COUNTERS, key, lambda: parse.rate(folder.text("rate") or "")) or None

    def _state(self, folder: Folder) -> tuple[int | None, str | None]:
        try:
            state = parse.code(folder.read("state"))
        except OSError as error:
            return None, reason_of(error)
        return state, "unparsable" if state is None else None

    def _identity(self, folder: Folder, port: str) -> _Identity:
        link_layer = folder.text("link_layer") or ""
        try:
            lifespan = parse.number(self._folders.get(f"{folder.path}/hw_counters").text("lifespan") or "")
        except OSError:
            lifespan = None
        seconds = None if lifespan is None else lifespan / 1000
        pma = (PMA_LINK, PMA_REST)
        if self._folders.get(f"{folder.path}/counters_ext").names:
            pma = NARROW_LINK, NARROW_REST
        return _Identity(
            link_layer, self._interface_name(folder, port, link_layer), self._guid(folder, link_layer), seconds, *pma
        )

    def _guid(self, folder: Folder, link_layer: str) -> str:
        """The port's. A RoCE port's GIDs follow its addresses, and a device with one port has that port's GUID."""
        found = parse.gid_guid(folder.text("gids/0") or "") if link_layer != ETHERNET else ""
        return found or self._only_guid or ""

    def _down_sources(
        self, folder: Folder, link: _Link, interface: Interface, link_layer: str
    ) -> dict[str, int | None]:
        """The raw counts of link losses. IPoIB that is switched off, as it often is, says nothing about the port."""
        sources: dict[str, int | None] = {}
        if "counters" in folder.names:
            sources[LINK_DOWNED] = next((raw for counter, raw in link.counts if counter.file == LINK_DOWNED), None)
        if interface.name and (link_layer == ETHERNET or interface.admin_up is not False):
            sources["carrier_down_count"] = interface.carrier_downs
        if all(raw is None or (name, raw) == (LINK_DOWNED, LINK_DOWNED_MAXIMUM) for name, raw in sources.items()):
            downs = physical_downs(self._access, interface.name)
            sources.update({} if downs is None else {"link_down_events_phy": downs})
        return sources

    def _why_down(self, link: _Link, interface: Interface) -> str:
        return why_down(self._access, interface.name) or _PHYSICAL_STATES.get(link.physical_state_id or 0, "")

    def _interface(self, name: str) -> Interface:
        try:
            return read_interface(self._access, f"{self._net}/{name}", rtnl=False) if name else NO_INTERFACE
        except OSError:
            return NO_INTERFACE  # it went away meanwhile: the port is served without

    def _interface_name(self, folder: Folder, port: str, link_layer: str) -> str:
        """The port's own: the kernel's word for RoCE, else the interface on the same function with the same index."""
        own = folder.text("gid_attrs/ndevs/0") if link_layer == ETHERNET else None
        if own in self._candidates:
            return own or ""
        # ib0 before its children ib0.8001.
        ordered = sorted(self._candidates, key=lambda name: (len(name), name))
        matching = [name for name in ordered if self._index(name) == int(port) - 1]
        return next(iter(matching or (ordered if self._only_guid is not None else [])), "")

    def _index(self, name: str) -> int:
        try:
            text = self._folders.get(f"{self._net}/{name}").text("dev_port")
        except OSError:
            return 0
        return (parse.number(text) if text is not None else 0) or 0


def _once(counts: Counts, taken: Collection[Family]) -> Counts:
    """Each series once, should a driver have the same under its old and its new name, and none of those ``taken``."""
    series = {(counter.family, counter.labels): (counter, raw) for counter, raw in counts}
    return tuple(found for (family, _), found in series.items() if family not in taken)
