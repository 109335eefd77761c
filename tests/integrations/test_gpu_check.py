"""The check of a GPU on the stand-in, with PyTorch's CPU build: the experiments that train and communicate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.integrations

LAUNCHER = Path(__file__).resolve().parents[2] / "tools" / "gpu_check.py"


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results by experiment and check."""
    folder = tmp_path_factory.mktemp("checked")
    command = [sys.executable, str(LAUNCHER), "--stand-in", "--short", "--only=def", f"--out={folder}"]
    run = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=290, check=False, env={**os.environ, "OUT": ""}
    )
    assert run.returncode in (0, 1), run.stdout
    assert len(list(folder.iterdir())) <= 8
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    return {f"{line['experiment']} {line['check']}": line for line in lines if "check" in line}


@pytest.mark.parametrize(
    "name", ["f ras", "f ras_text", "f run_dump", "f hang_dump", "e bound", "e wrong_peak", "e unknown"]
)
def test_a_rank_without_a_gpu_is_what_we_say(checked: dict[str, Any], name: str) -> None:
    assert checked[name]["passed"], checked[name]


@pytest.mark.parametrize("name", ["plain", "accumulated", "auto", "huggingface", "lightning", "compiled"])
def test_the_mfu_of_every_loop_is_measured(checked: dict[str, Any], name: str) -> None:
    result = checked[f"d {name}"]
    if "not installed" in result["note"]:
        pytest.skip(result["note"])
    ours, by_hand = (float(text) for text in result["measured"].split(" (")[0].split(" for "))
    assert ours == pytest.approx(by_hand, rel=0.1)  # of a busy machine; the check itself wants 0.5 %


def test_a_slow_step_shows_in_that_step_where_nothing_is_asynchronous(checked: dict[str, Any]) -> None:
    assert checked["d slow_step"]["measured"].startswith("step +0 from it")
