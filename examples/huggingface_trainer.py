"""Hugging Face's Trainer: report its steps with a callback.

python examples/huggingface_trainer.py
"""

from __future__ import annotations

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from pyrometer.huggingface import callback

VOCABULARY, SEQUENCE_LENGTH = 64, 32


class CountingDataset(Dataset[dict[str, torch.Tensor]]):
    """Sequences of consecutive numbers."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + SEQUENCE_LENGTH) % VOCABULARY
        return {"input_ids": tokens, "labels": tokens}


def train(output: str) -> None:
    """Train a tiny Llama, with an evaluation every 10 steps."""
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    arguments = TrainingArguments(
        output_dir=output,
        max_steps=20,
        per_device_train_batch_size=8,
        logging_steps=1,  # the callback records the loss that is logged: one for each step
        eval_strategy="steps",
        eval_steps=10,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    Trainer(
        model=LlamaForCausalLM(config),
        args=arguments,
        train_dataset=CountingDataset(),
        eval_dataset=CountingDataset(),
        # Ranks, batch size and FLOPs per token come from the trainer; it doesn't know the sequence length.
        callbacks=[callback(run="example-huggingface", sequence_length=SEQUENCE_LENGTH)],
    ).train()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        train(folder)
