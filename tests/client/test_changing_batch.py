"""Settings that change during a run: batch size, sequence length, recomputation, and steps that are ticks."""

from __future__ import annotations

from typing import Any

import pytest
from client_ring_reader import ReadRing

import pyrometer


def start(rings: str, **more: Any) -> Any:
    run = pyrometer.start(run="r", rings=rings, **more)
    assert run.disabled is None, run.disabled
    return run


def test_a_batch_size_holds_from_its_step_on_and_the_tokens_follow(rings: str, seen: ReadRing) -> None:
    run = start(rings, global_batch_size=512, sequence_length=4096, tokens_per_step=512 * 4096, flops_per_token=2.0)
    for batch in (None, None, 640, None, 512):
        with run.step():
            if batch:
                run.record(global_batch_size=batch)
    found = seen(run.path)
    assert [r.global_batch_size for r in found.records] == [None, None, 640, 640, 512]
    assert [r.tokens for r in found.records] == [None, None, 640 * 4096, 640 * 4096, 512 * 4096]
    assert found.header.tokens_extra == 2 * 128 * 4096
    assert found.header.flops_extra == 2 * 2 * 128 * 4096


def test_a_longer_sequence_and_its_flops_per_token(rings: str, seen: ReadRing) -> None:
    run = start(rings, global_batch_size=8, sequence_length=1000, tokens_per_step=8000, flops_per_token=5.0)
    with run.step():
        pass
    run.record(sequence_length=2000, flops_per_token=6.0, recompute="full")
    for _ in range(2):
        with run.step():
            pass
    found = seen(run.path)
    assert [(r.sequence_length, r.recompute, r.tokens, r.flops) for r in found.records] == [
        (None, None, None, None), (2000, "full", 16000, 96000.0), (2000, "full", 16000, 96000.0),
    ]  # fmt: skip
    assert found.header.tokens_extra == 2 * 8000
    assert found.header.flops_extra == 2 * (96000 - 40000)


@pytest.mark.parametrize(
    ("given", "changed", "tokens"),
    [
        ({}, {"global_batch_size": 4, "sequence_length": 10}, 40),
        ({}, {"global_batch_size": 4}, None),
        ({"sequence_length": 10}, {"global_batch_size": 4}, 40),
        ({"tokens_per_step": 100}, {"global_batch_size": 4}, None),
        ({"tokens_per_step": 100, "global_batch_size": 2}, {"global_batch_size": 4}, 200),
        ({"tokens_per_step": 100}, {"tokens_per_step": 70}, 70),
    ],
)
def test_tokens_are_known_where_they_follow_from_what_is_known(
    given: Any, changed: Any, tokens: Any, rings: str, seen: ReadRing
) -> None:
    run = start(rings, **given)
    with run.step():
        run.record(**changed)
    assert seen(run.path).records[0].tokens == tokens


def test_tokens_given_for_a_step_go_before_those_that_follow_from_its_batch_size(rings: str, seen: ReadRing) -> None:
    run = start(rings, global_batch_size=2, tokens_per_step=100, flops_per_token=1.0)
    with run.step():
        run.record(global_batch_size=4, tokens=190)
    with run.step():
        run.record(flops=7.0)
    found = seen(run.path)
    assert [(r.tokens, r.flops) for r in found.records] == [(190, None), (200, 7.0)]
    assert found.header.flops_extra == 190 - 100 + 7 - 100


def test_unknown_flops_stay_unknown_when_the_batch_changes(rings: str, seen: ReadRing) -> None:
    run = start(rings, global_batch_size=2, tokens_per_step=100)
    with run.step():
        run.record(global_batch_size=4)
    assert seen(run.path).records[0].flops is None


def test_a_step_left_by_an_exception_keeps_what_lasts(rings: str, seen: ReadRing) -> None:
    run = start(rings, global_batch_size=2)
    with pytest.raises(KeyError), run.step():  # noqa: PT012  the step is what is left
        run.record(global_batch_size=4, loss=1.0)
        raise KeyError
    with run.step():
        pass
    (record,) = seen(run.path).records
    assert (record.global_batch_size, record.loss) == (4, None)


def test_ticks_are_back_to_back_steps(rings: str, seen: ReadRing) -> None:
    run = start(rings)
    for n in range(4):
        run.tick(loss=float(n))
    found = seen(run.path)
    assert [record.loss for record in found.records] == [1.0, 2.0, 3.0]
    first, second, third = found.records
    assert first.end == second.start
    assert second.end == third.start
    assert found.header.step_total == third.end - first.start
    # Between ticks nobody knows whether a step is under way.
    assert found.header.step_started <= third.end


def test_checkpoints_and_evaluations_tag_their_step(rings: str, seen: ReadRing) -> None:
    run = start(rings)
    with run.step(), run.part("checkpoint"):
        pass
    with run.part("eval"):
        pass
    for _ in range(2):
        with run.step(), run.part("forward"):
            pass
    flags = [record.flags for record in seen(run.path).records]
    assert flags == [pyrometer.ring.TAG_BITS["checkpoint"], pyrometer.ring.TAG_BITS["eval"], 0]
