"""A job is seen through its RAS socket: who progresses, who is stuck, and which rank the others wait for."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.nccl.collector import COLLECTOR, MOST_COMMUNICATORS
from pyrometer_exporters.node.nccl.families import ADDRESS_INFO
from pyrometer_exporters.node.nccl.local_node import LocalNode
from pyrometer_exporters.node.nccl.progress import MOST_SUSPECTS
from pyrometer_kit.http_message import Request
from pyrometer_simulator.nccl.job import Job, Layout, layouts
from pyrometer_simulator.nccl.ras_server import RasJob, RasServer

DATA_PARALLEL = layouts(32)[0]
BEHIND = "pyrometer_nccl_rank_behind"


def run_on(job: Job, watch: Any, host: Any, steps: int, seconds: float = 30.0) -> None:
    """Let the job train while the node looks."""
    for _ in range(steps):
        job.run()
        host.look(watch, seconds)


def stop_at_work(job: Job, rank: int, steps: int) -> None:
    """Let a rank stop in its forward pass, after so many steps."""
    place = next(at for at, op in enumerate(job.programs[rank]) if op.do == "compute")
    job.stop(rank, steps * len(job.programs[rank]) + place)


def test_a_healthy_job_has_no_rank_of_its_own(host: Any) -> None:
    job = Job(DATA_PARALLEL)
    with RasServer(RasJob(job)) as server:
        watch = host.watch(server.address)
        run_on(job, watch, host, 12, seconds=10)
    found = watch.latest()
    assert host.values(found, BEHIND) == {}
    assert set(host.values(found, "pyrometer_nccl_standstill_seconds").values()) == {0}
    assert set(host.values(found, "pyrometer_nccl_communicator_ranks").values()) == {32}


@pytest.mark.parametrize("version", [(2, 24, 3), (2, 27, 7), (2, 28, 7), (2, 30, 7)])
def test_the_rank_that_others_wait_for_is_named_within_90_seconds(host: Any, version: tuple[int, int, int]) -> None:
    job = Job(DATA_PARALLEL)
    with RasServer(RasJob(job, version=version)) as server:
        watch = host.watch(server.address)
        if version < (2, 28, 7):
            host.report_rank(4000, 0)
        run_on(job, watch, host, 4)
        stop_at_work(job, 21, 4)
        job.run(2)
        host.look(watch, 90)
    found = watch.latest()
    (labels,) = host.values(found, BEHIND)
    known_rank = "21" if version >= (2, 28, 7) else ""
    assert labels[3:] == (known_rank, "10.0.0.3", "5", "behind", "yes")
    assert set(host.values(found, "pyrometer_nccl_waiting_ranks").values()) == {31}


def test_gpus_that_begin_to_spin_are_a_reason_to_ask_at_once(host: Any) -> None:
    """As ranks are whose rings stop; a job without a client has none."""
    node, now = LocalNode(host.context), host.clock.now
    for seconds, watts in ((0, 650.0), (15, 180.0), (30, 180.0)):
        assert not node.stalled(now + seconds)
        host.context.gpu_loads.note("gpu-0", 100.0, watts, 700.0, now + seconds)
    assert node.stalled(now + 30)


def test_a_text_without_counts_shows_a_standstill_only_where_ranks_differ_and_stay_so(host: Any) -> None:
    job = Job(DATA_PARALLEL)
    host.report_rank(4000, 0)
    with RasServer(RasJob(job, version=(2, 27, 7))) as server:
        watch = host.watch(server.address)
        run_on(job, watch, host, 20)
        assert host.values(watch.latest(), "pyrometer_nccl_standstill_seconds") == {}
        stop_at_work(job, 21, 20)
        job.run(2)
        host.look(watch, 120)
        found = watch.latest()
    (standstill,) = host.values(found, "pyrometer_nccl_standstill_seconds").values()
    (longest,) = host.values(found, "pyrometer_nccl_longest_standstill_seconds").values()
    assert 60 <= standstill <= 120
    assert longest == 0, "ten minutes without counts are no pause"


def test_the_job_is_joined_to_its_run_and_scheduler(host: Any) -> None:
    job = Job(DATA_PARALLEL)
    host.run_process(4000, "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0")
    host.report_rank(4000, 0, run="llama")
    with RasServer(RasJob(job)) as server:
        watch = host.watch(server.address)
        run_on(job, watch, host, 2)
    (labels,) = host.values(watch.latest(), "pyrometer_nccl_job_info")
    assert labels == ("llama", "4711", "2.30.7", "32", "4", "json")


def test_ranks_have_no_number_where_the_rings_have_others(host: Any) -> None:
    job = Job(DATA_PARALLEL)
    host.report_rank(4000, 1)
    with RasServer(ras := RasJob(job, clock=host.clock.monotonic, wait=host.clock.advance)) as server:
        watch = host.watch(server.address)
        host.look(watch, 60)
        ras.stop(21)
        host.look(watch, 100)
    (labels,) = host.values(watch.latest(), BEHIND)
    assert labels[3:7] == ("", "10.0.0.3", "5", "dead")


def test_another_node_stands_back(host: Any) -> None:
    host.move_to("10.0.0.2")
    job = Job(DATA_PARALLEL)
    with RasServer(ras := RasJob(job, clock=host.clock.monotonic, wait=host.clock.advance)) as server:
        watch = host.watch(server.address, lambda _host, _job: True)
        run_on(job, watch, host, 10)
        assert ras.asked == 1
        assert watch.latest() == []


def test_it_takes_over_when_the_first_one_is_gone_and_stands_back_again(host: Any) -> None:
    host.move_to("10.0.0.2")
    job, alive = Job(DATA_PARALLEL), [True]
    with RasServer(ras := RasJob(job, clock=host.clock.monotonic, wait=host.clock.advance)) as server:
        watch = host.watch(server.address, lambda _host, _job: alive[0])
        run_on(job, watch, host, 4)
        alive[0] = False
        run_on(job, watch, host, 4)
        asked = ras.asked
        assert asked >= 4
        assert host.values(watch.latest(), "pyrometer_nccl_communicators")
        alive[0] = True
        run_on(job, watch, host, 8)
        assert ras.asked == asked
        assert watch.latest() == []


def test_series_are_bounded_whatever_the_job(host: Any) -> None:
    job = Job(Layout("many", tensor=2, data=128))
    with RasServer(ras := RasJob(job, clock=host.clock.monotonic, wait=host.clock.advance)) as server:
        watch = host.watch(server.address)
        run_on(job, watch, host, 3)
        for rank in range(10, 200):
            ras.stop(rank)
        host.look(watch, 90)
    found = watch.latest()
    ranks = host.values(found, "pyrometer_nccl_communicator_ranks")
    assert len({labels[2] for labels in ranks}) == MOST_COMMUNICATORS + 1
    assert sum(ranks.values()) == 256 + 2 * 256
    assert len(host.values(found, BEHIND)) == MOST_SUSPECTS


def test_a_job_whose_ranks_look_for_each_other_has_no_communicator(host: Any) -> None:
    job = Job(DATA_PARALLEL)
    ras = RasJob(job)
    ras.initialising = {name: set(range(32)) for name in job.groups}
    with RasServer(ras) as server:
        watch = host.watch(server.address)
        host.look(watch, 60)
    found = watch.latest()
    assert list(host.values(found, "pyrometer_nccl_communicators").values()) == [0]
    assert host.values(found, "pyrometer_nccl_standstill_seconds") == {}


def test_a_new_job_at_the_port_starts_from_nothing(host: Any) -> None:
    first, second = Job(DATA_PARALLEL), Job(layouts(32)[3])
    with RasServer(RasJob(first)) as server:
        watch = host.watch(server.address)
        run_on(first, watch, host, 2)
        host.look(watch, 120)
    host.look(watch, 60)
    assert watch.latest() == []
    with RasServer(RasJob(second), port=server.address[1]):
        host.look(watch, 60)
    assert set(host.values(watch.latest(), "pyrometer_nccl_longest_standstill_seconds").values()) == {0}


def test_a_pause_that_ended_is_remembered(host: Any) -> None:
    job = Job(DATA_PARALLEL)
    with RasServer(RasJob(job)) as server:
        watch = host.watch(server.address)
        run_on(job, watch, host, 3)
        host.look(watch, 120)
        run_on(job, watch, host, 2)
    (longest,) = host.values(watch.latest(), "pyrometer_nccl_longest_standstill_seconds").values()
    assert 90 <= longest <= 150


def test_a_job_that_stands_still_is_the_golden_one(host: Any, golden: Callable[[str, str], None]) -> None:
    job = Job(DATA_PARALLEL)
    with RasServer(RasJob(job)) as server:
        parser = argparse.ArgumentParser()
        COLLECTOR.add_flags(parser)
        where = "{}:{}".format(*server.address)
        flags = parser.parse_args(["--collector.nccl.address", where])
        collector = COLLECTOR.build(replace(host.context, flags=flags))
        (watch,) = collector.watches
        host.report_rank(4000, 0, run="llama")
        run_on(job, watch, host, 4)
        stop_at_work(job, 21, 4)
        job.run(2)
        host.look(watch, 90)
        text = Renderer().text(item for item in collector.collect(0) if isinstance(item, Sample)).decode()
        collector.close()
    text = re.sub(r"(last_launch_timestamp_seconds\{.*\}) .*", r"\1 TIME", text)
    golden(text.replace(where, "RAS"), "golden/job.txt")


def test_the_collector_serves_addresses_and_what_it_asks(host: Any) -> None:
    job = Job(DATA_PARALLEL)
    with RasServer(RasJob(job)) as server:
        where = "{}:{}".format(*server.address)
        parser = argparse.ArgumentParser()
        COLLECTOR.add_flags(parser)
        flags = parser.parse_args(["--collector.nccl.address", where])
        collector = COLLECTOR.build(replace(host.context, flags=flags))
        host.look(collector.watches[0], 60)
        found = list(collector.collect(0))
        asked = json.loads(collector.endpoints()["/nccl"](Request("GET", "/nccl")).body)
        collector.close()
    assert host.values(found, ADDRESS_INFO.name) == {("10.0.0.1",): 1}
    assert list(host.values(found, "pyrometer_nccl_ras_up").values()) == [1]
    assert len(asked["communicators"]) == 1
