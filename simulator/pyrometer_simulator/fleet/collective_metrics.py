"""Metrics of the runs' collectives: what NCCL RAS and NCCL's Inspector say of each job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from pyrometer_simulator.fleet.plan import EPOCH, Plan, Run
from pyrometer_simulator.fleet.series import Array, Family, Values, family

# Communicators of a job: their ranks, their nodes, collective, size class, and bandwidth in B/s where nothing slows it.
_KINDS = (
    ("0xd0", "8", "1", "AllGather", "16-256MiB", 3.2e11),
    ("0xd1", "32", "32", "AllReduce", "256MiB-4GiB", 4.1e10),
)
_SLOW = 0.7


def collective_families(plan: Plan, targets: Sequence[str]) -> Iterator[Family]:
    """Yield what the job's asker, its first node, serves of each run.

    Args:
        plan: the cluster.
        targets: the nodes' labels.
    """
    for run in plan.runs():
        job = f"{targets[run.first]},{run.labels}"
        yield from _ras(plan, run, job, targets)
        yield from _inspector(plan, run, job, targets)


def _ras(plan: Plan, run: Run, job: str, targets: Sequence[str]) -> Iterator[Family]:
    stopped = plan.stopped(run)
    ranks = run.nodes * plan.gpus
    info = f'{job},nccl_version="2.28.9",ranks="{ranks}",nodes="{run.nodes}",format="json"'
    yield family("pyrometer_nccl_job_info", [info], np.ones(1), slow=True)
    yield family("pyrometer_nccl_communicators", [job], np.full(1, 2.0), slow=True)
    yield family("pyrometer_nccl_standstill_seconds", [job], lambda at: np.array([max(0.0, at - stopped)]))
    yield family("pyrometer_nccl_longest_standstill_seconds", [job], np.full(1, 14.0), slow=True)
    lost = plan.rank(run, plan.faults.lost) if math.isfinite(stopped) else None
    for comm, size, _, collective, _, _ in _KINDS:
        own = f'{job},comm="{comm}"'
        missing = float(lost is not None)
        states = [f'{own},state="{state}"' for state in ("ready", "missing")]
        yield family("pyrometer_nccl_communicator_ranks", states, np.array([float(size) - missing, missing]), slow=True)
        bounds = [f'{own},collective="{collective}",bound="{bound}"' for bound in ("min", "max")]
        yield family("pyrometer_nccl_communicator_collectives_total", bounds, _launched(run, stopped))
    if lost is not None and plan.faults.lost:
        node, gpu = plan.names().index(plan.faults.lost[0]), plan.faults.lost[1]
        address = f"10.0.0.{node}"
        behind = f'{job},comm="0xd1",rank="{lost}",host="{address}",gpu="{gpu}",state="dead",certain="yes"'
        yield family("pyrometer_nccl_rank_behind", [behind], lambda at: np.array([1.0 if at > stopped else np.nan]))
        yield family("pyrometer_node_address_info", [f'{targets[node]},address="{address}"'], np.ones(1), slow=True)


def _launched(run: Run, stopped: float) -> Values:
    """Return the launches of the rank with the fewest and with the most: one more where others wait for a rank."""
    return lambda at: np.floor((min(at, stopped) - EPOCH) / run.step) + np.array([0.0, float(at > stopped)])


def _inspector(plan: Plan, run: Run, job: str, targets: Sequence[str]) -> Iterator[Family]:
    slow = plan.slowest(run)
    for _, size, nodes, collective, size_class, best in _KINDS:
        kind = f'comm_ranks="{size}",comm_nodes="{nodes}",collective="{collective}",size_class="{size_class}"'
        labels = [f'{job},{kind},stat="{stat}"' for stat in ("worst", "median", "best")]
        slowed = slow is not None and nodes != "1"
        yield family(
            "pyrometer_nccl_bus_bandwidth_bytes_per_second", labels, _bandwidth(best, slowed, plan.faults.since)
        )
        longer = np.array([0.06, 0.04, 0.01] if slowed else [0.03, 0.028, 0.027])
        own = job if slow is None else _of_node(job, targets[run.first + slow // plan.gpus])
        seconds = [f'{own},{kind},stat="{stat}"' for stat in ("worst", "median", "best")]
        yield family("pyrometer_nccl_collective_seconds", seconds, longer)
        if slow is not None and nodes != "1":
            late = f'{own},{kind},gpu="{slow % plan.gpus}",rank="{slow}"'
            yield family("pyrometer_nccl_rank_collective_seconds", [late], np.full(1, 0.01))
    files = [f'{targets[run.first]},directory="/run/nccl",state="{state}"' for state in ("read", "stale")]
    yield family("pyrometer_nccl_inspector_files", files, np.array([8.0, 0.0]), slow=True)


def _of_node(job: str, target: str) -> str:
    """Return the labels of a job as another of its nodes has them."""
    return job.replace(job.partition(",run=")[0], target)


def _bandwidth(best: float, slowed: bool, since: float) -> Values:
    """Return the bandwidth of the worst, the median and the best rank; a slow rank slows all from ``since`` on."""

    def values(at: float) -> Array:
        share = _SLOW if slowed and at >= since else 1.0
        return best * share * np.array([0.92, 1.0, 1.02]) * (1 + 0.01 * math.sin(at / 60))

    return values
