"""The training run of the demo: a real loop that truly computes, at the pace that the simulated hardware allows.

One process computes the step of all 48 ranks, and reports for each of them through the client, as 48 processes would.
Its FLOPs are counted and the machine's peak is measured, so its MFU is a true one: of this machine, shared by 48.
Only the hardware's influence is simulated: the step is stretched by the slowest GPU's clock, as in synchronous
training every rank waits for the slowest; and while a link is down the step stalls.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import pyrometer
from pyrometer_simulator.demo.hardware import Hardware
from pyrometer_simulator.demo.model import FLOPS_PER_ROW, Model, peak_flops, rows_for

# Four steps a second; the computing takes about 0.09 s of each, so that the other programs of the demo, which share the
# machine's few cores, don't show in the step time.
STEP_SECONDS = 0.25
COMPUTE_SECONDS = 0.09


@dataclass(frozen=True)
class Settings:
    """The demo's settings for the trainer, as JSON in its only argument."""

    run: str
    folder: str
    nodes: tuple[str, ...]
    gpus_per_node: int

    @classmethod
    def parse(cls, text: str) -> Settings:
        """Read them from JSON."""
        found = json.loads(text)
        return cls(found["run"], found["folder"], tuple(found["nodes"]), int(found["gpus_per_node"]))

    def json(self) -> str:
        """Return them as JSON."""
        return json.dumps(vars(self))


class Trainer:
    """The loop. ``hardware`` is read before each step."""

    def __init__(self, settings: Settings, hardware: Hardware) -> None:
        self._hardware = hardware
        self._model = Model.fresh()
        self._peak = peak_flops()
        self._rows = rows_for(COMPUTE_SECONDS, self._warm_up)
        self._ranks = {place: self._start(settings, rank, *place) for rank, place in enumerate(_places(settings))}
        self._reporting = next(iter(self._ranks.values()))

    def train(self) -> None:
        """Train until the process gets SIGTERM."""
        while True:
            begin = time.monotonic()
            slowest, factor = self._hardware.slowest()
            with contextlib.ExitStack() as step:
                for run in self._ranks.values():
                    step.enter_context(run.step())
                self._compute()
                # Beside other programs the computing alone may take longer than a step should; heat slows that too.
                seconds = max(STEP_SECONDS, time.monotonic() - begin)
                self._wait(begin + seconds, spare=set())
                # All but the slowest rank wait for it, in their collective.
                self._wait(begin + seconds * factor, spare={slowest})
                self._wait_for_links()

    def close(self) -> None:
        """End the run cleanly."""
        for run in self._ranks.values():
            run.close()

    def _start(self, settings: Settings, rank: int, node: str, gpu: int) -> pyrometer.Run:
        world = len(settings.nodes) * settings.gpus_per_node
        return pyrometer.start(
            run=settings.run,
            flops_per_token=FLOPS_PER_ROW,
            tokens_per_step=self._rows,
            peak_flops=self._peak / world,
            model="mlp-512-1024-256",
            convention="counted",
            dtype="fp32",
            gpu_model=f"1/{world} of this machine",
            rank=rank,
            local_rank=gpu,
            world_size=world,
            attempt=0,
            gpu=str(gpu),
            uuid=self._hardware.uuid(node, gpu),
            replica=str(rank),
            global_batch_size=self._rows,
            sequence_length=1,
            recompute="none",
            job_id="demo",
            rings=str(Path(settings.folder) / node / "rings"),
        )

    def _compute(self) -> None:
        run = self._reporting
        with run.part("data"):
            inputs, wanted = self._model.batch(self._rows)
        with run.part("forward"):
            hidden, outputs = self._model.forward(inputs)
            error = outputs - wanted
        with run.part("backward"):
            gradients = self._model.backward(inputs, hidden, error)
        with run.part("optimizer"):
            self._model.update(gradients)
        norm = float(np.sqrt(sum(float(np.vdot(g, g)) for g in gradients)))
        run.record(loss=float(np.mean(error * error)), grad_norm=norm)

    def _warm_up(self, rows: int) -> None:
        inputs, wanted = self._model.batch(rows)
        hidden, outputs = self._model.forward(inputs)
        self._model.update(self._model.backward(inputs, hidden, outputs - wanted))

    def _wait(self, until: float, spare: set[tuple[str, int] | None]) -> None:
        """Pass the time until a moment; it is waiting for all ranks but those spared."""
        with contextlib.ExitStack() as parts:
            for place, run in self._ranks.items():
                if place not in spare:
                    parts.enter_context(run.part("wait"))
            time.sleep(max(0.0, until - time.monotonic()))

    def _wait_for_links(self) -> None:
        while not self._hardware.links_up():
            time.sleep(0.02)


def _places(settings: Settings) -> Iterator[tuple[str, int]]:
    for node in settings.nodes:
        for gpu in range(settings.gpus_per_node):
            yield node, gpu


def main(argument: str) -> None:
    """Train until SIGTERM, which is the clean end of the run."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = Settings.parse(argument)
    trainer = Trainer(settings, Hardware(Path(settings.folder), settings.nodes, settings.gpus_per_node))
    print(f"peak {trainer._peak / 1e9:.1f} GFLOP/s, {trainer._rows} rows a step", flush=True)  # noqa: SLF001
    try:
        trainer.train()
    finally:
        trainer.close()


if __name__ == "__main__":
    main(sys.argv[1])
