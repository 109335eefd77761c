"""Metrics of the hosts under node_exporter's names: memory, pressure, disks, file systems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pyrometer_simulator.fleet.plan import Plan
from pyrometer_simulator.fleet.series import Array, Family, counter, family, nan_where

_TIB = 2.0**40
# The shares of time in which tasks wait, on a healthy node and on the one that runs out of memory.
_PRESSURE = {
    "cpu_waiting": (0.02, 0.05),
    "memory_waiting": (0.0, 0.35),
    "memory_stalled": (0.0, 0.3),
    "io_waiting": (0.01, 0.4),
    "io_stalled": (0.005, 0.35),
}


def host_families(plan: Plan, targets: Sequence[str], dead: int) -> Iterator[Family]:
    """Yield the hosts' metrics; the node whose kernel killed a process is short of memory, and its disk is nearly full.

    Args:
        plan: the cluster.
        targets: the nodes' labels.
        dead: the node that is gone; -1 for none.
    """
    own = [each.replace(':9935",job="node"', ':9100",job="node_exporter"') for each in targets]
    alive = nan_where(np.arange(plan.nodes) == dead, 1.0)
    short = np.array([name == plan.faults.kernel for name in plan.names()])

    def either(usual: float, bad: float) -> Array:
        return alive * np.where(short, bad, usual)

    yield family("node_memory_MemTotal_bytes", own, alive * 2 * _TIB, slow=True)
    yield family("node_memory_MemAvailable_bytes", own, either(1.4, 0.06) * _TIB, slow=True)
    for kind, (usual, bad) in _PRESSURE.items():
        yield family(f"node_pressure_{kind}_seconds_total", own, counter(either(usual, bad)))
    for mount, size, free in (("/", 1.8, 1.1), ("/local", 28.0, 19.0)):
        disk = [f'{each},device="/dev/md{len(mount)}",fstype="ext4",mountpoint="{mount}"' for each in own]
        yield family("node_filesystem_size_bytes", disk, alive * size * _TIB, slow=True)
        left = either(free, 0.07 * size if mount == "/local" else free)
        yield family("node_filesystem_avail_bytes", disk, left * _TIB, slow=True)
        yield family("node_filesystem_readonly", disk, alive * 0, slow=True)
    for device in ("nvme0n1", "nvme1n1"):
        named = [f'{each},device="{device}"' for each in own]
        yield family("node_disk_io_time_seconds_total", named, counter(either(0.08, 0.97)))
        yield family("node_disk_written_bytes_total", named, counter(either(2e8, 2.4e9), 0))
        yield family("node_disk_read_bytes_total", named, counter(either(6e8, 9e8), 0))
