"""The demo's job without the client, as a node exporter sees it."""

from __future__ import annotations

from pathlib import Path

from pyrometer_simulator.demo import scenario
from pyrometer_simulator.demo.hardware import Node, node_address
from pyrometer_simulator.demo.nccl_job import NAME, Settings, train
from pyrometer_simulator.demo.orders import Orders
from pyrometer_simulator.demo.programs import nccl_job_settings, run_processes
from pyrometer_simulator.demo.topology import NCCL_NODES, NODES
from pyrometer_simulator.nccl.job import Job, Layout
from pyrometer_simulator.nccl.ras_server import RasJob


def test_it_trains_hangs_and_ends_as_it_is_ordered(tmp_path: Path) -> None:
    job, orders = Job(Layout("demo", tensor=8, data=2)), Orders(tmp_path, NAME)
    steps: list[int] = []

    def pause(_seconds: float) -> None:
        steps.append(job.steps(0))
        if len(steps) == 3:
            orders.give(str(scenario.HUNG_RANK))
        if len(steps) == 8:
            orders.give("end")

    train(job, orders, pause)
    assert steps[:3] == [1, 2, 3]
    assert steps[-3:] == [steps[-1]] * 3
    assert job.has_stopped(scenario.HUNG_RANK)
    assert all(job.waits(rank) for rank in range(16) if rank != scenario.HUNG_RANK)


def test_the_rank_that_hangs_is_on_the_gpu_that_the_channel_must_name() -> None:
    settings = nccl_job_settings("/f", "127.0.0.1", 1)
    assert Settings.parse(settings.json()) == settings
    ras = RasJob(Job(Layout("demo", tensor=8, data=2)), lambda index: node_address(settings.nodes[index]))
    process = ras.processes[scenario.HUNG_RANK]
    assert process.host == node_address(NODES.index(scenario.HUNG_NODE) + 1)
    assert process.gpu == scenario.HUNG_GPU


def test_its_processes_are_those_of_the_schedulers_job(tmp_path: Path) -> None:
    nodes = {name: Node(tmp_path / name, NODES.index(name) + 1, gpus=1) for name in NCCL_NODES}
    run_processes(nodes)
    assert "job_4711" in (tmp_path / "gpu-008/proc/4011/cgroup").read_text()
    assert node_address(8) in (tmp_path / "gpu-008/proc/net/fib_trie").read_text()
