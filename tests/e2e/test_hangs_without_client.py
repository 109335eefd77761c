"""A rank that is stopped, killed or stuck in its data loader, in jobs that nobody instrumented, is named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyrometer_simulator.demo.processes import DemoError
from pyrometer_simulator.torch_jobs.monitoring import Monitoring
from pyrometer_simulator.torch_jobs.without_client import UnreportedJob, monitored, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
FAULTS = ("stopped", "killed", "data")
HEALTHY = UnreportedJob("healthy", "data", 9)
# The promise is 90 s, which benchmarks/bench_hangs.py holds; this is wall-clock time beside whatever else runs here.
NAMED_WITHIN_SECONDS = 120


@pytest.fixture(scope="module")
def played() -> Iterator[tuple[dict[str, UnreportedJob], Monitoring]]:
    jobs = {fault: UnreportedJob(fault, fault, number) for number, fault in enumerate(FAULTS)}
    with monitored([*jobs.values(), HEALTHY]) as monitoring:
        for job in jobs.values():
            job.strike()
        until(monitoring, lambda: all(job.named(monitoring) for job in jobs.values()), NAMED_WITHIN_SECONDS + 30)
        yield jobs, monitoring


@pytest.mark.parametrize("fault", FAULTS)
def test_the_rank_is_named_with_its_node_and_gpu(
    played: tuple[dict[str, UnreportedJob], Monitoring], fault: str
) -> None:
    jobs, monitoring = played
    found = jobs[fault].named(monitoring)
    assert {(one.node, one.rank, one.gpu) for one in found} == {jobs[fault].culprit}
    assert min(found.values()) <= NAMED_WITHIN_SECONDS


def test_nothing_is_said_of_a_job_that_goes_on(played: tuple[dict[str, UnreportedJob], Monitoring]) -> None:
    assert HEALTHY.named(played[1]) == {}


def test_jobs_that_prometheus_does_not_know_in_time_are_an_error() -> None:
    with (
        pytest.raises(DemoError, match="Prometheus knows 0 of 1 jobs after 0 s"),
        monitored([UnreportedJob("late", "data", 10)], known_within=0),
    ):
        pytest.fail("it went on without them")
