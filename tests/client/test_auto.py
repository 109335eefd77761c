"""Ways in without touching the loop, on stand-ins for PyTorch's optimizers and for trainers."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
from client_ring_reader import Python, ReadRing

import pyrometer

HOOKS = """
hooks = []

def register_optimizer_step_post_hook(hook):
    hooks.append(hook)


class Optimizer:
    def step(self):
        for hook in hooks:
            hook(self, (), {})
"""


@pytest.fixture
def optim(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for torch.optim.optimizer, loaded."""
    module = types.ModuleType("torch.optim.optimizer")
    exec(HOOKS, module.__dict__)  # noqa: S102  the stand-in above
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", module)
    return module


def count(run: pyrometer.Run, seen: ReadRing) -> int:
    return int(seen(run.path).header.count)


def test_a_step_is_from_one_step_of_the_optimizer_to_the_next(rings: str, seen: ReadRing, optim: Any) -> None:
    run = pyrometer.auto("r", rings=rings, tokens_per_step=10)
    optimizer = optim.Optimizer()
    for _ in range(4):
        optimizer.step()
    found = seen(run.path)
    assert found.meta.run == "r"
    assert found.header.count == 3
    assert found.records[0].end == found.records[1].start


def test_of_several_optimizers_the_first_counts(rings: str, seen: ReadRing, optim: Any) -> None:
    run = pyrometer.auto("r", rings=rings)
    generator, discriminator = optim.Optimizer(), optim.Optimizer()
    for _ in range(4):
        generator.step()
        discriminator.step()
        discriminator.step()
    assert count(run, seen) == 3


def test_an_optimizer_that_is_gone_or_idle_gives_way_to_the_next(rings: str, seen: ReadRing, optim: Any) -> None:
    run = pyrometer.auto("r", rings=rings)
    warmup, idle, used = (optim.Optimizer() for _ in range(3))
    warmup.step()
    del warmup
    for _ in range(3):
        idle.step()
    assert count(run, seen) == 3
    for _ in range(60):
        used.step()
    assert count(run, seen) >= 10


def test_torch_may_be_imported_later_and_is_left_as_it_is(python: Python, tmp_path: Any) -> None:
    package = tmp_path / "torch" / "optim"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").write_text("from torch.optim.optimizer import Optimizer\n")
    (package / "optimizer.py").write_text(HOOKS)
    done = python("""
        import sys, pyrometer
        run = pyrometer.auto("r")
        finders = list(sys.meta_path)
        assert "torch" not in sys.modules
        sys.path.insert(0, sys.argv[1])
        import torch.optim, inspect
        for _ in range(3):
            torch.optim.Optimizer().step()
        module = torch.optim.optimizer
        print(run.steps_finished(), len(finders) - len(sys.meta_path), type(module.__loader__).__name__)
        print(type(module.__spec__.loader).__name__, "def step" in inspect.getsource(module))
    """, str(tmp_path))  # fmt: skip
    assert done.stdout == "2 1 SourceFileLoader\nSourceFileLoader True\n", done.stderr


def test_a_torch_without_hooks_costs_the_measurement_only(rings: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", types.ModuleType("torch.optim.optimizer"))
    assert pyrometer.auto("r", rings=rings).disabled is None


def test_a_function_is_a_step_and_keeps_what_it_returns_and_raises(rings: str, seen: ReadRing) -> None:
    """As of Megatron-LM: train_step of megatron.training.training, which returns losses by name first."""
    training = types.ModuleType("megatron.training.training")

    def train_step(batch: float) -> tuple[dict[str, float], int]:
        """Megatron's own."""
        if batch < 0:
            raise ValueError(batch)
        return {"lm loss": batch}, 0

    training.train_step = train_step  # type: ignore[attr-defined]
    run = pyrometer.watch(training, "train_step", "r", loss=lambda found: found[0]["lm loss"], rings=rings)
    assert [training.train_step(float(n)) for n in (3, 2)] == [({"lm loss": 3.0}, 0), ({"lm loss": 2.0}, 0)]
    with pytest.raises(ValueError, match="-1"):
        training.train_step(-1.0)
    found = seen(run.path)
    assert [record.loss for record in found.records] == [3.0, 2.0]
    assert training.train_step.__doc__ == "Megatron's own."


class Engine:
    """As of DeepSpeed: step is called for each micro-batch, and global_steps counts the optimizer's."""

    def __init__(self) -> None:
        self.global_steps = 0
        self.micro_steps = 0

    def step(self) -> None:
        self.micro_steps += 1
        self.global_steps += self.micro_steps % 4 == 0


def test_a_counter_tells_which_calls_are_steps(rings: str, seen: ReadRing) -> None:
    engine = Engine()
    run = pyrometer.watch(engine, "step", "r", counter="global_steps", rings=rings)
    for _ in range(16):
        engine.step()
    assert count(run, seen) == 3
    assert engine.micro_steps == 16


def test_what_cannot_be_watched_costs_the_measurement_only(rings: str, seen: ReadRing) -> None:
    run = pyrometer.watch(object(), "no_such_function", "r", rings=rings)
    assert run.disabled is None
    engine = Engine()
    run = pyrometer.watch(engine, "step", "r", loss=lambda _: 1 / 0, rings=rings)
    engine.step()
    assert count(run, seen) == 1
