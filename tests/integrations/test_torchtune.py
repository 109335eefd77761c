"""torchtune's own recipe with its own command, on the CPU: nothing but its configuration names the client.

torchtune 0.6.1 doesn't import with a newer PyTorch: `make test-integrations` has an environment for the pair.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyrometer import ring
from pyrometer.follow.formats import all_formats
from pyrometer.follow.step_reader import JobSize, StepReader

pytest.importorskip("torchtune")
pytestmark = [pytest.mark.integrations, pytest.mark.timeout(900)]

PARTS = """
class Numbers:
    def __init__(self, tokenizer, fails_at=-1):
        self.fails_at = fails_at

    def __len__(self):
        return 24

    def __getitem__(self, index):
        if index == self.fails_at:
            raise RuntimeError("no such sample")
        numbers = [(index + each) % 64 for each in range(16)]
        return {"tokens": numbers, "labels": numbers}

class Tokenizer:
    pad_id = 0
"""
MODEL = """
import sys, torch
from torchtune.models.llama3 import llama3
size = dict(vocab_size=64, num_layers=2, num_heads=4, num_kv_heads=2, embed_dim=32, max_seq_len=64, intermediate_dim=64)
torch.save(llama3(**size).state_dict(), sys.argv[1])
"""
CONFIG = """
output_dir: out
seed: 1
shuffle: false
device: cpu
dtype: fp32
batch_size: 2
epochs: 2
max_steps_per_epoch: null
gradient_accumulation_steps: 2
optimizer_in_bwd: false
clip_grad_norm: 1.0
compile: false
enable_activation_checkpointing: false
enable_activation_offloading: false
resume_from_checkpoint: false
log_every_n_steps: 1
log_peak_memory_stats: false
model:
  _component_: torchtune.models.llama3.llama3
  vocab_size: 64
  num_layers: 2
  num_heads: 4
  num_kv_heads: 2
  embed_dim: 32
  max_seq_len: 64
  intermediate_dim: 64
tokenizer: {_component_: tiny_parts.Tokenizer}
dataset: {_component_: tiny_parts.Numbers, fails_at: -1}
optimizer: {_component_: torch.optim.AdamW, lr: 1e-3}
loss: {_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}
checkpointer:
  _component_: torchtune.training.FullModelTorchTuneCheckpointer
  checkpoint_dir: base
  checkpoint_files: [model.pt]
  output_dir: out
  model_type: LLAMA3
metric_logger:
  _component_: pyrometer.torchtune.metric_logger
  run: tiny
  tokens_per_step: 64
  beside: {_component_: torchtune.training.metric_logging.DiskLogger, log_dir: logs}
profiler: {_component_: torchtune.training.setup_torch_profiler, enabled: false}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base").mkdir()
    (tmp_path / "tiny_parts.py").write_text(PARTS, encoding="utf-8")
    (tmp_path / "tiny.yaml").write_text(CONFIG, encoding="utf-8")
    subprocess.run([sys.executable, "-c", MODEL, str(tmp_path / "base/model.pt")], check=True, capture_output=True)
    return tmp_path


def tune(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    program, recipe = str(Path(sys.executable).with_name("tune")), "full_finetune_single_device"
    command = [program, "run", recipe, "--config", "tiny.yaml", *overrides]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)


def logged(folder: Path) -> list[str]:
    (log,) = (folder / "logs").iterdir()
    return log.read_text(encoding="utf-8").splitlines()


def losses(folder: Path) -> list[float]:
    return [float(value) for line in logged(folder) for value in re.findall(r"loss:(\S+)", line)]


def test_its_steps_losses_and_checkpoint(folder: Path, seen: Any) -> None:
    done = tune(folder)
    assert done.returncode == 0, done.stderr
    found, expected = seen(), losses(folder)
    assert (len(expected), found.header.count, found.header.closed) == (12, 11, True), "the first step begins the run"
    assert [record.loss for record in found.records] == pytest.approx(expected[1:])
    assert all(record.grad_norm > 0 for record in found.records)
    assert [bool(record.flags & ring.TAG_BITS["checkpoint"]) for record in found.records].index(True) == 5
    assert (found.meta.run, found.meta.tokens_per_step) == ("tiny", 64)
    texts = found.meta.texts
    assert (texts["dtype"], texts["global_batch_size"], texts["model"]) == ("fp32", "4", "llama3")


def test_an_exception_is_no_good_end(folder: Path, seen: Any) -> None:
    assert tune(folder, "dataset.fails_at=14").returncode != 0
    found = seen()
    assert (found.header.count, found.header.closed) == (2, False)


def test_steps_that_are_not_logged_count(folder: Path, seen: Any) -> None:
    assert tune(folder, "log_every_n_steps=3").returncode == 0
    found, expected = seen(), losses(folder)
    assert (found.header.count, found.header.closed) == (11, True)
    recorded = [record.loss for record in found.records if record.flags & ring.FLAG_LOSS]
    assert recorded == pytest.approx(expected[: len(recorded)]), "a step late: the last one has none"
    assert len(recorded) == len(expected) - 1


def test_the_optimizer_in_the_backward_pass_is_one_step(folder: Path, seen: Any) -> None:
    one = ("optimizer_in_bwd=true", "gradient_accumulation_steps=1", "clip_grad_norm=null", "log_every_n_steps=2")
    assert tune(folder, *one).returncode == 0
    assert seen().header.count == 23


def test_its_own_log_is_read(folder: Path) -> None:
    """The follower's format, on the file of the real logger of 0.6.1."""
    assert tune(folder).returncode == 0
    reader = StepReader(all_formats(), JobSize(tokens=64, gpus=1))
    steps = list(reader.read(logged(folder), 0.0))
    assert reader.format == "torchtune"
    assert [step.logged.step for step in steps] == list(range(1, 13))
    assert [step.logged.loss for step in steps] == pytest.approx(losses(folder))
