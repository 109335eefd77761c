"""The hooks of frameworks where these aren't there; tests/integrations has them with the real ones."""

from __future__ import annotations

import logging
import types
from typing import Any

import pytest
from client_ring_reader import ReadRing

from pyrometer import huggingface, lightning, ring, torchtitan

ARGS = types.SimpleNamespace(
    run_name=None, output_dir="/out/llama-8b", process_index=0, local_process_index=0, world_size=2, train_batch_size=4,
    gradient_accumulation_steps=8, per_device_train_batch_size=4, bf16=True, fp16=False, gradient_checkpointing=True,
)  # fmt: skip


def control(**more: bool) -> Any:
    names = ("should_log", "should_evaluate", "should_save", "should_training_stop")
    return types.SimpleNamespace(**dict.fromkeys(names, False) | more)


def state(step: int = 0, tokens: int = 0) -> Any:
    return types.SimpleNamespace(global_step=step, num_input_tokens_seen=tokens)


def hf(rings: str, **more: Any) -> Any:
    made = huggingface.callback(rings=rings, **more)
    made.on_train_begin(ARGS, state(), control(), model=None)
    return made


def hf_step(made: Any, number: int, tokens: int = 0, **flow: bool) -> None:
    made.on_step_begin(ARGS, state(number), control())
    made.on_pre_optimizer_step(ARGS, state(number), control())
    made.on_optimizer_step(ARGS, state(number), control())
    made.on_step_end(ARGS, state(number + 1, tokens), control(**flow))


def test_hugging_face_what_the_arguments_say(rings: str, seen: ReadRing) -> None:
    made = hf(rings, sequence_length=100)
    meta = seen(made.loop.run.path).meta
    assert (meta.run, meta.world_size, meta.tokens_per_step) == ("llama-8b", 2, 6400)
    assert meta.texts["global_batch_size"] == "64"
    assert (meta.texts["dtype"], meta.texts["recompute"]) == ("bf16", "full")


def test_hugging_face_steps_have_their_data_in_them_and_not_their_checkpoints(rings: str, seen: ReadRing) -> None:
    made = hf(rings)
    path = made.loop.run.path
    hf_step(made, 0, tokens=900)
    hf_step(made, 1, tokens=2000, should_log=True, should_evaluate=True, should_save=True)
    made.on_log(ARGS, state(2), control(should_evaluate=True, should_save=True), logs={"loss": 2.0, "grad_norm": 0.5})
    assert ring.PARTS[seen(path).header.part - 1] == "eval"
    made.on_evaluate(ARGS, state(2), control(should_save=True))
    assert ring.PARTS[seen(path).header.part - 1] == "checkpoint"
    made.on_save(ARGS, state(2), control())
    assert ring.PARTS[seen(path).header.part - 1] == "data"
    hf_step(made, 2)
    made.on_epoch_end(ARGS, state(3), control(should_training_stop=True))
    made.on_train_end(ARGS, state(3), control())
    found = seen(path)
    assert [(r.tokens, r.loss, r.grad_norm) for r in found.records] == [
        (900, None, None), (1100, 2.0, 0.5), (None, None, None),
    ]  # fmt: skip
    assert found.records[0].end <= found.records[1].start
    assert found.records[2].flags == ring.TAG_BITS["checkpoint"] | ring.TAG_BITS["eval"]
    assert found.header.closed
    totals = dict(zip(ring.PARTS, found.header.part_totals, strict=True))
    assert all(totals[part] for part in ("data", "optimizer", "eval", "checkpoint"))


def lightning_trainer(step: int = 0, batches: int = 1) -> Any:
    return types.SimpleNamespace(
        global_step=step, global_rank=0, local_rank=0, world_size=1, sanity_checking=False,
        accumulate_grad_batches=batches,
    )  # fmt: skip


def test_lightning_steps_of_accumulated_batches_and_a_validation_between(rings: str, seen: ReadRing) -> None:
    made = lightning.callback(rings=rings, run="r")
    trainer = lightning_trainer(step=5, batches=2)
    made.on_train_start(trainer, object())
    path = made.loop.run.path
    for batch in range(4):
        made.on_train_batch_start(trainer, None, None, batch)
        made.on_before_backward(trainer, None, None)
        assert ring.PARTS[seen(path).header.part - 1] == "backward"
        made.on_after_backward(trainer, None)
        trainer.global_step += batch % 2
        made.on_train_batch_end(trainer, None, {"loss": float(batch)}, None, batch)
    made.on_validation_start(trainer, None)
    assert ring.PARTS[seen(path).header.part - 1] == "eval"
    made.on_validation_end(trainer, None)
    made.on_train_end(trainer, None)
    found = seen(path)
    assert [record.loss for record in found.records] == [2.0, 6.0]
    assert found.meta.first_step == 5
    assert found.header.closed


def test_lightning_an_exception_is_no_good_end(rings: str, seen: ReadRing) -> None:
    made = lightning.callback(rings=rings, run="r")
    trainer = lightning_trainer()
    made.on_train_start(trainer, object())
    path = made.loop.run.path
    made.on_exception(trainer, None, ValueError())
    made.on_train_end(trainer, None)
    assert not seen(path).header.closed


@pytest.mark.parametrize("made", [huggingface.callback, lightning.callback])
def test_a_framework_that_calls_otherwise_gets_no_exception(made: Any) -> None:
    hooks = made(run="r")
    for name in dir(hooks):
        if name.startswith("on_"):
            getattr(hooks, name)()
            getattr(hooks, name)(None, None, None)


@pytest.fixture
def titan(rings: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PYROMETER_RINGS", rings)
    monkeypatch.setenv("PYROMETER_RUN", "llama")
    monkeypatch.setenv("PYROMETER_SETTINGS", "tokens_per_step=1000 flops_per_token=5e9 dtype=bf16 nonsense")
    logger = logging.getLogger("torchtitan.structured_logger")
    logger.setLevel(logging.INFO)
    torchtitan.handler(structured_logger=logger, rank=0, source="trainer", output_dir="/out")
    yield logger
    logger.handlers.clear()


def test_torchtitan_spans_are_steps_and_parts(titan: Any, seen: ReadRing) -> None:
    def say(name: str, step: int) -> None:
        titan.info(name, extra={"log_type_name": name, "step": step})

    for step in (41, 42):
        say("step_start", step)
        for part in ("fetching_batch", "fwd_bwd", "optim"):
            say(f"{part}_start", step)
            say(f"{part}_end", step)
        torchtitan.metrics().log({"loss_metrics/global_avg_loss": 2.5, "grad_norm": 1.0, "tflops": 3.0}, step)
        if step == 42:
            say("checkpoint_save_start", step)
            say("checkpoint_save_end", step)
        say("step_end", step)
    say("metric_value", 42)
    loop = titan.handlers[0].loop
    found = seen(loop.run.path)
    assert (found.meta.run, found.meta.first_step, found.meta.flops_per_step) == ("llama", 41, 5e12)
    assert [(record.loss, record.flags & 1) for record in found.records] == [(2.5, 0), (2.5, 1)]
    totals = dict(zip(ring.PARTS, found.header.part_totals, strict=True))
    assert all(totals[part] for part in ("data", "backward", "optimizer", "checkpoint"))
