"""verl's log of steps, with its own Tracking, as its trainers call it; its trainers themselves need GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from pyrometer import ring

pytest.importorskip("torch")
pytest.importorskip("verl")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(120)]

# Lines of its documentation: docs/perf/perf_tuning and the baselines, shortened.
STEP = {
    "training/global_step": 1, "actor/pg_loss": 0.25, "actor/grad_norm": 2.06, "perf/total_num_tokens": 159906,
    "perf/time_per_step": 48.7, "perf/throughput": 3283.3, "timing_s/step": 48.7,
}  # fmt: skip
PROGRAM = """
import json, sys, verl
from verl.utils.tracking import Tracking
tracking = Tracking(project_name="p", experiment_name="grpo", default_backend="console")
for step, data in enumerate(json.loads(sys.argv[1])):
    tracking.log(data=data, step=step)
if sys.argv[2] == "fails":
    tracking.finish(exit_code=1)
    sys.exit(1)
"""


def play(steps: list[dict[str, float]], end: str = "ends") -> None:
    subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(steps), end], check=end == "ends",
        env={**os.environ, "VERL_USE_EXTERNAL_MODULES": "pyrometer.verl", "PYROMETER_SETTINGS": "world_size=8"},
    )  # fmt: skip


def test_its_steps_are_those_of_the_run(seen: Any) -> None:
    evaluation = {"val-core/gsm8k/acc": 0.5}
    saved = {**STEP, "timing_s/save_checkpoint": 4.0}
    play([evaluation, STEP, STEP, saved, {**STEP, **evaluation, "timing_s/testing": 9.0}])
    found = seen()
    assert (found.meta.run, found.meta.world_size) == ("grpo", 8)
    assert found.header.count == 3, "the first step begins the run"
    assert [(r.loss, r.grad_norm, r.tokens) for r in found.records] == [(0.25, pytest.approx(2.06), 159906)] * 3
    tags = [[name for name, bit in ring.TAG_BITS.items() if record.flags & bit] for record in found.records]
    assert [("checkpoint" in one, "eval" in one) for one in tags] == [(False, False), (True, False), (False, True)]
    assert found.header.closed


def test_a_finish_with_an_error_is_no_good_end(seen: Any) -> None:
    play([STEP, STEP], "fails")
    assert not seen().header.closed


def test_a_trainer_that_is_not_known_is_told(seen: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([STEP, STEP]), "ends"], check=True, capture_output=True, text=True,
        env={**os.environ, "VERL_USE_EXTERNAL_MODULES": "pyrometer.verl"},
    )  # fmt: skip
    assert "an unknown verl trainer" in done.stderr
    assert seen().header.count == 1


def test_a_trainer_of_losses_is_named_by_the_environment(seen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYROMETER_RUN", "sft")
    play([{"train/loss": 2.0, "train/grad_norm": 1.0, "train/global_tokens": 4096, "train/lr": 1e-5}] * 3)
    found = seen()
    assert (found.meta.run, found.header.count) == ("sft", 2)
    assert [(r.loss, r.tokens) for r in found.records] == [(2.0, 4096)] * 2
