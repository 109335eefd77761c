"""Join the links in UFM's log to the ports that nodes report: which switch port each host port is connected to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyrometer_exporters.cluster.ufm.event_counts import Link
from pyrometer_exporters.cluster.ufm.link_ends import LinkEnd
from pyrometer_exporters.framework.metrics import Families, Sample
from pyrometer_kit.prometheus import Prometheus

# fmt: off
PORT_INFO = Families().gauge("pyrometer_fabric_port_info",
    "1 for each RDMA port of the cluster: its rail (its place among the node's ports, in the order of the devices' "
    "numbers), and the switch, switch port and cable at its other end, empty until an event names them.",
    "node", "device", "port", "rail", "switch", "switch_port", "cable")
# fmt: on
# A node that is down keeps its place in the fabric: that is when somebody looks for it.
REMEMBERED = "6h"
Place = tuple[str, str]
"""A device's name and a port's number."""
Layout = tuple[Place, ...]
"""The places of a node's ports, in order."""
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class HostPort:
    """A port that a node exporter reports; ``guid`` in plain lower-case hexadecimal, empty where it has none."""

    node: str
    device: str
    port: str
    guid: str


def plain_guid(text: str) -> str:
    """Return a GUID in plain lower-case hexadecimal.

    >>> plain_guid("B8CE:F603:0012:AA00"), plain_guid("0x9c0591030090e000")
    ('b8cef6030012aa00', '9c0591030090e000')
    """
    return text.replace(":", "").lower().removeprefix("0x")


def host_ports(prometheus: Prometheus, at: float) -> list[HostPort]:
    """Return all RDMA ports in ``pyrometer_nic_info``, those of the last hours too.

    Raises:
        PartError: Prometheus failed.
    """
    ports: dict[tuple[str, str, str], HostPort] = {}
    for query in (f"last_over_time(pyrometer_nic_info[{REMEMBERED}])", "pyrometer_nic_info"):
        for series in prometheus.instant(query, at):
            node, device, port = (series.labels.get(name, "") for name in ("node", "device", "port"))
            guid = plain_guid(series.labels.get("guid", ""))
            if node and port:  # without a port it is no RDMA device; present ports come last, and win
                ports[node, device, port] = HostPort(node, device, port, guid)
    return list(ports.values())


def rails(ports: Iterable[HostPort]) -> dict[HostPort, str]:
    """Return the rail of each port: its index among the ports of its node, mlx5_2 before mlx5_10.

    A node that lacks devices which nodes of its kind have numbers its ports as those do, so that a card that is missing
    doesn't shift the rails of those behind it.
    """
    by_node: dict[str, dict[Place, HostPort]] = {}
    for port in ports:
        by_node.setdefault(port.node, {})[port.device, port.port] = port
    layouts = Counter(tuple(sorted(ports_of_node, key=_in_order)) for ports_of_node in by_node.values())
    by_size = sorted(layouts, key=lambda layout: (-layouts[layout], layout))
    rail_of = {}
    for ports_of_node in by_node.values():
        layout = _layout_of(ports_of_node.keys(), layouts, by_size)
        rail_of.update({port: str(layout.index(place)) for place, port in ports_of_node.items()})
    return rail_of


def _layout_of(places: Collection[Place], layouts: Mapping[Layout, int], most_first: Sequence[Layout]) -> Layout:
    """Return the layout of the most nodes that has all these places; a node's own where no more nodes have another."""
    own = tuple(sorted(places, key=_in_order))
    wider = next((layout for layout in most_first if set(places) < set(layout)), own)
    return wider if layouts[wider] > layouts[own] else own


def _in_order(place: Place) -> tuple[object, object]:
    return _natural(place[0]), _natural(place[1])


def fabric_samples(ports: Iterable[HostPort], links: Mapping[LinkEnd, Link]) -> Iterator[Sample]:
    """Return a sample for each port, and for each host end in the log that no node reports."""
    by_end = _Links(links)
    for port, rail in rails(ports).items():
        link = by_end.of(port)
        yield PORT_INFO.sample(1, port.node, port.device, port.port, rail, *link)
    for end, link in by_end.left_over():
        yield PORT_INFO.sample(1, end.node, end.device, end.port or "1", "", *link)


class _Links:
    """The links of the log, by the GUID of the host's port and by its name."""

    def __init__(self, links: Mapping[LinkEnd, Link]) -> None:
        self._by_guid = {end.guid: end for end in links if end.guid}
        self._by_name = {(_short(end.node), end.device, end.port or "1"): end for end in links if end.device}
        self._links = links
        self._taken: set[LinkEnd] = set()

    def of(self, port: HostPort) -> Link:
        name = (_short(port.node), port.device, port.port)
        end = self._by_guid.get(port.guid) if port.guid else None
        end = end or self._by_name.get(name)
        if end is None:
            return Link("", "", "")
        self._taken |= {end, self._by_name.get(name, end)}
        return self._links[end]

    def left_over(self) -> Iterator[tuple[LinkEnd, Link]]:
        reported = set()
        for end in self._by_name.values():
            where = (end.node, end.device, end.port or "1")
            if end not in self._taken and where not in reported:
                reported.add(where)
                yield end, self._links[end]


def _short(host: str) -> str:
    """Return the short name of a host: the fabric has short names, Prometheus often full ones."""
    return host.lower().partition(".")[0]


def _natural(text: str) -> tuple[tuple[str, int], ...]:
    pieces = _DIGITS.split(text)
    return tuple((head, int(digits)) for head, digits in zip(pieces[::2], [*pieces[1::2], "-1"], strict=False))
