"""Read an RDMA device (InfiniBand, RoCE, Omni-Path, EFA): ``class/infiniband/<device>/ports/<n>``.

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

from pyrometer_exporters.framework.outcome import PartError, reason_of
from pyrometer_exporters.node.nic import parse
from pyrometer_exporters.node.nic.counters import EXTENDED, NARROW_LINK, NARROW_REST, PMA_LINK, PMA_REST, Counter
from pyrometer_exporters.node.nic.drivers import OTHER, Driver, driver_of
from pyrometer_exporters.node.nic.ethernet import physical_downs, read_ethernet, why_down
from pyrometer_exporters.node.nic.link_down import LINK_DOWNED, LINK_DOWNED_MAXIMUM
from pyrometer_exporters.node.nic.netdev import NO_INTERFACE, Interface, InterfaceFiles
from pyrometer_exporters.node.nic.pci_function import PciFunction
from pyrometer_exporters.node.nic.readings import CounterFiles, Counts, DeviceAccess, DeviceReading, PortReading
from pyrometer_exporters.node.nic.sysfs import Folder
from pyrometer_exporters.node.nic.tiers import COUNTERS, IDENTITY, LINK

ETHERNET = "Ethernet"
# In PortReading.groups: the link's counters and the rest of counters/, counters_ext/, hw_counters/.
OWN_GROUPS = 4
# The down states of enum ib_port_phys_state (include/rdma/ib_verbs.h).
_PHYSICAL_STATES = {1: "sleep", 2: "polling", 3: "disabled", 4: "training", 6: "error_recovery", 7: "test"}


class _Identity(NamedTuple):
    """The constant properties of a port, and which of its counters the link tier and the slow tier read."""

    link_layer: str
    netdev: str
    guid: str
    lifespan: float | None
    pma_link: tuple[Counter, ...]
    pma_rest: tuple[Counter, ...]


class _Link(NamedTuple):
    """The state of a link, read in this order: counters first, then the state, as in :class:`InterfaceFiles`."""

    counts: Counts
    counters_failed: str | None
    downs: int | None
    active: bool | None
    state_id: int | None
    physical_state_id: int | None
    state_failed: str | None


class RdmaDevice:
    """The device at ``path``; belongs to the thread that reads it.

    ``net`` is the folder of interfaces, ``candidates`` the interfaces on the same PCI function that may be read.
    """

    def __init__(self, access: DeviceAccess, path: str, net: str, candidates: Sequence[str]) -> None:
        self._access, self._path, self._net, self._candidates = access, path, net, candidates
        self._name = path.rpartition("/")[2]
        self._pci, self._driver = PciFunction("", ""), OTHER
        self._ports_path = f"{path}/ports"
        self._names: frozenset[str] | None = None
        self._ports: list[_Port] = []
        self._counters = _CounterGroup(access, f"{path}/hw_counters")

    def read(self) -> DeviceReading:
        """Read the device and its ports.

        Raises:
            PartError: nothing of any port could be read.
            OSError: the device's folder couldn't be read.
        """
        folder = self._access.folders.present(self._path)
        pci = self._access.pci_functions.of(folder)
        if pci is not self._pci:
            self._pci, self._driver = pci, driver_of(pci.driver, self._name)
        node_guid, firmware, board = self._access.cache.get(IDENTITY, self._path, lambda: _texts(folder))
        readers = self._ports_of(self._access.folders.get(self._ports_path).names)
        only_guid = node_guid if len(readers) == 1 else None
        ports = tuple(reader.read(pci.driver, self._driver, only_guid) for reader in readers)
        if ports and ports[0].failed and not any(map(_answered, ports)):
            raise PartError(ports[0].failed[0][1], f"no file of {self._path} can be read")
        counts = self._counters.read(self._driver.of_device)[0] if self._driver.device else ()
        constant = self._driver.link_is_constant
        return DeviceReading(self._name, folder.inode, node_guid, pci, firmware, ports, board, counts, constant)

    def _ports_of(self, names: frozenset[str]) -> list[_Port]:
        if names is not self._names:
            numbers = sorted((name for name in names if name.isdecimal()), key=int)
            self._names, self._ports = names, [self._port(number) for number in numbers]
        return self._ports

    def _port(self, number: str) -> _Port:
        return _Port(self._access, self._path, number, self._net, self._candidates)


def _answered(port: PortReading) -> bool:
    """Return whether any of the port's own files could be read; the groups after them are its interface's."""
    return port.active is not None or any(port.groups[:OWN_GROUPS])


def _texts(folder: Folder) -> tuple[str, str, str]:
    return parse.guid(folder.text("node_guid") or ""), folder.text("fw_ver") or "", folder.text("board_id") or ""


class _CounterGroup:
    """The counters of a folder, read every 30 s."""

    def __init__(self, access: DeviceAccess, path: str) -> None:
        self._access, self._path, self._files = access, path, CounterFiles()

    def read(self, table: Sequence[Counter], *others: Counts) -> tuple[Counts, str | None]:
        """Return the counters of ``table`` without the families in ``others``, and the reason if all files failed."""
        return self._access.cache.get(COUNTERS, self._path, lambda: self._read(table, others))

    def _read(self, table: Sequence[Counter], others: tuple[Counts, ...]) -> tuple[Counts, str | None]:
        try:
            counts, failed = self._files.read(self._access.folders.get(self._path), table)
        except OSError as error:
            return (), reason_of(error)
        if others:
            families = {counter.family for group in others for counter, _ in group}
            counts = tuple(count for count in counts if count[0].family not in families)
        return counts, failed


class _Port:
    """One port of an RDMA device; belongs to the thread that reads the device."""

    def __init__(self, access: DeviceAccess, device: str, number: str, net: str, candidates: Sequence[str]) -> None:
        self._access, self._folders, self._cache = access, access.folders, access.cache
        self._number, self._net, self._candidates = number, net, candidates
        self._path = path = f"{device}/ports/{number}"
        # The interfaces' names are in the key: a renamed interface is looked up at once.
        self._key = (path, *candidates)
        self._interface = InterfaceFiles(access, "", rtnl=False)
        self._link_state = _LinkState(access, path)
        self._rest, self._extended, self._hardware = (
            _CounterGroup(access, f"{path}/{folder}") for folder in ("counters", "counters_ext", "hw_counters")
        )

    def read(self, pci_driver: str, driver: Driver, only_guid: str | None) -> PortReading:
        """Read the port.

        Args:
            pci_driver: the driver of the PCI function, such as ``mlx5_core``.
            driver: what is read of that driver's devices.
            only_guid: the device's GUID if the device has one port only, whose GUID it is too; else None.

        Raises:
            OSError: the port's folder couldn't be read.
        """
        folder = self._folders.get(self._path)
        identity = self._cache.get(IDENTITY, self._key, lambda: self._identity(folder, only_guid))
        # Before the port's state: a link lost in between shows in the state now and in the counter the next time.
        interface = self._read_interface(identity.netdev)
        link = self._cache.get(LINK, self._path, lambda: self._link_state.read(folder, identity.pma_link))
        ethernet = read_ethernet(self._access, identity.netdev, pci_driver)
        rest, rest_failed = self._rest.read(identity.pma_rest)
        extended, _ = self._extended.read(EXTENDED)
        # A driver that has its traffic in both folders has it twice: the PMA's value is the one all drivers have.
        pma = (link.counts, rest) if driver.repeats_pma else ()
        hardware, hardware_failed = self._hardware.read(driver.of_port, *pma)
        roce_down = identity.link_layer == ETHERNET and interface.admin_up is False
        pma_failed = None if link.counts or rest else link.counters_failed or rest_failed
        failed = (("counters", pma_failed), ("hw_counters", hardware_failed), ("state", link.state_failed))
        return PortReading(
            port=self._number,
            active=link.active,
            admin_down=link.physical_state_id == parse.PHYS_DISABLED or roce_down,
            rate=self._rate(folder, link) if link.active else None,
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
            failed=tuple((group, reason) for group, reason in failed if reason),
            groups=(link.counts, rest, extended, hardware, *interface.groups, ethernet.counts),
        )

    def _rate(self, folder: Folder, link: _Link) -> int | None:
        """Return the rate of a link that is up: a link that is down reports 10 Gb/sec or another constant.

        The rate changes only with a link loss, so the count of losses is part of the cache's key.
        """
        key = (self._path, "rate", link.downs or 0)
        return self._cache.get(COUNTERS, key, lambda: parse.rate(folder.text("rate") or "")) or None

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
        """Return the raw counts of link losses.

        The carrier of an IPoIB interface that is switched off, as it often is, is no evidence about the port.
        """
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
            return NO_INTERFACE  # removed meanwhile: serve the port without its interface

    def _interface_name(self, folder: Folder, link_layer: str, *, alone: bool) -> str:
        """Return the port's interface: the kernel's for RoCE, else the one on the same function with the same index."""
        netdev = folder.text("gid_attrs/ndevs/0") if link_layer == ETHERNET else None
        if netdev in self._candidates:
            return netdev or ""
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


class _LinkState:
    """The state files of a port, and those of its counters that belong to the link tier."""

    def __init__(self, access: DeviceAccess, path: str) -> None:
        self._folders, self._path, self._files = access.folders, f"{path}/counters", CounterFiles()

    def read(self, folder: Folder, table: Sequence[Counter]) -> _Link:
        """Read the counters of ``table``, then the state in the port's ``folder``."""
        try:
            counts, counters_failed = self._files.read(self._folders.get(self._path), table)
        except OSError as error:
            counts, counters_failed = (), reason_of(error)
        downs = next((raw for counter, raw in counts if counter.file == LINK_DOWNED), None)
        files = ("state", "phys_state") if "phys_state" in folder.names else ("state",)
        texts, failures = folder.several(files)
        state, physical, *_ = (*(parse.code((text or b"").decode("utf-8", "replace")) for text in texts), None)
        active = None if state is None else state in (parse.STATE_ACTIVE, parse.STATE_ACTIVE_DEFER)
        failed = reason_of(failures[0]) if texts[0] is None else "unparsable" if state is None else None
        return _Link(counts, counters_failed, downs, active, state, physical, failed)
