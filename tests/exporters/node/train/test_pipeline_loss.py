"""The loss of a pipeline: the last stage has it, and rank 0, whose batches are served, is of the first."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_kit.http_message import Request

Rings = Callable[..., Any]


def served(collector: TrainCollector, name: str = "loss") -> list[float]:
    """Return the values of a batch series after a look at the rings, of which there is one a second."""
    assert list(collector.collect(time.monotonic() + 5))
    reply = collector.batches(Request("GET", "/batches", query={"consumer": "a"}, peer="10.0.0.1"))
    assert reply.delivered is not None
    reply.delivered(True)  # noqa: FBT003  the signature is the server's
    families = text_string_to_metric_families(reply.body.decode())
    return [s.value for each in families for s in each.samples if s.name == f"pyrometer_train_batch_{name}"]


def step(made: Any, number: int, loss: float | None = None) -> None:
    made.step(1000 + number, 1000.9 + number, **({} if loss is None else {"loss": loss}))


def test_the_last_stage_on_another_node_serves_its_losses_and_nothing_else(
    collector: TrainCollector, rings: Rings
) -> None:
    late = rings("r24", rank=24, stage="3", reporting=False)
    for number in range(3):
        step(late, number, 2.0 - number)
    assert served(collector) == [2, 1, 0]
    step(late, 3, float("nan"))
    last, steps = served(collector), served(collector, "step")
    assert last[-1] != last[-1]
    assert steps == []


def test_one_rank_of_a_stage_is_enough(collector: TrainCollector, rings: Rings) -> None:
    for rank in (31, 24, 27):
        step(rings(f"r{rank}", rank=rank, stage="3", reporting=False), 0, float(rank))
    assert served(collector) == [24]


def test_replicas_add_no_series(collector: TrainCollector, rings: Rings) -> None:
    step(rings("r56", rank=56, stage="3", replica="1", reporting=False), 0, 1.0)
    assert served(collector) == []


def test_ranks_without_a_pipeline_add_no_series(collector: TrainCollector, rings: Rings) -> None:
    for rank in (8, 9):
        step(rings(f"r{rank}", rank=rank, stage="", replica="", reporting=False), 0, 1.0)
    assert served(collector) == []


@pytest.mark.parametrize("stage", ["", "7"])
def test_the_loss_of_rank_0_goes_before(collector: TrainCollector, rings: Rings, stage: str) -> None:
    step(rings("r0", stage=stage and "0"), 0, 1.0)
    step(rings("r7", rank=7, stage=stage, replica="", reporting=False), 0, 9.0)
    assert served(collector) == [1]


def test_without_stages_rank_0_of_this_node_has_to_have_none(collector: TrainCollector, rings: Rings) -> None:
    first, last = rings("r0", stage=""), rings("r7", rank=7, stage="", replica="", reporting=False)
    for number in range(2):
        step(first, number)
        step(last, number, 5.0 + number)
    assert served(collector) == [5, 6]
    step(first, 2, 1.5)
    step(last, 2, 7.0)
    assert served(collector) == [1.5], "two series of the same name would be refused"


def test_a_restart_of_the_exporter_serves_no_loss_as_new(context: Context, rings: Rings) -> None:
    late = rings("r24", rank=24, stage="3", reporting=False)
    step(late, 0, 3.0)
    for expected in ([3.0], [2.0]):
        collector = TrainCollector(context)
        assert served(collector) == expected
        collector.close()
        step(late, 1, 2.0)


def test_another_rank_goes_on_where_the_first_has_ended(collector: TrainCollector, rings: Rings) -> None:
    one, other = (rings(f"r{rank}", rank=rank, stage="3", reporting=False) for rank in (24, 25))
    for number in range(3):
        step(one, number, 1.0)
        step(other, number, 2.0)
    assert served(collector) == [1, 1, 1]
    one.crash()
    served(collector)
    step(other, 3, 2.5)
    assert served(collector) == [2.5]
