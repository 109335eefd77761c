"""Waits without a line of code, on a stand-in for the calls of PyTorch that they are detected by."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest
from client_ring_reader import ReadRing

import pyrometer
from pyrometer import ring


class Engine:
    """PyTorch's engine: calls hooks with the first gradient, and final callbacks in the order they were queued."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def queue_callback(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)


class Loss:
    """A tensor at the end of a graph."""

    grad_fn = "MeanBackward0"

    def __init__(self, graph: Callable[[], None] = lambda: None) -> None:
        self.graph = graph
        self.hooks: list[Callable[[object], None]] = []

    def register_hook(self, hook: Callable[[object], None]) -> Any:
        self.hooks.append(hook)
        return types.SimpleNamespace(remove=lambda: self.hooks.remove(hook))


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stand in for the parts of torch that the detection of waits patches."""
    engine = Engine()

    def backward(tensors: Any, grad_tensors: Any = None) -> str:
        """Compute gradients."""
        for hook in list(tensors.hooks):
            hook(1.0)
        tensors.graph()
        while engine.callbacks:
            engine.callbacks.pop(0)()
        return "done"

    class Work:
        def wait(self, then: Callable[[], None] = lambda: None) -> bool:
            then()
            return True

    class ProcessGroup:
        def allreduce(self, then: Callable[[], None] = lambda: None) -> Work:
            then()
            return Work()

    class Loader:
        def __next__(self) -> int:
            raise StopIteration

    def module(name: str, **has: Any) -> Any:
        made = types.ModuleType(name)
        made.__dict__.update(has)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    variable = types.SimpleNamespace(_execution_engine=engine)
    autograd = module("torch.autograd", backward=backward, Variable=variable)
    c10d = module("torch.distributed.distributed_c10d", Work=Work, ProcessGroup=ProcessGroup)
    loader = module("torch.utils.data.dataloader", _BaseDataLoaderIter=Loader)
    return types.SimpleNamespace(autograd=autograd, c10d=c10d, engine=engine, loader=loader)


@pytest.fixture
def run(torch: Any, rings: str) -> Any:
    made = pyrometer.start("r", rings=rings, world_size=4)
    yield made
    made.close()


@pytest.fixture
def where(run: pyrometer.Run, seen: ReadRing) -> Callable[[], str]:
    """The part that the exporter sees the rank in."""

    def look() -> str:
        number = seen(run.path).header.part
        return ring.PARTS[number - 1] if number else ""

    return look


def seconds(run: pyrometer.Run, seen: ReadRing, part: str) -> float:
    return float(seen(run.path).header.part_totals[ring.PARTS.index(part)]) / 1e9


def test_the_end_of_backward_is_a_wait(run: pyrometer.Run, torch: Any, where: Callable[[], str]) -> None:
    parts = []

    def graph() -> None:
        parts.append(where())
        torch.engine.queue_callback(lambda: parts.append(where()))  # DDP waits for the last gradients here

    loss = Loss(graph)
    with run.step():
        assert torch.autograd.backward(loss) == "done"
        parts.append(where())
    assert parts == ["backward", "wait", ""]
    assert loss.hooks == []


def test_a_wait_within_a_part_is_not_counted_twice(
    run: pyrometer.Run, torch: Any, seen: ReadRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [10**9]
    monkeypatch.setattr("pyrometer._step._now", lambda: clock[0])

    def takes(ns: int) -> Callable[[], None]:
        return lambda: clock.__setitem__(0, clock[0] + ns * 10**9)

    with run.step():
        with run.part("optimizer"):
            takes(1)()
            torch.c10d.Work().wait(takes(5))
            takes(2)()
        with run.part("wait"):
            torch.c10d.Work().wait(takes(4))
        torch.autograd.backward(Loss(takes(3)))
    assert [seconds(run, seen, part) for part in ("optimizer", "wait", "backward")] == [3, 9, 3]


def test_the_part_around_a_wait_goes_on(run: pyrometer.Run, torch: Any, where: Callable[[], str]) -> None:
    with run.step(), run.part("optimizer"):
        torch.c10d.Work().wait(lambda: None)
        assert where() == "optimizer"


@pytest.mark.parametrize("part", ["checkpoint", "eval", "wait"])
def test_a_collective_of_these_parts_is_theirs(
    run: pyrometer.Run, torch: Any, where: Callable[[], str], part: str
) -> None:
    parts: list[str] = []
    with run.step(), run.part(part):
        torch.c10d.Work().wait(lambda: parts.append(where()))
        parts.append(where())
    assert parts == [part, part]


def test_backward_within_backward_recomputes(run: pyrometer.Run, torch: Any, where: Callable[[], str]) -> None:
    parts = []
    with run.step():
        torch.autograd.backward(Loss(lambda: torch.autograd.backward(Loss(lambda: parts.append(where())))))
    assert parts == ["backward"]
    assert where() == ""


def test_what_raises_leaves_no_part_open(run: pyrometer.Run, torch: Any, where: Callable[[], str]) -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error")

    loss = Loss(fail)
    with run.step():
        for call in (lambda: torch.autograd.backward(loss), lambda: torch.c10d.Work().wait(fail)):
            with pytest.raises(RuntimeError, match="CUDA error"):
                call()
            assert where() == ""
        with pytest.raises(StopIteration):
            next(torch.loader._BaseDataLoaderIter())
        assert where() == ""
    assert loss.hooks == []


def test_the_part_that_an_exception_left_first_is_kept(run: pyrometer.Run, torch: Any, seen: ReadRing) -> None:
    def fail() -> None:
        raise RuntimeError("Connection closed by peer")

    def last_part() -> str:
        return str(seen(run.path).last_part)

    with run.step():
        with pytest.raises(StopIteration):
            next(torch.loader._BaseDataLoaderIter())
        assert last_part() == "", "the end of an epoch"
        with pytest.raises(RuntimeError), run.part("forward"):
            torch.c10d.Work().wait(fail)
        assert last_part() == "wait"
    assert last_part() == "", "it went on"
    with run.step():
        with pytest.raises(RuntimeError):
            torch.autograd.backward(Loss(fail))
        assert last_part() == "backward"
    torch.engine.callbacks.clear()  # PyTorch's engine forgets those of a pass that failed
    with run.step():
        with pytest.raises(RuntimeError):
            torch.autograd.backward(Loss(lambda: torch.engine.queue_callback(fail)))
        assert last_part() == "wait"


@pytest.mark.parametrize("root", [object(), [], [object()], None])
def test_roots_of_any_kind_are_passed_on(run: pyrometer.Run, torch: Any, root: Any, rings: str) -> None:
    taken = []
    torch.autograd.backward = taken.append
    other = pyrometer.start("other", rings=rings, world_size=2)
    with run.step(), other.step():
        torch.autograd.backward(root)
    assert taken == [root]


def test_other_threads_and_what_comes_before_the_first_step_are_left_out(
    run: pyrometer.Run, torch: Any, seen: ReadRing
) -> None:
    torch.c10d.Work().wait()
    with run.step():
        thread = threading.Thread(target=torch.c10d.Work().wait)  # writes a checkpoint meanwhile
        thread.start()
        thread.join()
    assert seconds(run, seen, "wait") == 0


def test_on_a_gpu_gradients_are_computed_in_other_threads(
    run: pyrometer.Run, torch: Any, where: Callable[[], str]
) -> None:
    parts: list[str] = []

    def graph() -> None:
        thread = threading.Thread(target=torch.c10d.Work().wait, args=(lambda: parts.append(where()),))
        thread.start()
        thread.join()

    with run.step():
        torch.autograd.backward(Loss(graph))
    assert parts == ["wait"]


def test_a_launch_counts_on_the_stream_that_computes_only(
    run: pyrometer.Run, torch: Any, where: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = ["compute"]
    event = types.SimpleNamespace(record=lambda: None, query=lambda: False)
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True, current_stream=lambda: streams[0], default_stream=lambda: "compute",
        is_current_stream_capturing=lambda: False, Event=lambda enable_timing: event,
    )  # fmt: skip
    parts: list[str] = []
    with run.step():
        torch.c10d.ProcessGroup().allreduce(lambda: parts.append(where()))
        monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
        torch.c10d.ProcessGroup().allreduce(lambda: parts.append(where()))
        streams[0] = "communication"
        torch.c10d.ProcessGroup().allreduce(lambda: parts.append(where()))
    assert parts == ["", "wait", ""]


def test_a_job_without_waits_is_told_once(torch: Any, rings: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = pyrometer.start("lonely", rings=rings, world_size=4)
    for _ in range(120):
        with run.step():
            pass
    assert capsys.readouterr().err.count('run.part("wait")') == 1


def test_a_job_that_names_its_waits_is_not(torch: Any, rings: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = pyrometer.start("named", rings=rings, world_size=4)
    for _ in range(60):
        with run.step(), run.part("wait"):
            pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("ranks", "variable"), [(1, "1"), (4, "0")])
def test_one_rank_and_a_refusal_leave_pytorch_as_it_is(
    torch: Any, rings: str, monkeypatch: pytest.MonkeyPatch, ranks: int, variable: str
) -> None:
    monkeypatch.setenv("PYROMETER_WAITS", variable)
    before = torch.autograd.backward, torch.c10d.Work.wait
    assert pyrometer.start("r", rings=rings, world_size=ranks).disabled is None
    assert (torch.autograd.backward, torch.c10d.Work.wait) == before


def test_the_compiler_of_pytorch_sees_its_own_functions(torch: Any, rings: str) -> None:
    before = torch.autograd.backward
    pyrometer.start("r", rings=rings, world_size=2)
    assert torch.autograd.backward is not before
    assert torch.autograd.backward._torchdynamo_inline is before
    assert torch.autograd.backward.__doc__ == "Compute gradients."


def test_the_ring_shows_no_trace_of_the_first_steps_being_observed(
    run: pyrometer.Run, torch: Any, seen: ReadRing
) -> None:
    for _ in range(3):
        with run.step():
            pass
    assert [record.flags for record in seen(run.path).records] == [0, 0, 0]
