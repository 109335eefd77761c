from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from pyrometer.follow.log_line import LoggedStep
from pyrometer.follow.recorder import MAX_AGE_SECONDS, Recorder
from pyrometer.follow.step_reader import JobSize, StepInterval

NOW = 1_000_000_000_000_000


class Line(NamedTuple):
    step: int
    end: float
    tokens: float
    flops: float
    tags: frozenset[str]


class FakeRing:
    def __init__(self, meta: Mapping[str, Any]) -> None:
        self.meta = meta
        self.lines: list[Line] = []
        self.closed: bool | None = None

    def append(self, timed: StepInterval, end: int, tokens: float, flops: float, tags: frozenset[str]) -> None:
        self.lines.append(Line(timed.logged.step, (end - NOW) / 1e9, tokens, flops, tags))

    def close(self, *, ended_well: bool) -> None:
        self.closed = ended_well


class Scene:
    def __init__(self, known: Mapping[int, int] | None = None, attempt: int = 0) -> None:
        self.rings: list[FakeRing] = []
        self.recorder = Recorder(
            {"run": "llama", "flops_per_token": 6e9}, JobSize(gpus=8, samples=4, sequence=1000), attempt, self._open,
            (known or {}).get,
        )  # fmt: skip

    def _open(self, meta: Mapping[str, Any]) -> FakeRing:
        self.rings.append(FakeRing(meta))
        return self.rings[-1]


def record(*lines: StepInterval, source: str = "megatron", age: float = 0.0, **of_scene: Any) -> Scene:
    """Record lines that arrive together."""
    scene = Scene(**of_scene)
    scene.recorder.record(lines, NOW, source, age=age)
    return scene


def line(step: int, seconds: float | None = 2.0, steps: int = 1, restarted: bool = False, **said: Any) -> StepInterval:
    return StepInterval(LoggedStep(step, **said), steps, seconds, restarted, frozenset())


def test_lines_that_come_together_ended_one_after_the_other() -> None:
    scene = record(line(1, restarted=True), line(11, 3.0, 10), line(12, 5.0))
    assert [(at.step, at.end) for at in scene.rings[0].lines] == [(1, -35.0), (11, -5.0), (12, 0.0)]


def test_no_line_ends_before_the_one_before_it() -> None:
    scene = record(line(1, restarted=True))
    scene.recorder.record([line(2, 50.0), line(3, 50.0)], NOW + 2_000_000_000, "megatron")
    ends = [at.end for at in scene.rings[0].lines]
    assert ends == sorted(set(ends))
    assert ends[-1] == 2.0


def test_tokens_and_flops_are_those_of_all_the_steps_of_a_line() -> None:
    scene = record(line(1, restarted=True), line(11, steps=10), line(12, samples=8))
    assert [(at.tokens, at.flops) for at in scene.rings[0].lines] == [
        (4000, 24e12), (40_000, 240e12), (8000, 48e12)
    ]  # fmt: skip


def test_each_attempt_has_a_ring_and_a_number() -> None:
    scene = record(line(5, restarted=True), line(6), line(5, restarted=True), source="nemo", attempt=2)
    scene.recorder.close(ended_well=True)
    assert [(of.meta["attempt"], of.meta["source"], of.closed) for of in scene.rings] == [
        (2, "log:nemo", False), (3, "log:nemo", True)
    ]  # fmt: skip


def test_what_an_earlier_follower_wrote_is_not_written_again() -> None:
    scene = record(line(1, restarted=True), line(2), line(3), line(4), known={0: 2})
    assert [at.step for at in scene.rings[0].lines] == [3, 4]
    assert scene.rings[0].lines[0].tags == set()  # the warm-up was theirs


def test_what_prometheus_would_refuse_is_left_out() -> None:
    scene = record(line(1, restarted=True), line(2, MAX_AGE_SECONDS + 1))
    assert [at.step for at in scene.rings[0].lines] == [2]


def test_a_log_that_has_been_silent_ended_when_it_was_last_written() -> None:
    scene = record(line(1, restarted=True), line(2, 10.0), age=600.0)
    assert [(at.step, at.end) for at in scene.rings[0].lines] == [(1, -610.0), (2, -600.0)]


def test_of_yesterdays_log_nothing_is_recorded_and_that_is_counted() -> None:
    scene = record(line(1, restarted=True), line(2), age=86_400.0)
    assert (scene.rings, scene.recorder.too_old) == ([], 2)


def test_what_is_passed_over_still_counts_attempts_and_holds_their_warm_up() -> None:
    scene = Scene()
    scene.recorder.skip([line(1, restarted=True), line(2), line(1, restarted=True)])
    scene.recorder.record([line(2)], NOW, "nanogpt")
    assert [(of.meta["attempt"], [(at.step, at.tags) for at in of.lines]) for of in scene.rings] == [(1, [(2, set())])]
    assert scene.recorder.too_old == 3


def test_a_garbled_count_of_tokens_is_none() -> None:
    scene = record(line(1, restarted=True, samples=1e300), line(2, 1e-12, 10**12))
    assert [at.tokens for at in scene.rings[0].lines] == [0, 0]


def test_a_line_without_time_is_counted_and_left_out() -> None:
    scene = record(line(1, None, restarted=True), line(2), source="huggingface")
    assert [at.step for at in scene.rings[0].lines] == [2]
    assert scene.recorder.untimed == 1


def test_the_first_line_is_warm_up_and_a_batch_that_grows_a_ramp() -> None:
    scene = Scene()
    sizes = (16, 16, 32, 32)
    lines = [line(n, restarted=n == 0, samples=size) for n, size in enumerate(sizes)]
    scene.recorder.record(lines, NOW, "megatron-deepspeed")
    assert [at.tags for at in scene.rings[0].lines] == [{"warmup"}, set(), {"ramp"}, set()]


@pytest.mark.parametrize("ended_well", [True, False])
def test_closing_twice_is_closing_once(ended_well: bool) -> None:
    scene = Scene()
    scene.recorder.close(ended_well=ended_well)
    scene.recorder.record([line(1, restarted=True)], NOW, "megatron")
    scene.recorder.close(ended_well=ended_well)
    scene.recorder.close(ended_well=not ended_well)
    assert scene.rings[0].closed is ended_well
