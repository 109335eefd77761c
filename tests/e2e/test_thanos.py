"""The page about Thanos: its blocks as they are, on a real pair of Prometheis, of which each is killed once."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from pyrometer_simulator.pair import history
from pyrometer_simulator.pair.pair import NODES, REPLICAS
from pyrometer_simulator.pair.thanos import Thanos
from pyrometer_simulator.training_nodes import STEPS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

DOWN_SECONDS = 20.0


@pytest.fixture(scope="module")
def thanos(
    tmp_path_factory: pytest.TempPathFactory, start_above: Callable[..., AbstractContextManager[Thanos]]
) -> Iterator[Thanos]:
    with start_above(Thanos, tmp_path_factory.mktemp("thanos") / "scene", DOWN_SECONDS, 0.0) as scene:
        yield scene


def test_every_batch_is_there_once_after_each_prometheus_was_away(thanos: Thanos) -> None:
    batches = thanos.pair.batches(thanos.query)
    assert batches.until_complete(time.time(), 90.0) == (0, 0, 0)
    assert min(batches.trained(time.time()).values()) > 300
    assert len(thanos.query.values(STEPS)) == len(NODES)  # one series a run: the replicas' label is gone


def test_alerts_of_ours_are_told_once_and_a_ruler_above_tells_the_same(
    thanos: Thanos, tell_alike: Callable[[Thanos], None]
) -> None:
    tell_alike(thanos)


def test_a_gap_of_one_replica_is_filled_from_the_bucket_without_losing_a_batch(thanos: Thanos) -> None:
    """Chain keeps all; penalty, Thanos' default, would skip some where it goes from one replica to the other."""
    old = history.histories()
    found, other = thanos.lost_by_deduplication(old, 200.0)
    assert found == [0, 0], {each.run: each.count for each in old}
    assert all(0 < lost < 20 for lost in other), other


def test_no_counter_goes_back_where_the_samples_of_both_replicas_are_put_together(thanos: Thanos) -> None:
    names = thanos.counters()
    assert len(names) > 20
    pair = [thanos.pair.prometheus(name) for name in REPLICAS]
    more = {}
    for name in names:
        asked, at = f'sum(resets({name}{{job="node"}}[2m]))', time.time()
        most = max(each.value(asked, at) or 0.0 for each in pair)
        found = thanos.query.value(asked, at)
        if found is not None and found > most:
            more[name] = (found, most)
    assert more == {}


def test_the_compactor_takes_the_pages_flags(thanos: Thanos) -> None:
    flags = [flag for flag in thanos.command("compact") if flag != "--wait"]
    done = subprocess.run(flags, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(list(thanos.bucket.glob("*/meta.json"))) >= len(REPLICAS)
    # Both replicas' blocks are there, each for itself.
    metas = [json.loads(path.read_text()) for path in thanos.bucket.glob("*/meta.json")]
    assert {meta["thanos"]["labels"]["replica"] for meta in metas} >= set(REPLICAS)
