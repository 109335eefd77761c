"""Hugging Face's Trainer with a tiny Llama on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyrometer import ring
from pyrometer._model_flops import flops_per_token
from pyrometer.huggingface import callback

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]

LENGTH = 16


class Numbers(torch.utils.data.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> dict[str, Any]:
        numbers = torch.arange(index, index + LENGTH) % 64
        return {"input_ids": numbers, "labels": numbers}


def trainer(folder: Path, **more: Any) -> Any:
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=64,
        tie_word_embeddings=False,
    )  # fmt: skip
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "tiny-llama"), use_cpu=True, report_to=[], per_device_train_batch_size=4,
        gradient_accumulation_steps=2, disable_tqdm=True, logging_steps=1, **more,
    )  # fmt: skip
    return transformers.Trainer(
        model=transformers.LlamaForCausalLM(config), args=arguments, train_dataset=Numbers(), eval_dataset=Numbers(),
        callbacks=[callback(sequence_length=LENGTH)],
    )  # fmt: skip


def test_steps_losses_evaluations_and_checkpoints(tmp_path: Path, seen: Any) -> None:
    made = trainer(
        tmp_path, num_train_epochs=2, eval_strategy="steps", eval_steps=4, save_strategy="steps", save_steps=5
    )
    made.train()
    found = seen()
    logged = [entry for entry in made.state.log_history if "loss" in entry]
    assert found.header.count == made.state.global_step == 12
    assert [record.loss for record in found.records] == pytest.approx([entry["loss"] for entry in logged], abs=1e-3)
    assert [record.grad_norm for record in found.records] == pytest.approx([e["grad_norm"] for e in logged], rel=1e-3)
    assert found.header.closed
    assert (found.meta.tokens_per_step, found.meta.texts["global_batch_size"]) == (4 * 2 * LENGTH, "8")
    assert found.meta.flops_per_token == 6 * made.model.num_parameters(exclude_embeddings=True)
    # Evaluations and checkpoints are parts between steps, and mark the step after them.
    assert all(found.parts[part] > 0 for part in ("data", "optimizer", "eval", "checkpoint"))
    tagged = [n for n, record in enumerate(found.records, 1) if record.flags & ring.TAG_BITS["eval"]]
    assert tagged == [5, 9]
    assert [n for n, r in enumerate(found.records, 1) if r.flags & ring.TAG_BITS["checkpoint"]] == [6, 11]


def test_a_run_that_goes_on_counts_its_steps_on(tmp_path: Path, rings: Path, seen: Any) -> None:
    trainer(tmp_path, max_steps=4, save_strategy="steps", save_steps=4).train()
    for path in rings.glob("*.ring"):
        path.unlink()
    trainer(tmp_path, max_steps=6, save_strategy="no").train(resume_from_checkpoint=True)
    found = seen()
    assert (found.meta.first_step, found.header.count) == (4, 2)


def test_tokens_that_the_trainer_counts_itself(tmp_path: Path, seen: Any) -> None:
    trainer(tmp_path, max_steps=3, save_strategy="no", include_num_input_tokens_seen="all").train()
    assert [record.tokens for record in seen().records] == [8 * LENGTH] * 3


def test_the_best_model_is_saved_after_its_evaluation(tmp_path: Path, seen: Any) -> None:
    trainer(
        tmp_path, max_steps=4, eval_strategy="steps", eval_steps=2, save_strategy="best", metric_for_best_model="loss"
    ).train()
    found = seen()
    assert found.header.count == 4
    assert found.records[2].flags & ring.TAG_BITS["checkpoint"]


def test_an_exception_is_no_good_end(tmp_path: Path, seen: Any) -> None:
    made = trainer(tmp_path, max_steps=4, save_strategy="no")
    real, calls = made.training_step, []

    def failing(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) > 5:
            raise RuntimeError("CUDA error")
        return real(*arguments, **named)

    made.training_step = failing
    with pytest.raises(RuntimeError, match="CUDA error"):
        made.train()
    found = seen()
    assert found.header.count == 2
    assert not found.header.closed


def test_a_mixture_of_experts_counts_those_that_a_token_uses(tmp_path: Path) -> None:
    config = transformers.MixtralConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        vocab_size=64, num_local_experts=8, num_experts_per_tok=2, tie_word_embeddings=False,
    )  # fmt: skip
    model = transformers.MixtralForCausalLM(config)
    experts = 2 * 8 * 3 * 32 * 64
    total = model.num_parameters(exclude_embeddings=True)
    assert flops_per_token(model, None, "") == (6.0 * (total - experts * 6 / 8), "hf")


def test_frozen_weights_under_a_trained_head_have_no_gradients_of_their_own() -> None:
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=64,
        tie_word_embeddings=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    model.model.requires_grad_(requires_grad=False)
    total, head = model.num_parameters(exclude_embeddings=True), 32 * 64
    assert flops_per_token(model, None, "") == (2.0 * (total - head) + 6.0 * head, "hf")
