"""Rules on what NCCL's Inspector wrote on four nodes of eight GPUs, read by the collector itself.

Tensor parallel within a node; each GPU's data-parallel group has that GPU of all nodes, whose ports are a rail.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.nccl.inspector import Inspector

RULES = Path(__file__).resolve().parents[2] / "alert_rules/nccl_inspector.rules.yaml"
NOW, NODES, GPUS = 1_790_000_000.0, 4, 8
# Bytes per second in GB, and microseconds, of a rank's collectives within a node and between nodes.
Promtool = Callable[..., None]
Timing = tuple[float, float]
Timings = Callable[[int, int], tuple[Timing, Timing]]
WITHIN, BETWEEN = (400.0, 700.0), (350.0, 9000.0)


class Ranks:
    """The processes of a node: its GPUs' ranks."""

    def run_of(self, pid: int, uid: int | None = None) -> tuple[str, str, str]:
        return "llama", "77", ""

    def job_id(self, pids: Iterable[int], uid: int | None = None) -> str:
        return "77"

    def jobs_by_user(self) -> dict[int, set[str]] | None:
        return None


def files_of(folder: Path, node: int, timings: Timings) -> None:
    for gpu in range(GPUS):
        text = ""
        for (bandwidth, microseconds), ranks, nodes in zip(timings(node, gpu), (GPUS, NODES), (1, NODES), strict=True):
            labels = (
                f'version="v5.1",slurm_job_id="77",node="gpu-{node}",gpu="GPU{gpu}",comm_name="g",n_nodes="{nodes}",'
                f'nranks="{ranks}",collective="AllReduce",message_size="134-135MB",algo_proto="RING_SIMPLE"'
            )
            text += f"nccl_bus_bandwidth_gbs{{{labels}}} {bandwidth}\n"
            text += f"nccl_collective_exec_time_microseconds{{{labels}}} {microseconds}\n"
        path = folder / f"nccl_inspector_metrics_GPU-{gpu:08x}.prom"
        path.write_text(text)
        os.utime(path, (NOW, NOW))


def series_of(node: int, samples: Iterable[object]) -> list[dict[str, str]]:
    found = []
    for one in samples:
        if isinstance(one, Sample):
            labels = dict(zip(one.family.labels, one.labels, strict=True)) | {"cluster": "c1", "node": f"gpu-{node}"}
            found.append({"series": one.family.name + selector(labels), "values": f"{one.value:g}x60"})
    return found


def selector(labels: dict[str, str]) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items() if value) + "}"


def fires(promtool: Promtool, folder: Path, timings: Timings, **expected: list[dict[str, str]]) -> None:
    """Check which alerts fire after 25 minutes, by the labels that name somebody."""
    series = []
    for node in range(NODES):
        (folder / str(node)).mkdir()
        files_of(folder / str(node), node, timings)
        series += series_of(node, Inspector([folder / str(node)], Ranks()).read(NOW))
    whom = [
        {
            "expr": f'count by (node, gpu) (ALERTS{{alertname="{name}",alertstate="firing"}})', "eval_time": "25m",
            "exp_samples": [{"labels": selector(one), "value": 1} for one in named],
        }
        for name, named in expected.items()
    ]  # fmt: skip
    tests: list[dict[str, Any]] = [{"interval": "30s", "input_series": series, "promql_expr_test": whom}]
    path = folder / "of_files.test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": tests}))
    promtool("test", "rules", path)


def test_ranks_that_are_alike_are_no_news(promtool: Promtool, tmp_path: Path) -> None:
    def alike(node: int, gpu: int) -> tuple[Timing, Timing]:
        return (400.0 + gpu, 700.0), (350.0 - node, 9000.0 + 10 * gpu)

    fires(promtool, tmp_path, alike, NcclStraggler=[], NcclBandwidthDropped=[])


@pytest.mark.parametrize("late_after", [False, True])
def test_a_rail_that_carries_less_is_named(promtool: Promtool, tmp_path: Path, late_after: bool) -> None:
    """Its ranks end later, and may come late to the collectives within the node that follow."""

    def slow_rail(_node: int, gpu: int) -> tuple[Timing, Timing]:
        within = ((100.0, 20_000.0) if gpu != 5 else (400.0, 700.0)) if late_after else WITHIN
        return within, (140.0, 22_500.0) if gpu == 5 else BETWEEN

    fires(promtool, tmp_path, slow_rail, NcclStraggler=[], NcclBandwidthDropped=[{"gpu": "5"}])


def test_two_late_ranks_of_different_groups_are_named_rather_than_a_rail(promtool: Promtool, tmp_path: Path) -> None:
    """All ranks of their nodes are late between nodes, and all of the other nodes wait there."""

    def two_late(node: int, gpu: int) -> tuple[Timing, Timing]:
        late = {0: 3, 2: 6}.get(node)
        within = WITHIN if late in (None, gpu) else (20.0, 40_000.0)
        return within, BETWEEN if late is not None else (80.0, 45_000.0)

    named = [{"node": "gpu-0", "gpu": "3"}, {"node": "gpu-2", "gpu": "6"}]
    fires(promtool, tmp_path, two_late, NcclStraggler=named, NcclBandwidthDropped=[])


def test_a_node_that_is_late_as_a_whole_is_named(promtool: Promtool, tmp_path: Path) -> None:
    def late_node(node: int, _gpu: int) -> tuple[Timing, Timing]:
        return WITHIN, BETWEEN if node == 1 else (80.0, 45_000.0)

    fires(promtool, tmp_path, late_node, NcclStraggler=[{"node": "gpu-1"}], NcclBandwidthDropped=[])
