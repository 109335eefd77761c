"""The page about Mimir: its blocks as they are, on a real pair of Prometheis, of which each is killed once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from pyrometer_simulator.failures import kept
from pyrometer_simulator.pair.mimir import TRACKED, Mimir
from pyrometer_simulator.pair.pair import NODES
from pyrometer_simulator.training_nodes import STEPS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

# Mimir waits 30 s before it takes the other replica's samples.
DOWN_SECONDS = 50.0
BACK_SECONDS = 20.0


@pytest.fixture(scope="module")
def mimir(
    tmp_path_factory: pytest.TempPathFactory, start_above: Callable[..., AbstractContextManager[Mimir]]
) -> Iterator[Mimir]:
    with start_above(Mimir, tmp_path_factory.mktemp("mimir") / "scene", DOWN_SECONDS, BACK_SECONDS) as scene:
        yield scene


def test_every_batch_is_there_once_after_each_prometheus_was_away(mimir: Mimir) -> None:
    batches = mimir.pair.batches(mimir.query)
    assert batches.until_complete(time.time(), 90.0) == (0, 0, 0)
    assert min(batches.trained(time.time()).values()) > 600
    assert len(mimir.query.values(STEPS)) == len(NODES)  # one series a run: the replicas' label is gone


def test_the_tracker_alone_would_lose_batches(mimir: Mimir) -> None:
    """Why the page writes batches beside it; if this fails, the page asks for more than is needed."""
    until = time.time() - 30.0
    for run, trained in mimir.pair.batches(mimir.query).trained(until).items():
        tracked = {step for _, step in kept(mimir.query, run, until, TRACKED)}
        assert 100 < trained - len(tracked) < trained


def test_everything_else_is_taken_from_one_replica(mimir: Mimir) -> None:
    """Twelve scrapes a minute, not twice as many."""
    counts = mimir.query.values('count_over_time(pyrometer_gpu_up{job="node"}[1m])')
    assert len(counts) == len(NODES) * 8
    assert max(counts.values()) <= 13


def test_alerts_of_ours_are_told_once_and_mimirs_ruler_tells_the_same(
    mimir: Mimir, tell_alike: Callable[[Mimir], None]
) -> None:
    tell_alike(mimir)
