"""Evaluations and checkpoints of a loop that only ticks, on a stand-in for PyTorch that has its calls."""

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

EVAL, CHECKPOINT = ring.TAG_BITS["eval"], ring.TAG_BITS["checkpoint"]


class Parameter:
    def __init__(self, *, requires_grad: bool) -> None:
        self.requires_grad = requires_grad


def make_module_class() -> Any:
    class Module:
        def __init__(self, *children: Any, trained: bool = True) -> None:
            self.training = True
            self.own = children
            self.parameter = Parameter(requires_grad=trained)

        def parameters(self) -> list[Parameter]:
            return [self.parameter]

        def train(self, mode: bool = True) -> Any:
            self.training = mode
            for child in self.own:
                child.train(mode)
            return self

        def eval(self) -> Any:
            return self.train(mode=False)

    return Module


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As much of torch as a pause touches."""
    made, inner = types.ModuleType("torch"), types.ModuleType("torch.nn.modules.module")
    inner.Module = made.Module = make_module_class()  # type: ignore[attr-defined]
    made.save = lambda what, then=lambda: None: then() or what  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.setitem(sys.modules, "torch.nn.modules.module", inner)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    return made


@pytest.fixture
def where(rings: str, seen: ReadRing) -> Callable[[Any], str]:
    """The part that a run is in now."""

    def part_of(run: pyrometer.Run) -> str:
        number = seen(run.path).header.part
        return ring.PARTS[number - 1] if number else ""

    return part_of


def ticking(rings: str, steps: int = 3, name: str = "r") -> Any:
    run = pyrometer.start(name, rings=rings)
    for _ in range(steps):
        run.tick()
    return run


def flags(seen: ReadRing, run: pyrometer.Run) -> list[int]:
    return [record.flags & (EVAL | CHECKPOINT) for record in seen(run.path).records]


def test_an_evaluation_is_a_part_until_the_model_trains_again(
    rings: str, seen: ReadRing, torch: Any, where: Any
) -> None:
    run, model = ticking(rings), torch.Module(torch.Module())
    assert seen(run.path).header.ticking == ring.NAMED
    assert model.eval() is model
    assert where(run) == "eval"
    assert not model.own[0].training
    assert model.train() is model
    assert model.own[0].training
    assert where(run) == ""
    for _ in range(3):
        run.tick()
    assert flags(seen, run) == [0, 0, EVAL, 0, 0]
    assert seen(run.path).header.part_totals[ring.PARTS.index("eval")] > 0


def test_an_evaluation_of_which_the_end_is_not_told_ends_with_the_step(
    rings: str, seen: ReadRing, torch: Any, where: Any
) -> None:
    run, model = ticking(rings), torch.Module()
    model.eval()
    run.tick()
    assert where(run) == ""
    assert flags(seen, run) == [0, 0, EVAL]


def test_a_checkpoint_is_a_part_and_ends_an_evaluation(rings: str, seen: ReadRing, torch: Any, where: Any) -> None:
    run, model = ticking(rings), torch.Module()
    model.eval()
    during = []
    assert torch.save("weights", lambda: during.append(where(run))) == "weights"
    assert during == ["checkpoint"]
    assert where(run) == ""
    run.tick()
    assert flags(seen, run)[-1] == EVAL | CHECKPOINT


def test_a_checkpoint_that_fails_fails_as_it_would_and_is_over(rings: str, torch: Any, where: Any) -> None:
    run = ticking(rings)
    with pytest.raises(ZeroDivisionError):
        torch.save("weights", lambda: 1 / 0)
    assert where(run) == ""


def test_what_writes_checkpoints_may_be_imported_later(
    rings: str, torch: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, where: Any
) -> None:
    run = ticking(rings)
    (tmp_path / "safetensors").mkdir()
    (tmp_path / "safetensors" / "__init__.py").touch()
    (tmp_path / "safetensors" / "torch.py").write_text("def save_file(then):\n    then()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("safetensors", "safetensors.torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import safetensors.torch

    during: list[str] = []
    safetensors.torch.save_file(lambda: during.append(where(run)))
    assert during == ["checkpoint"]


@pytest.mark.parametrize("what", ["a frozen module", "one in evaluation", "another thread", "a part with a name"])
def test_what_is_no_pause_of_the_training(what: str, rings: str, seen: ReadRing, torch: Any, where: Any) -> None:
    run, model = ticking(rings), torch.Module(trained=what != "a frozen module")
    if what == "one in evaluation":
        model.training = False
    if what == "another thread":
        thread = threading.Thread(target=lambda: (model.eval(), torch.save("weights")))
        thread.start()
        thread.join()
    elif what == "a part with a name":
        with run.part("forward"):
            model.eval()
            assert where(run) == "forward"
    else:
        model.eval()
    run.tick()
    assert flags(seen, run) == [0, 0, 0]


def test_what_comes_with_every_step_is_none_and_pauses_are_unnamed_from_then_on(
    rings: str, seen: ReadRing, torch: Any
) -> None:
    run, norm = ticking(rings), torch.Module()
    for _ in range(4):
        norm.train()
        norm.eval()
        run.tick()
    assert flags(seen, run) == [0, 0, EVAL, 0, 0, 0]
    assert seen(run.path).header.ticking == ring.UNNAMED


def test_without_torch_pauses_are_unnamed_and_a_job_that_names_one_says_so_itself(rings: str, seen: ReadRing) -> None:
    run = ticking(rings)
    assert seen(run.path).header.ticking == ring.UNNAMED
    with run.part("eval"):
        pass
    run.tick()
    assert flags(seen, run)[-1] == EVAL


def test_a_torch_that_is_not_as_expected_costs_the_names_only(
    rings: str, seen: ReadRing, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch.Module, "eval")
    run = ticking(rings)
    header = seen(run.path).header
    assert (header.count, header.ticking) == (2, 0)


def test_torch_is_as_it_was_but_for_what_listens(rings: str, torch: Any) -> None:
    train, was = torch.Module.train, torch.Module.eval
    first, second = ticking(rings), ticking(rings, name="second")
    assert torch.Module.train is train, "it is called for each submodule, in some loops at each step"
    assert torch.Module.eval.__wrapped__ is was, "one layer, however many runs"
    model = torch.Module()
    model.eval()
    model.train()
    assert torch.Module.train is train
    assert (first.disabled, second.disabled) == (None, None)


def test_blocks_are_left_alone(rings: str, seen: ReadRing, torch: Any) -> None:
    was = torch.Module.eval
    run = pyrometer.start("r", rings=rings)
    with run.step():
        pass
    assert torch.Module.eval is was
    assert seen(run.path).header.ticking == 0


def test_the_longest_step_is_learned_beyond_the_first_ten_and_without_named_pauses(
    rings: str, seen: ReadRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyrometer import _step

    now = 0
    monkeypatch.setattr(_step, "_now", lambda: now)
    run = pyrometer.start("r", rings=rings)
    run.tick()

    def longest_after(seconds: int) -> float:
        nonlocal now
        now += seconds * 1_000_000_000
        run.tick()
        return float(seen(run.path).header.longest_tick / 1e9)

    assert [longest_after(100) for _ in range(10)] == [0.0] * 10
    assert [longest_after(took) for took in (2, 30, 3)] == [2, 30, 30]
    with run.part("checkpoint"):
        pass
    assert longest_after(500) == 30
    assert longest_after(31) == 31


def test_a_part_that_ended_is_a_sign_of_life(rings: str, seen: ReadRing) -> None:
    run = pyrometer.start("r", rings=rings)
    with run.part("eval"):
        pass
    header = seen(run.path).header
    began_and_took = header.part_totals[ring.PARTS.index("eval")]
    assert header.part_started - header.created >= began_and_took > 0
