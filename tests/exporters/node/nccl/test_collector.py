"""A job is seen through its RAS socket as it is: who progresses, who stands, and which rank the others wait for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyrometer_exporters.node.nccl.collector import ADDRESS_INFO, COLLECTOR, MOST_COMMUNICATORS
from pyrometer_exporters.node.nccl.progress import MOST_SUSPECTS
from pyrometer_simulator.nccl.job import Job, Layout, layouts
from pyrometer_simulator.nccl.ras_server import RasJob, RasServer

DATA_PARALLEL = layouts(32)[0]
BEHIND = "pyrometer_nccl_rank_behind"


def run_on(job: Job, watch: Any, host: Any, steps: int) -> None:
    """Let the job train while the node looks."""
    for _ in range(steps):
        job.run()
        host.look(watch, 30)


def stop_at_work(job: Job, rank: int, steps: int) -> None:
    """Let a rank stop in its forward pass, after so many steps."""
    place = next(at for at, op in enumerate(job.programs[rank]) if op.do == "compute")
    job.stop(rank, steps * len(job.programs[rank]) + place)


def test_a_healthy_job_has_no_rank_of_its_own(host: Any) -> None:
    job = Job(DATA_PARALLEL)
    with RasServer(RasJob(job)) as server:
        watch = host.watch(server.address)
        run_on(job, watch, host, 4)
    found = watch.latest()
    assert host.values(found, BEHIND) == {}
    assert set(host.values(found, "pyrometer_nccl_standstill_seconds").values()) == {0}
    assert set(host.values(found, "pyrometer_nccl_communicator_ranks").values()) == {32}


@pytest.mark.parametrize("version", [(2, 27, 7), (2, 30, 7)])
def test_the_rank_that_others_wait_for_is_named_within_90_seconds(host: Any, version: tuple[int, int, int]) -> None:
    job = Job(DATA_PARALLEL)
    with RasServer(RasJob(job, version=version)) as server:
        watch = host.watch(server.address)
        if version < (2, 28, 7):
            write_ring(host, pid=4000, rank=0)
        run_on(job, watch, host, 3)
        stop_at_work(job, 21, 3)
        job.run(2)
        host.look(watch, 90)
    found = watch.latest()
    (labels,) = host.values(found, BEHIND)
    known_rank = "21" if version >= (2, 28, 7) else ""
    assert labels[3:] == (known_rank, "10.0.0.3", "5", "behind", "yes")
    assert set(host.values(found, "pyrometer_nccl_waiting_ranks").values()) == {31}


def write_ring(host: Any, pid: int, rank: int) -> None:
    """Let a rank of this node report through the client."""
    import os
    import struct

    from pyrometer import ring

    meta = {
        "run": "llama", "attempt": 0, "rank": rank, "local_rank": rank, "world_size": 32, "reporting": rank == 0,
        "first_step": 1, "warmup_steps": 0, "tokens_per_step": None, "flops_per_token": None, "peak_flops": None,
        **dict.fromkeys(
            ("model", "convention", "dtype", "gpu_model", "recompute", "job_id", "gpu", "uuid", "stage", "replica",
             "global_batch_size", "micro_batch_size", "sequence_length"), None,
        ),
    }  # fmt: skip
    host.rings.mkdir(exist_ok=True)
    data = json.dumps(meta).encode()
    import fcntl

    fd = os.open(host.rings / f"{pid}{ring.SUFFIX}", os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(fd, ring.HEADER_BYTES + ring.CAPACITY * 8 * ring.RECORD_SLOTS)
    os.pwrite(fd, struct.pack("<4q", ring.MAGIC, 1, pid, len(data)), 0)
    os.pwrite(fd, data, ring.META_OFFSET)
    fcntl.flock(fd, fcntl.LOCK_EX)
