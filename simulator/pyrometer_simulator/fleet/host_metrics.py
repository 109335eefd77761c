"""Metrics of hosts: node_exporter's, and whether they are fit: our checks, active tests, and maintenance."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyrometer_simulator.fleet.node_metrics import NodeMetrics
from pyrometer_simulator.fleet.plan import Plan
from pyrometer_simulator.fleet.series import Array, Family, counter, family, rows, with_labels

_TIB = 2.0**40
_DAY = 86400
_TESTS = ("nccl", "nvbandwidth")
# Days since the last test of the node that is due for one.
_OVERDUE = 11.0
# The shares of time in which tasks wait, on a healthy node and on the one that runs out of memory.
_PRESSURE = {
    "cpu_waiting": (0.02, 0.05),
    "memory_waiting": (0.0, 0.35),
    "memory_stalled": (0.0, 0.3),
    "io_waiting": (0.01, 0.4),
    "io_stalled": (0.005, 0.35),
}


def host_families(nodes: NodeMetrics) -> Iterator[Family]:
    """Yield node_exporter's; the node whose kernel killed a process is short of memory, its disk nearly full."""
    own = [each.replace(':9935",job="node"', ':9100",job="node_exporter"') for each in nodes.targets]
    alive = nodes.alive
    short = np.array([name == nodes.plan.faults.kernel for name in nodes.plan.names()])

    def either(usual: float, bad: float) -> Array:
        return alive * np.where(short, bad, usual)

    memory = {
        "node_memory_MemTotal_bytes": alive * 2 * _TIB,
        "node_memory_MemAvailable_bytes": either(1.4, 0.06) * _TIB,
    }
    yield from rows(own, memory, slow=True)
    pressure = {f"node_pressure_{kind}_seconds_total": counter(either(*each)) for kind, each in _PRESSURE.items()}
    yield from rows(own, pressure)
    for mount, size, free in (("/", 1.8, 1.1), ("/local", 28.0, 19.0)):
        disk = with_labels(own, device=f"/dev/md{len(mount)}", fstype="ext4", mountpoint=mount)
        sizes = {
            "node_filesystem_size_bytes": alive * size * _TIB,
            "node_filesystem_avail_bytes": either(free, 0.07 * size if mount == "/local" else free) * _TIB,
            "node_filesystem_readonly": alive * 0,
        }
        yield from rows(disk, sizes, slow=True)
    traffic = {
        "node_disk_io_time_seconds_total": counter(either(0.08, 0.97)),
        "node_disk_written_bytes_total": counter(either(2e8, 2.4e9), 0),
        "node_disk_read_bytes_total": counter(either(6e8, 9e8), 0),
    }
    for device in ("nvme0n1", "nvme1n1"):
        yield from rows(with_labels(own, device=device), traffic)


def state_families(nodes: NodeMetrics) -> Iterator[Family]:
    """Yield checks, tests and maintenance of all nodes; a dead node has none."""
    yield from _checks(nodes)
    yield from _tests(nodes)
    out = np.array([float(name == nodes.plan.faults.maintained) for name in nodes.plan.names()])
    labels = with_labels(nodes.targets, source="file")
    yield family("pyrometer_node_maintenance", labels, nodes.alive * out, slow=True)


def _checks(nodes: NodeMetrics) -> Iterator[Family]:
    failed, names, alive = _failed(nodes.plan), nodes.plan.names(), nodes.alive
    for check in ("gpu_count", "gpu_ecc_uncorrected", "hca_links", "nvme"):
        passes = np.array([float((name, check) not in failed) for name in names])
        results = {
            "pyrometer_check_ok": alive * passes,
            "pyrometer_check_last_run_timestamp_seconds": lambda at: alive * (at - at % 300),
        }
        yield from rows(with_labels(nodes.targets, check=check), results, slow=True)
    labels = [
        f'{nodes.targets[names.index(name)]},check="{check}",reason="{reason}",severity="critical"'
        for (name, check), reason in failed.items()
    ]
    yield family("pyrometer_check_reason_info", labels, np.ones(len(labels)), slow=True)


def _failed(plan: Plan) -> dict[tuple[str, str], str]:
    """Return why checks fail, by node and check."""
    faults, failed = plan.faults, {}
    if faults.lost:
        failed[faults.lost[0], "gpu_count"] = "NVML sees 7 of 8 GPUs"
    if faults.memory:
        failed[faults.memory[0], "gpu_ecc_uncorrected"] = f"GPU {faults.memory[1]}: 1 uncorrected error"
    if faults.flapping:
        failed[faults.flapping[0], "hca_links"] = f"mlx5_{faults.flapping[1]} lost its link within the hour"
    return failed


def _tests(nodes: NodeMetrics) -> Iterator[Family]:
    plan, targets, alive = nodes.plan, nodes.targets, nodes.alive
    faults, names = plan.faults, plan.names()
    # A node is tested once a week, each on its own day.
    ages: Array = np.array([_OVERDUE if name == faults.maintained else at % 7 + 0.2 for at, name in enumerate(names)])
    for test in _TESTS:
        unfit = faults.memory[0] if faults.memory and test == "nvbandwidth" else ""
        results = {
            "pyrometer_active_test_ok": alive * np.array([float(name != unfit) for name in names]),
            # The day of a test stays the same while boards are looked at.
            "pyrometer_active_test_timestamp_seconds": (lambda at: alive * (at - at % _DAY - ages * _DAY + 0.1 * _DAY)),
        }
        yield from rows(with_labels(targets, test=test), results, slow=True)
    measured = [f'{each},test="nccl_all_reduce",unit="GB/s"' for each in targets]
    yield family("pyrometer_active_test_result", measured, alive * 471.0, slow=True)
    # Spares are tested in pairs, too, each with the next one.
    spares = [at for at in range(plan.nodes - plan.idle, plan.nodes - 1) if alive[at] == alive[at + 1] == 1]
    pairs = [f'{targets[at]},test="nccl_all_reduce_pair",unit="GB/s",peer="{names[at + 1]}"' for at in spares]
    yield family("pyrometer_active_test_result", pairs, np.full(len(pairs), 386.0), slow=True)
