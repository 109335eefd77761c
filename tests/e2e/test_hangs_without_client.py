"""A rank that is stopped, killed or stuck in its data loader, in jobs that nobody instrumented: named in 90 seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyrometer_simulator.torch_jobs.monitoring import Monitoring
from pyrometer_simulator.torch_jobs.without_client import UnreportedJob, monitored, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
FAULTS = ("stopped", "killed", "data")
HEALTHY = UnreportedJob("healthy", "data", 9)


@pytest.fixture(scope="module")
def played() -> Iterator[tuple[dict[str, UnreportedJob], Monitoring]]:
    jobs = {fault: UnreportedJob(fault, fault, number) for number, fault in enumerate(FAULTS)}
    with monitored([*jobs.values(), HEALTHY]) as monitoring:
        for job in jobs.values():
            job.strike()
        until(monitoring, lambda: all(job.named(monitoring) for job in jobs.values()), 120)
        yield jobs, monitoring


@pytest.mark.parametrize("fault", FAULTS)
def test_the_rank_is_named_with_its_node_and_gpu(
    played: tuple[dict[str, UnreportedJob], Monitoring], fault: str
) -> None:
    jobs, monitoring = played
    found = jobs[fault].named(monitoring)
    assert {(one.node, one.rank, one.gpu) for one in found} == {jobs[fault].culprit}
    assert min(found.values()) <= 90


def test_nothing_is_said_of_a_job_that_goes_on(played: tuple[dict[str, UnreportedJob], Monitoring]) -> None:
    assert HEALTHY.named(played[1]) == {}
