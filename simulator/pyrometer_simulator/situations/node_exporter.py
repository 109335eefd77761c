"""Prometheus' own node exporter, as far as rules use it: what it serves of a simulated node's ports, bonds and disks.

The metrics are those of node_exporter 1.9 (infiniband, netclass, bonding, filesystem).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyrometer_simulator.situations.host import Disk, Host

GIBIBYTE = 1 << 30


def node_exporter_text(node: Host) -> bytes | None:
    """Return what the exporter serves of a node; None while the node is down."""
    if not node.is_up:
        return None
    lines = [
        f"node_boot_time_seconds {node.clock.wall() - node.clock.monotonic():.0f}",
        *_ports(node),
        *_interfaces(node),
        *disk_lines(node.disks),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _ports(node: Host) -> Iterator[str]:
    for nic in node.tree.nics:
        at, port = f'{{device="{nic.name}",port="1"}}', nic.port
        rate = 50e9 if nic.is_up else 1.25e9
        yield f"node_infiniband_link_downed_total{at} {nic.counters.get('link_downed')}"
        yield f"node_infiniband_symbol_error_total{at} {nic.counters.get('symbol_error')}"
        yield f"node_infiniband_state_id{at} {port.code('state')}"
        yield f"node_infiniband_physical_state_id{at} {port.code('phys_state')}"
        yield f"node_infiniband_rate_bytes_per_second{at} {rate:.0f}"


def _interfaces(node: Host) -> Iterator[str]:
    for interface in node.tree.interfaces:
        values, name = interface.values, interface.folder.name
        state = "up" if interface.is_switched_on else "down"
        yield f'node_network_carrier_down_changes_total{{device="{name}"}} {values.get("carrier_down_count")}'
        yield f'node_network_info{{device="{name}",adminstate="{state}"}} 1'
    for name, (active, slaves) in node.bonds.items():
        yield f'node_bonding_active{{master="{name}"}} {active}'
        yield f'node_bonding_slaves{{master="{name}"}} {slaves}'


def disk_lines(disks: Iterable[Disk]) -> Iterator[str]:
    """Yield what the exporter serves of file systems."""
    for number, disk in enumerate(disks):
        at = f'{{device="/dev/nvme{number}n1",fstype="{disk.fstype}",mountpoint="{disk.mountpoint}"}}'
        size = disk.gibibytes * GIBIBYTE
        yield f"node_filesystem_size_bytes{at} {size:.0f}"
        yield f"node_filesystem_avail_bytes{at} {size * disk.free:.0f}"
        yield f"node_filesystem_readonly{at} {int(disk.read_only)}"
