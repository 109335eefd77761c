"""The loop of verl's fully asynchronous trainer: its own ``fit``, without what each step does on GPUs.

It is imported in a process of its own, as verl's jobs do, with nothing but the environment that names the client.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("verl")
pytest.importorskip("ray")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]

# A step logs as the trainers do; the fourth ends the training.
COMMON = """
import asyncio, sys
from types import SimpleNamespace as Made
import verl

def log(trainer):
    trainer.global_steps = getattr(trainer, "logged", 0) + 1
    if trainer.global_steps > 3 and sys.argv[1] == "fails":
        raise RuntimeError("CUDA error")
    trainer.logged = trainer.global_steps
    trainer.logger.log(data={"training/global_step": trainer.logged, "actor/pg_loss": 0.25, "actor/grad_norm": 2.0},
                       step=trainer.logged)
    trainer.is_last_step = trainer.logged == 4
"""
# Ray pickles an actor's class in the driver, by value, and makes it again in the actor's process.
FULLY_ASYNC = """
import subprocess
from ray import cloudpickle

def make():
    from verl.experimental.fully_async_policy import fully_async_trainer as module

    class Trainer(module.FullyAsyncTrainer.__ray_metadata__.modified_class):
        def __init__(self):
            from verl.utils.tracking import Tracking
            self.config, self.progress_bar = Made(trainer=Made(test_freq=1)), Made(close=lambda: None)
            self.message_queue_client = self.rollouter = object()
            self.global_steps, self.current_param_version, self.local_trigger_step = 0, 0, 1
            self.is_last_step = False
            self.logger = Tracking(project_name="p", experiment_name="tiny", default_backend="console")
            self._fit_save_checkpoint = lambda force=False: None

        async def fit_step(self, batch=None):
            if self.is_last_step:
                from verl.experimental.fully_async_policy.fully_async_trainer import TrainingStopException
                raise TrainingStopException
            log(self)

    return Trainer

if sys.argv[2:]:
    with open(sys.argv[2], "rb") as file:
        trainer = cloudpickle.load(file)
    asyncio.run(trainer().fit())
else:
    with open("trainer.pickle", "wb") as file:
        file.write(cloudpickle.dumps(make()))
    sys.exit(subprocess.run([sys.executable, __file__, sys.argv[1], "trainer.pickle"]).returncode)
"""
TRAINERS = {"fully-async": FULLY_ASYNC}


def play(folder: Path, trainer: str, end: str) -> subprocess.CompletedProcess[str]:
    program = folder / "job.py"
    program.write_text(COMMON + TRAINERS[trainer], encoding="utf-8")
    environment = {
        **os.environ, "VERL_USE_EXTERNAL_MODULES": "pyrometer.verl", "PYROMETER_SETTINGS": "world_size=8",
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, str(program), end], check=False, capture_output=True, text=True, cwd=folder, env=environment
    )


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_trainer_that_fails_is_no_good_end(tmp_path: Path, seen: Any, trainer: str) -> None:
    done = play(tmp_path, trainer, "fails")
    assert "CUDA error" in done.stderr
    found = seen()
    assert (found.header.count, found.header.closed) == (2, False)
