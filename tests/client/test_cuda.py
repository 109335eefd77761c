"""Waits and values that a GPU delivers late, on a stand-in for torch that refuses to be waited for."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
from client_ring_reader import ReadRing

import pyrometer
from pyrometer import _cuda, ring

WAIT = ring.PARTS.index("wait")


class Gpu:
    """A GPU's stream: events are passed when the test says so; each wait takes ``wait_ms``."""

    def __init__(self) -> None:
        self.passed = 0
        self.made: list[Event] = []
        self.capturing = False
        self.awake = True
        self.wait_ms = 250.0

    def pass_all(self) -> None:
        self.passed = len([e for e in self.made if e.recorded])


class Event:
    gpu: Gpu

    def __init__(self, enable_timing: bool = False) -> None:
        self.recorded = 0
        self.gpu.made.append(self)

    def record(self) -> None:
        self.recorded += 1

    def query(self) -> bool:
        return self.gpu.made.index(self) < self.gpu.passed

    def elapsed_time(self, other: Event) -> float:
        assert self.query()
        assert other.query(), "this would wait for the GPU"
        return self.gpu.wait_ms

    def synchronize(self) -> None:
        raise AssertionError("synchronised")


class Tensor:
    """A number on the GPU."""

    is_cuda = True

    def __init__(self, value: float) -> None:
        self.value = value

    def detach(self) -> Tensor:
        return self

    def reshape(self, _shape: tuple[()]) -> Tensor:
        return self

    def __float__(self) -> float:
        raise AssertionError("this would wait for the GPU")

    item = __float__


class Pinned:
    def __init__(self) -> None:
        self.value = 0.0

    def copy_(self, source: Tensor, non_blocking: bool = False) -> None:
        assert non_blocking
        self.value = source.value

    def __float__(self) -> float:
        return self.value


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()

    def refuse(*_: object) -> None:
        raise AssertionError("synchronised")

    torch = types.ModuleType("torch")
    event = type("Event", (Event,), {"gpu": made})
    torch.__dict__.update(
        cuda=types.SimpleNamespace(
            is_initialized=lambda: made.awake,
            is_current_stream_capturing=lambda: made.capturing,
            get_device_name=lambda: "NVIDIA H100 80GB HBM3",
            Event=event,
            synchronize=refuse,
        ),
        empty=lambda _shape, dtype, pin_memory: Pinned(),
        float32="float32",
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    return made


@pytest.fixture
def run(rings: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PYROMETER_DEVICE_TIMES", "0")  # whose events are counted apart
    made = pyrometer.start("r", rings=rings)
    yield made
    made.close()


def waited(run: pyrometer.Run, seen: ReadRing) -> int:
    return int(seen(run.path).header.part_totals[WAIT])


def step(run: pyrometer.Run, waits: int = 1) -> None:
    with run.step():
        for _ in range(waits):
            with run.part("wait"):
                pass


def test_a_wait_is_the_gpus_own_time_read_at_the_next_step(run: pyrometer.Run, seen: ReadRing, gpu: Gpu) -> None:
    step(run, waits=2)
    gpu.pass_all()
    assert waited(run, seen) == 0
    step(run)
    assert waited(run, seen) == 500_000_000


def test_a_gpu_that_lags_behind_is_asked_again_and_never_waited_for(
    run: pyrometer.Run, seen: ReadRing, gpu: Gpu
) -> None:
    for _ in range(5):
        step(run)
    assert waited(run, seen) == 0
    gpu.pass_all()
    step(run)
    assert waited(run, seen) == 5 * 250_000_000


def test_events_are_used_again(run: pyrometer.Run, gpu: Gpu) -> None:
    for _ in range(100):
        step(run, waits=3)
        gpu.pass_all()
    assert len(gpu.made) <= 12


def test_a_gpu_that_never_answers_costs_bounded_memory(
    run: pyrometer.Run, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cuda, "_MAX_PENDING", 5)
    for _ in range(20):
        step(run)
    assert len(gpu.made) == 10


def test_waits_while_a_graph_is_captured_are_left_out(run: pyrometer.Run, seen: ReadRing, gpu: Gpu) -> None:
    gpu.capturing = True
    step(run)
    assert gpu.made == []


def test_before_cuda_is_awake_the_wait_is_the_cpus(run: pyrometer.Run, seen: ReadRing, gpu: Gpu) -> None:
    gpu.awake = False
    step(run)
    assert 0 < waited(run, seen) < 250_000_000
    assert gpu.made == []


def test_a_failing_gpu_ends_the_measuring_and_nothing_else(
    run: pyrometer.Run, seen: ReadRing, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    step(run)
    monkeypatch.setattr(Event, "query", lambda _self: 1 / 0)
    for _ in range(3):
        step(run)
    assert seen(run.path).header.count == 4
    assert waited(run, seen) == 0


def test_the_part_under_way_is_told_on_a_gpu_too(run: pyrometer.Run, seen: ReadRing, gpu: Gpu) -> None:
    with run.step(), run.part("wait"):
        assert seen(run.path).header.part == WAIT + 1
    assert seen(run.path).header.part == 0


def test_a_loss_on_the_gpu_is_read_one_step_late(run: pyrometer.Run, seen: ReadRing, gpu: Gpu) -> None:
    for value in (1.0, 2.0, 3.0):
        with run.step():
            run.record(loss=Tensor(value), grad_norm=0.5)
        gpu.pass_all()
    assert [(r.loss, r.grad_norm) for r in seen(run.path).records] == [(None, 0.5), (1.0, 0.5), (2.0, 0.5)]


def test_a_loss_that_is_not_there_yet_is_left_out(run: pyrometer.Run, seen: ReadRing, gpu: Gpu) -> None:
    for value in (1.0, 2.0, 3.0):
        with run.step():
            run.record(loss=Tensor(value))
    gpu.pass_all()
    with run.step():
        run.record(loss=Tensor(4.0))
    assert [r.loss for r in seen(run.path).records] == [None, None, None, 1.0]


def test_tokens_on_the_gpu_are_left_out_with_one_line_and_never_waited_for(
    run: pyrometer.Run, seen: ReadRing, gpu: Gpu, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        with run.step():
            run.record(tokens=Tensor(4096), flops=Tensor(1e15), skipped=Tensor(1), tokens_per_step=Tensor(7))  # type: ignore[arg-type]
    ring_content = seen(run.path)
    assert [record.flags & (ring.FLAG_TOKENS | ring.FLAG_FLOPS) for record in ring_content.records] == [0, 0, 0]
    assert not any(record.flags & ring.TAG_BITS["skipped"] for record in ring_content.records)
    said = capfd.readouterr().err.splitlines()
    why = "a tensor on the GPU, is not recorded: the client never waits for the GPU: pass a Python number"
    names = ("skipped", "tokens", "flops", "tokens_per_step")
    assert said == [f"pyrometer: run r: {name}, {why}" for name in names]


@pytest.mark.parametrize("kind", ["xpu", "mps", "xla"])
def test_tokens_on_other_devices_are_left_out_too(run: pyrometer.Run, seen: ReadRing, kind: str) -> None:
    class Other(Tensor):
        is_cuda = False
        device = types.SimpleNamespace(type=kind)

        def __ge__(self, _other: object) -> bool:
            raise AssertionError("this would wait for the device")

        __le__ = __lt__ = __gt__ = __ge__

    with run.step():
        run.record(tokens=Other(4096))  # type: ignore[arg-type]
    assert not seen(run.path).records[0].flags & ring.FLAG_TOKENS


@pytest.mark.parametrize(("ready", "recorded"), [(True, True), (False, False)])
def test_an_array_of_jax_is_read_where_it_is_ready(
    run: pyrometer.Run, seen: ReadRing, ready: bool, recorded: bool
) -> None:
    class Array(int):
        def is_ready(self) -> bool:
            return ready

    with run.step():
        run.record(tokens=Array(4096))
    assert bool(seen(run.path).records[0].flags & ring.FLAG_TOKENS) is recorded


def test_tokens_on_the_cpu_are_read_at_once(run: pyrometer.Run, seen: ReadRing) -> None:
    class OnCpu(int):
        is_cuda = False
        device = types.SimpleNamespace(type="cpu")

    with run.step():
        run.record(tokens=OnCpu(4096))
    assert seen(run.path).records[0].tokens == 4096
