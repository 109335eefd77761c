"""The wiring of a cluster as Prometheus knows it: racks, switches and rails, and which of them a run is on.

A switch that fails takes links of many runs along, and none of a run that has no port at it. Ports are known from
`pyrometer_fabric_port_info`, racks from the `rack` target label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyrometer_alerting.model.alert_names import WIDE
from pyrometer_alerting.model.places import Topology
from pyrometer_kit.prometheus import Prometheus, Series
from pyrometer_kit.promql import matching, quoted

_RACKS = 'group by (cluster, node, rack) (up{node!="", rack!=""})'
_PORTS = "group by (cluster, node, device, port, rail, switch) (pyrometer_fabric_port_info)"


def topology(prometheus: Prometheus, now: float) -> Topology:
    """Read racks, switches and rails.

    Raises:
        PrometheusError: a query failed.
    """
    racks = {
        (series.labels.get("cluster", ""), series.labels.get("node", "")): series.labels.get("rack", "")
        for series in prometheus.instant(_RACKS, now)
    }
    ports = {}
    for series in prometheus.instant(_PORTS, now):
        cluster, node, device, port, switch, rail = (
            series.labels.get(name, "") for name in ("cluster", "node", "device", "port", "switch", "rail")
        )
        ports[cluster, node, device, port] = (switch, rail)
    return Topology(racks, ports)


MANY = 3  # ports that lost their link at one switch: a leaf has 16 and more, and three don't fail by chance
LOST_SECONDS = 900  # in which a link that came back still counts as lost: as far back as a drop's onset is sought


@dataclass(frozen=True)
class Port:
    """One of the run's ports at a switch or rail; `lost` is None if nothing is known about its link."""

    node: str
    device: str
    port: str
    switch: str
    rail: str
    lost: bool | None = None

    @property
    def labels(self) -> dict[str, str]:
        """The labels that an alert on this port would have."""
        return {"node": self.node, "device": self.device, "port": self.port}


def scope_of(labels: Mapping[str, str]) -> tuple[str, str]:
    """Return (`switch`, `leaf-12`) for an alert without a node, (`cluster`, ``) if it names nothing; else (``, ``)."""
    if labels.get("node"):
        return "", ""
    return next(((name, labels[name]) for name in WIDE if labels.get(name)), ("cluster", ""))


def shared_places(
    prometheus: Prometheus, cluster: str, parts: Iterable[Mapping[str, str]], now: float
) -> set[tuple[str, str]]:
    """Return the switches, and the rails where no switch is known, that at least MANY of these ports are at.

    Raises:
        PrometheusError: a query failed.
    """
    wanted = {tuple(labels.get(name, "") for name in ("node", "device", "port")) for labels in parts}
    if len(wanted) < MANY:
        return set()
    where = matching("node", sorted({node for node, _device, _port in wanted}))
    found = prometheus.instant(f"{_PORTS}".replace("_info)", f"_info{{cluster={quoted(cluster)},{where}}})"), now)
    places = [
        ("switch", series.labels["switch"]) if series.labels.get("switch") else ("rail", series.labels.get("rail", ""))
        for series in found
        if _key(series) in wanted
    ]
    return {place for place in places if place[1] and places.count(place) >= MANY}


def ports_at(
    prometheus: Prometheus, cluster: str, nodes: Sequence[str], scopes: Iterable[tuple[str, str]], now: float
) -> tuple[Port, ...]:
    """Return the run's ports at these switches and rails, such as ("switch", "leaf-12"); without any, ask nothing.

    Raises:
        PrometheusError: a query failed.
    """
    scopes = set(scopes)
    ports: dict[tuple[str, ...], Port] = {}
    for kind in ("switch", "rail"):
        if names := sorted(name for scope, name in scopes if scope == kind):
            query = f"pyrometer_fabric_port_info{{cluster={quoted(cluster)},{matching(kind, names)}}}"
            ports |= {_key(series): _port(series) for series in prometheus.instant(query, now)}
    mine = [port for port in ports.values() if port.node in set(nodes)]
    return tuple(_with_links(prometheus, cluster, mine, now)) if mine else ()


def _with_links(prometheus: Prometheus, cluster: str, ports: Sequence[Port], now: float) -> list[Port]:
    where = f"{{cluster={quoted(cluster)},{matching('node', sorted({port.node for port in ports}))}}}"
    downs, up = f"pyrometer_nic_link_down_events_total{where}", f"pyrometer_nic_link_up{where}"
    by = "by (node, device, port)"
    reporting = {_key(series) for series in prometheus.instant(f"group {by} ({downs})", now)}
    # The part after `or` finds a port that went down long ago and stayed down.
    query = f"max {by} (increase({downs}[{LOST_SECONDS}s])) > 0.5 or max {by} ({up}) == 0"
    lost = {_key(series) for series in prometheus.instant(query, now)}
    states = dict.fromkeys(reporting, False) | dict.fromkeys(lost, True)
    return [replace(port, lost=states.get((port.node, port.device, port.port))) for port in ports]


def _key(series: Series) -> tuple[str, ...]:
    return tuple(series.labels.get(name, "") for name in ("node", "device", "port"))


def _port(series: Series) -> Port:
    node, device, port, switch, rail = (
        series.labels.get(name, "") for name in ("node", "device", "port", "switch", "rail")
    )
    return Port(node, device, port, switch, rail)
