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

from pyrometer_exporters.framework.worker import PartError, reason_of
from pyrometer_exporters.node.nic import parse
from pyrometer_exporters.node.nic.counters import HARDWARE, PMA
from pyrometer_exporters.node.nic.hardware import Hardware, Place
from pyrometer_exporters.node.nic.netdev import Interface, read_interface
from pyrometer_exporters.node.nic.readings import Counts, DeviceReading, PortReading, read_counters
from pyrometer_exporters.node.nic.sysfs import Folder, Folders

ETHERNET = "Ethernet"


def read_rdma_device(
    folders: Folders, hardware: Hardware, path: str, net: str, candidates: Sequence[str]
) -> DeviceReading:
    """Read the device at ``path``.

    ``net`` is the folder of interfaces, ``candidates`` the interfaces on the same PCI function that may be read.
    Raises ``PartError`` where nothing of any port could be read, ``OSError`` where the folder couldn't be.
    """
    folder = folders.present(path)
    place = hardware.of(folder)
    constant = _link_is_constant(place, folder.path)
    node_guid = parse.guid(folder.text("node_guid") or "")
    names = sorted((name for name in folders.get(f"{path}/ports").names if name.isdecimal()), key=int)
    reader = _PortReader(folders, path, net, candidates, only_port=len(names) == 1, node_guid=node_guid)
    ports = tuple(reader.read(name) for name in names)
    if ports and not reader.answered and ports[0].failed:
        raise PartError(ports[0].failed[0][1], f"no file of {path} can be read")
    firmware = folder.text("fw_ver") or ""
    return DeviceReading(
        path.rpartition("/")[2], folder.inode, node_guid, place.pci_bus_id, place.driver, firmware, ports, constant
    )


def _link_is_constant(place: Place, path: str) -> bool:
    """EFA's driver answers ACTIVE, LinkUp and 100 Gb/sec whatever the link does (efa_verbs.c, efa_query_port)."""
    return place.driver == "efa" or path.rpartition("/")[2].startswith("efa_")


class _PortReader:
    """Reads the ports of one device in one look; ``answered`` tells whether any of its files could be read."""

    def __init__(
        self, folders: Folders, path: str, net: str, candidates: Sequence[str], *, only_port: bool, node_guid: str
    ) -> None:
        self._folders = folders
        self._path = path
        self._net = net
        self._candidates = candidates
        self._only_port = only_port
        self._node_guid = node_guid
        self.answered = False

    def read(self, port: str) -> PortReading:
        path = f"{self._path}/ports/{port}"
        folder = self._folders.get(path)
        failed: list[tuple[str, str]] = []
        # Counters before the state: see read_interface.
        counts = self._counters(path, failed)
        link_layer = folder.text("link_layer") or ""
        interface = self._interface(folder, port, link_layer)
        active = self._active(folder, failed)
        self.answered = self.answered or bool(counts) or active is not None
        phys_state = parse.code(folder.text("phys_state") or "")
        # A port that is down reports 10 Gb/sec or another constant.
        rate = parse.rate(folder.text("rate") or "") if active else None
        roce_down = link_layer == ETHERNET and interface is not None and interface.admin_up is False
        return PortReading(
            port=port,
            active=active,
            admin_down=phys_state == parse.PHYS_DISABLED or roce_down,
            rate=rate or None,
            counts=counts + (interface.counts if interface else ()),
            down_sources=_down_sources(folder, counts, interface),
            ifindex=interface.ifindex if interface else 0,
            netdev=interface.name if interface else "",
            guid=self._guid(folder, link_layer),
            link_layer=link_layer,
            failed=tuple(failed),
        )

    def _counters(self, path: str, failed: list[tuple[str, str]]) -> Counts:
        counts: Counts = ()
        for group, table in (("counters", PMA), ("hw_counters", HARDWARE)):
            try:
                found, reason = read_counters(self._folders.get(f"{path}/{group}", back_off=True), table)
            except OSError as error:
                found, reason = (), reason_of(error)
            counts += found
            if reason:
                failed.append((group, reason))
        return counts

    def _active(self, folder: Folder, failed: list[tuple[str, str]]) -> bool | None:
        try:
            state = parse.code(folder.read("state"))
        except OSError as error:
            failed.append(("state", reason_of(error)))
            return None
        if state is None:
            failed.append(("state", "unparsable"))
            return None
        return state in (parse.STATE_ACTIVE, parse.STATE_ACTIVE_DEFER)

    def _guid(self, folder: Folder, link_layer: str) -> str:
        """The port's. A RoCE port's GIDs follow its addresses, and a device with one port has that port's GUID."""
        found = parse.gid_guid(folder.text("gids/0") or "") if link_layer != ETHERNET else ""
        return found or (self._node_guid if self._only_port else "")

    def _interface(self, folder: Folder, port: str, link_layer: str) -> Interface | None:
        name = self._interface_name(folder, port, link_layer)
        try:
            return read_interface(self._folders, f"{self._net}/{name}", with_rate=False) if name else None
        except OSError:
            return None  # it went away meanwhile: the port is served without

    def _interface_name(self, folder: Folder, port: str, link_layer: str) -> str:
        """The port's own: the kernel's word for RoCE, else the interface on the same function with the same index."""
        own = folder.text("gid_attrs/ndevs/0") if link_layer == ETHERNET else None
        if own in self._candidates:
            return own or ""
        # ib0 before its children ib0.8001.
        ordered = sorted(self._candidates, key=lambda name: (len(name), name))
        matching = [name for name in ordered if self._index(name) == int(port) - 1]
        return next(iter(matching or (ordered if self._only_port else [])), "")

    def _index(self, name: str) -> int:
        text = self._folders.get(f"{self._net}/{name}").text("dev_port")
        return (parse.number(text) if text is not None else 0) or 0


def _down_sources(folder: Folder, counts: Counts, interface: Interface | None) -> dict[str, int | None]:
    """The raw counts of link losses. An interface that is switched off says nothing about the port: IPoIB often is."""
    sources: dict[str, int | None] = {}
    if "counters" in folder.names:
        sources["link_downed"] = next((raw for counter, raw in counts if counter.file == "link_downed"), None)
    if interface is not None and interface.admin_up is not False:
        sources["carrier_down_count"] = interface.carrier_downs
    return sources
