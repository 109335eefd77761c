"""The wiring of the clusters as Prometheus knows it: a node's rack, the switch and rail that a port leads to."""

from __future__ import annotations

from pyrometer_alerting.state.correlation import Topology
from pyrometer_kit.prometheus import Prometheus

_RACKS = 'group by (cluster, node, rack) (up{node!="", rack!=""})'
_PORTS = "group by (cluster, node, device, port, rail, switch) (pyrometer_fabric_port_info)"


def topology(prometheus: Prometheus, now: float) -> Topology:
    """Ask for it. Raises PrometheusError."""
    racks = {
        (series.labels.get("cluster", ""), series.labels["node"]): series.labels["rack"]
        for series in prometheus.instant(_RACKS, now)
    }
    ports = {}
    for series in prometheus.instant(_PORTS, now):
        cluster, node, device, port, switch, rail = (
            series.labels.get(name, "") for name in ("cluster", "node", "device", "port", "switch", "rail")
        )
        ports[cluster, node, device, port] = (switch, rail)
    return Topology(racks, ports)
