"""Hugging Face's and Lightning's trainers over the GPT of ``gpt.py``, each with our callback."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from typing import Any

from pyrometer_exporters.commands.gpu_check.gpt import Training

Mark = Callable[[], None]


def huggingface_steps(training: Training, steps: int, settings: dict[str, Any], mark: Mark) -> None:
    """Train for so many steps with Hugging Face's Trainer; ``mark`` is called at each step's end."""
    transformers = importlib.import_module("transformers")  # perhaps missing

    from pyrometer.huggingface import callback  # noqa: PLC0415  it looks transformers up

    class Marks(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_step_end(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
            mark()

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder, max_steps=steps, per_device_train_batch_size=training.size.batch, logging_steps=10_000,
            save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=training.device == "cpu",
            dataloader_num_workers=0, max_grad_norm=0.0,
        )  # fmt: skip
        transformers.Trainer(
            model=training.model, args=arguments, train_dataset=_dataset(training, steps),
            optimizers=(training.optimizer, None), callbacks=[callback(run="huggingface", **settings), Marks()],
        ).train()  # fmt: skip


def lightning_steps(training: Training, steps: int, settings: dict[str, Any], mark: Mark) -> None:
    """Train for so many steps with Lightning's Trainer; ``mark`` is called at each step's end."""
    try:
        lightning = importlib.import_module("lightning.pytorch")  # perhaps missing
    except ImportError:
        lightning = importlib.import_module("pytorch_lightning")  # its older name

    from pyrometer.lightning import callback  # noqa: PLC0415  it looks lightning up

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = training.model

        def training_step(self, batch: Any, _index: int) -> Any:  # noqa: ANN401
            return self.model(batch["input_ids"], batch["labels"])["loss"]

        def configure_optimizers(self) -> Any:  # noqa: ANN401
            return training.optimizer

    class Marks(lightning.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_end(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
            mark()

    loader = training.torch.utils.data.DataLoader(_dataset(training, steps), batch_size=training.size.batch)
    lightning.Trainer(
        accelerator="cpu" if training.device == "cpu" else "gpu", devices=1, max_steps=steps, logger=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        callbacks=[callback(run="lightning", **settings), Marks()],
    ).fit(Module(), loader)  # fmt: skip


def _dataset(training: Training, steps: int) -> Any:  # noqa: ANN401  torch's
    row = training.batch[0].cpu()

    class Rows(training.torch.utils.data.Dataset):  # type: ignore[misc,name-defined]
        def __len__(self) -> int:
            return steps * training.size.batch

        def __getitem__(self, _index: int) -> dict[str, Any]:
            return {"input_ids": row, "labels": row}

    return Rows()
