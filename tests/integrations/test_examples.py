"""The scripts in ``examples/`` that need a framework, run as their reader would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyrometer import ring

pytest.importorskip("torch")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name: str) -> None:
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr


def tagged(found: Any, tag: str) -> list[int]:
    return [record.sequence for record in found.records if record.flags & ring.TAG_BITS[tag]]


def test_pytorch_with_auto(seen: Any) -> None:
    run_example("pytorch_auto.py")
    found = seen()
    assert (found.meta.run, found.header.count, found.header.closed) == ("example-pytorch", 59, True)
    assert tagged(found, "eval") == tagged(found, "checkpoint") == [19, 39], "the steps that a pause falls into"


def test_hugging_faces_trainer(seen: Any) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    run_example("huggingface_trainer.py")
    found = seen()
    assert (found.meta.run, found.header.count, found.header.closed) == ("example-huggingface", 20, True)
    assert found.meta.tokens_per_step == 8 * 32
    assert all(record.loss is not None for record in found.records)
    assert tagged(found, "eval") == [10]


def test_lightnings_trainer(seen: Any) -> None:
    pytest.importorskip("lightning")
    run_example("lightning_trainer.py")
    found = seen()
    assert (found.meta.run, found.header.count, found.header.closed) == ("example-lightning", 40, True)
    losses = [record.loss for record in found.records]
    assert all(loss is not None for loss in losses)
    assert losses[-1] < losses[0]
