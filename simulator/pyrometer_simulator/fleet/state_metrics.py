"""Metrics of whether nodes are fit: their own checks, active tests, and maintenance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pyrometer_simulator.fleet.plan import Plan
from pyrometer_simulator.fleet.series import Array, Family, family, nan_where

_DAY = 86400
_TESTS = ("nccl", "nvbandwidth")
# Days since the last test of the node that is due for one.
_OVERDUE = 11.0


def state_families(plan: Plan, targets: Sequence[str], dead: int) -> Iterator[Family]:
    """Yield checks, tests and maintenance of all nodes; a dead node has none.

    Args:
        plan: the cluster.
        targets: the nodes' labels.
        dead: the node whose exporter is down; -1 for none.
    """
    alive = nan_where(np.arange(plan.nodes) == dead, 1.0)
    yield from _checks(plan, targets, alive)
    yield from _tests(plan, targets, alive)
    kept = np.array([float(name == plan.faults.maintained) for name in plan.names()])
    yield family("pyrometer_node_maintenance", [f'{each},source="file"' for each in targets], alive * kept, slow=True)


def _checks(plan: Plan, targets: Sequence[str], alive: Array) -> Iterator[Family]:
    failed = _failed(plan)
    for check in ("gpu_count", "gpu_ecc_uncorrected", "hca_links", "nvme"):
        labels = [f'{each},check="{check}"' for each in targets]
        passes = np.array([float((name, check) not in failed) for name in plan.names()])
        yield family("pyrometer_check_ok", labels, alive * passes, slow=True)
        yield family(
            "pyrometer_check_last_run_timestamp_seconds", labels, lambda at: alive * (at - at % 300), slow=True
        )
    labels = [
        f'{targets[plan.names().index(name)]},check="{check}",reason="{reason}"'
        for (name, check), reason in failed.items()
    ]
    yield family("pyrometer_check_reason_info", labels, np.ones(len(labels)), slow=True)


def _failed(plan: Plan) -> dict[tuple[str, str], str]:
    """Return why checks fail, by node and check."""
    faults = plan.faults
    found = {}
    if faults.lost:
        found[faults.lost[0], "gpu_count"] = "NVML sees 7 of 8 GPUs"
    if faults.memory:
        found[faults.memory[0], "gpu_ecc_uncorrected"] = f"GPU {faults.memory[1]}: 1 uncorrected error"
    if faults.flapping:
        found[faults.flapping[0], "hca_links"] = f"mlx5_{faults.flapping[1]} lost its link within the hour"
    return found


def _tests(plan: Plan, targets: Sequence[str], alive: Array) -> Iterator[Family]:
    faults, names = plan.faults, plan.names()
    # A node is tested once a week, each on its own day.
    ages: Array = np.array([_OVERDUE if name == faults.maintained else at % 7 + 0.2 for at, name in enumerate(names)])
    for test in _TESTS:
        labels = [f'{each},test="{test}"' for each in targets]
        unfit = faults.memory[0] if faults.memory and test == "nvbandwidth" else ""
        passed = np.array([float(name != unfit) for name in names])
        yield family("pyrometer_active_test_ok", labels, alive * passed, slow=True)
        if test == "nccl":
            measured = [f'{each},test="nccl_all_reduce",unit="GB/s"' for each in targets]
            yield family("pyrometer_active_test_result", measured, alive * 471.0, slow=True)
            # Spares are tested in pairs, too, each with the next one.
            spares = [at for at in range(plan.nodes - plan.idle, plan.nodes - 1) if alive[at] == alive[at + 1] == 1]
            pairs = [f'{targets[at]},test="nccl_all_reduce_pair",unit="GB/s",peer="{names[at + 1]}"' for at in spares]
            yield family("pyrometer_active_test_result", pairs, np.full(len(pairs), 386.0), slow=True)
        # The day of a test stays the same while boards are looked at.
        yield family(
            "pyrometer_active_test_timestamp_seconds",
            labels,
            lambda at: alive * (at - at % _DAY - ages * _DAY + 0.1 * _DAY),
            slow=True,
        )
