"""The client as a training loop uses it, and the ring afterwards."""

from __future__ import annotations

import gc
import types
from pathlib import Path
from typing import Any

import pytest
from client_ring_reader import ReadRing
from hypothesis import given, settings
from hypothesis import strategies as st

import pyrometer
from pyrometer import ring


def start(rings: str, **more: Any) -> Any:
    run = pyrometer.start(run="r", tokens_per_step=100, flops_per_token=10.0, rings=rings, **more)
    assert run.disabled is None, run.disabled
    return run


def test_exports_exactly_the_documented_names() -> None:
    public = {n for n, v in vars(pyrometer).items() if not n.startswith("_") and not isinstance(v, types.ModuleType)}
    assert public == set(pyrometer.__all__)


def test_a_step_becomes_one_record(rings: str, seen: ReadRing) -> None:
    run = start(rings)
    with run.step():
        run.record(loss=2.5, grad_norm=0.5)
    found = seen(run.path)
    (record,) = found.records
    assert found.header.count == 1
    assert (record.sequence, record.loss, record.grad_norm, record.tokens, record.flops) == (0, 2.5, 0.5, None, None)
    assert record.end - record.start == found.header.step_total > 0
    assert found.alive


def test_values_are_of_one_step_only(rings: str, seen: ReadRing) -> None:
    run = start(rings)
    with run.step():
        run.record(loss=1.0, tokens=5)
        run.tag("eval")
    with run.step():
        pass
    last = seen(run.path).records[1]
    assert (last.loss, last.tokens, last.flags) == (None, None, 0)


def test_a_tag_between_steps_marks_the_next(rings: str, seen: ReadRing) -> None:
    run = start(rings)
    run.tag("restart")
    with run.step():
        run.tag("checkpoint")
    assert seen(run.path).records[0].flags == ring.TAG_BITS["restart"] | ring.TAG_BITS["checkpoint"]


def test_parts_are_summed_and_the_present_one_is_told(rings: str, seen: ReadRing) -> None:
    run = start(rings)
    with run.step():
        for _ in range(3):
            with run.part("backward"):
                inside = seen(run.path).header
        between = seen(run.path).header
    after = seen(run.path).header
    backward = ring.PARTS.index("backward")
    assert inside.part == backward + 1
    assert inside.part_started > 0
    assert between.part == 0
    # A collection of garbage that happens to fall into the step is a part of its own.
    collection = ring.PARTS.index("gc")
    assert [n for n, total in enumerate(after.part_totals) if total and n != collection] == [backward]
    assert after.part_totals[backward] < after.step_total


def test_a_step_left_by_an_exception_is_not_counted_and_leaves_nothing_to_the_next(rings: str, seen: ReadRing) -> None:
    run = start(rings)
    with pytest.raises(KeyError), run.step():  # noqa: PT012  the step is what is left
        run.record(loss=9.0, tokens=1, flops=1.0)
        run.tag("checkpoint")
        raise KeyError
    failed = seen(run.path).header
    with run.step():
        pass
    found = seen(run.path)
    assert (failed.count, failed.step_total, failed.step_started) == (0, 0, 0)
    assert (failed.tokens_extra, failed.flops_extra) == (0, 0.0)
    assert (found.records[0].loss, found.records[0].tokens, found.records[0].flags) == (None, None, 0)
    assert (found.header.tokens_extra, found.header.flops_extra) == (0, 0.0)


def test_totals_never_go_back_while_a_small_step_is_under_way(rings: str, seen: ReadRing) -> None:
    run = start(rings)
    with run.step():
        pass
    before = seen(run.path).header
    with run.step():
        run.record(tokens=1)
        during = seen(run.path).header
    after = seen(run.path).header
    totals = [h.count * 100 + h.tokens_extra for h in (before, during, after)]
    assert totals == [100, 100, 101]


def test_overriding_tokens_overrides_flops_with_them_unless_those_are_given(rings: str, seen: ReadRing) -> None:
    run = start(rings)
    with run.step():
        run.record(tokens=50)
    with run.step():
        run.record(flops=7.0)
        run.record(tokens=50)
    header = seen(run.path).header
    assert header.tokens_extra == -100
    assert header.flops_extra == (500 - 1000) + (7 - 1000)


def test_the_ring_turns_over_and_keeps_the_newest(rings: str, seen: ReadRing) -> None:
    run = start(rings)
    step = run.step()
    for _ in range(ring.CAPACITY + 10):
        with step:
            pass
    found = seen(run.path)
    assert found.header.count == ring.CAPACITY + 10
    numbers = [record.sequence for record in found.records]
    # One less than the capacity: the oldest may be under the writer's pen.
    assert numbers == list(range(11, ring.CAPACITY + 10))


def test_closing_ends_the_run_for_good(rings: str, seen: ReadRing) -> None:
    run = start(rings)
    with run.step():
        pass
    path = run.path
    run.close()
    run.close()
    with run.step(), run.part("data"):
        run.record(loss=1.0)
        run.tag("eval")
    found = seen(path)
    assert run.disabled == "closed"
    assert found.header.closed
    assert not found.alive
    assert found.header.count == 1


def test_closing_inside_a_step_leaves_that_step_out(rings: str, seen: ReadRing) -> None:
    run = start(rings)
    with run.step(), run.part("data"):
        run.close()
    assert seen(run.path).header.count == 0


def test_a_run_that_nobody_holds_is_closed_without_the_garbage_collector(rings: str, seen: ReadRing) -> None:
    gc.disable()
    try:
        run = start(rings)
        path = run.path
        del run
    finally:
        gc.enable()
    found = seen(path)
    assert found.header.closed
    assert not found.alive


def test_two_runs_on_one_node_have_rings_of_their_own(rings: str, seen: ReadRing) -> None:
    first, second = start(rings, rank=0), start(rings, rank=1)
    with first.step():
        pass
    assert first.path != second.path
    assert seen(first.path).header.count == 1
    assert seen(second.path).header.count == 0


def test_a_restart_makes_a_new_ring_and_goes_on_counting_steps(rings: str, seen: ReadRing) -> None:
    first = start(rings, attempt=0)
    first.close()
    second = start(rings, attempt=1, first_step=500)
    assert seen(second.path).meta.attempt == "1"
    assert seen(second.path).meta.first_step == 500
    assert len(list(Path(rings).iterdir())) == 2


def test_hostile_names_are_safe_file_names_and_survive_as_texts(rings: str, seen: ReadRing) -> None:
    name = "../../etc/\U0001d400" + "ü" * 60 + '\n"\\\ud800<!channel>'
    run = pyrometer.start(run=name, model="\udcff", rings=rings)
    assert run.disabled is None
    path = Path(run.path)
    assert path.parent == Path(rings)
    assert path.name.isascii()
    assert seen(path).meta.run == name


VALUES = st.one_of(
    st.none(), st.integers(), st.floats(), st.text(max_size=3), st.booleans(), st.just([]), st.just(object())
)
CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.booleans()),
        st.tuples(st.just("tag"), st.sampled_from([*ring.TAGS, "?", 5, None])),
        st.tuples(st.just("part"), st.sampled_from([*ring.PARTS, "?", 5, None])),
        st.tuples(st.just("record"), st.fixed_dictionaries({}, optional=dict.fromkeys(
            ("loss", "grad_norm", "tokens", "flops"), VALUES))),
    ),
    max_size=30,
)  # fmt: skip


class LeftError(Exception):
    pass


def perform(run: pyrometer.Run, calls: Any) -> None:
    """A list of calls; those after a ``step`` and up to the next one happen inside it."""
    inside: list = []
    fails = None
    for name, argument in [*calls, ("step", False)]:
        if name != "step":
            inside.append((name, argument))
            continue
        if fails is None:
            act(run, inside)
        else:
            try:
                with run.step():
                    act(run, inside)
                    if fails:
                        raise LeftError
            except LeftError:
                pass
        inside, fails = [], argument


def act(run: pyrometer.Run, calls: Any) -> None:
    for name, argument in calls:
        if name == "record":
            run.record(**argument)
        elif name == "tag":
            run.tag(argument)
        else:
            with run.part(argument):
                pass


@settings(max_examples=150)
@given(calls=CALLS)
def test_whatever_is_called_the_header_totals_are_the_sum_of_the_records(
    tmp_path_factory: pytest.TempPathFactory, calls: Any
) -> None:
    run = start(str(tmp_path_factory.getbasetemp()))
    try:
        perform(run, calls)
        from pyrometer_exporters.node.train.rings import RingFile

        file = RingFile(run.path)
        header = file.header()
        records = list(file.records(0, header.count))
        file.close()
    finally:
        Path(run.path).unlink()
        run.close()
    assert len(records) == header.count
    assert header.step_total == sum(r.end - r.start for r in records)
    tokens = [100 if r.tokens is None else r.tokens for r in records]
    flops = [t * 10.0 if r.flops is None else r.flops for t, r in zip(tokens, records, strict=True)]
    assert header.count * 100 + header.tokens_extra == sum(tokens)
    assert header.count * 1000 + header.flops_extra == pytest.approx(sum(flops), rel=1e-9)
    assert header.part == 0
    assert header.flops_extra == header.flops_extra
