"""A JAX loop on the CPU, with Orbax's checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pyrometer.jax
from pyrometer import ring

jax = pytest.importorskip("jax")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


def step_function() -> Any:
    def step(weights: Any, batch: Any) -> Any:
        loss, gradient = jax.value_and_grad(lambda w: ((batch @ w) ** 2).mean())(weights)
        return weights - 0.01 * gradient, {"loss": loss}

    return jax.jit(step)


def test_steps_losses_and_timing(seen: Any) -> None:
    train = pyrometer.jax.watch(step_function(), run="tiny", tokens_per_step=32, loss=lambda out: out[1]["loss"])
    weights, batch = jax.numpy.ones((8, 1)), jax.numpy.ones((4, 8))
    losses = []
    for _ in range(12):
        weights, metrics = train(weights, batch)
        losses.append(float(metrics["loss"]))
    found = seen()
    assert found.header.count == 11, "the first call compiles, and begins the run"
    assert found.header.timing == ring.LAUNCH_TIME
    recorded = [record.loss for record in found.records if record.loss is not None]
    assert recorded == pytest.approx(losses[1 : 1 + len(recorded)])
    assert len(recorded) == 10, "each is recorded with the step after it"
    assert found.meta.world_size == jax.device_count()
    assert found.meta.texts["gpu_model"] == jax.local_devices()[0].device_kind


def test_orbax_saves_in_part_checkpoint(tmp_path: Path, seen: Any) -> None:
    ocp = pytest.importorskip("orbax.checkpoint")
    train = pyrometer.jax.watch(step_function(), run="tiny")
    weights, batch = jax.numpy.ones((8, 1)), jax.numpy.ones((4, 8))
    with ocp.CheckpointManager(tmp_path / "checkpoints") as manager:
        for number in range(10):
            weights, _ = train(weights, batch)
            if number == 5:
                manager.save(number, args=ocp.args.StandardSave({"weights": weights}))
        manager.wait_until_finished()
    found = seen()
    assert [n for n, r in enumerate(found.records, 1) if r.flags & ring.TAG_BITS["checkpoint"]] == [6]
    assert found.parts["checkpoint"] > 0


def test_an_error_of_the_loop_is_the_loops(seen: Any) -> None:
    train = pyrometer.jax.watch(step_function(), run="tiny", loss=lambda out: out[1]["nothing"])
    weights, batch = jax.numpy.ones((8, 1)), jax.numpy.ones((4, 8))
    for _ in range(3):
        weights, _ = train(weights, batch)
    with pytest.raises(TypeError):
        train(weights, jax.numpy.ones((4, 7)))
    assert seen().meta.run == "tiny"
