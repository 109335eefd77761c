"""The training run of the demo: a loop whose steps take the time that the simulated hardware allows.

One process stands for all 48 ranks, and reports for each of them through the client, as 48 processes would. It waits
instead of computing, so that it takes the same steps on a laptop and on a busy machine: an 8 B model at 41 % MFU of 48
H100. The step is stretched by the slowest GPU's clock, as in synchronous training every rank waits for the slowest;
and while a link is down the step stalls.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyrometer
from pyrometer_simulator.demo.hardware import Hardware
from pyrometer_simulator.demo.orders import Orders
from pyrometer_simulator.demo.topology import JOB, TRAINER
from pyrometer_simulator.vocabulary import MODEL as GPU_MODEL

STEP_SECONDS = 0.25
# Between a rank's crash and the end of the others, and between the end of a job and its next attempt: one that is back
# within a minute is told nobody.
REST_SECONDS, RESTART_SECONDS = 5.0, 120.0
# When each part of a step ends, as a share of it; then the gradients are reduced.
PARTS = (("data", 0.02), ("forward", 0.26), ("backward", 0.76), ("optimizer", 0.8))
# Llama 3 8B: 7.505 G parameters without embeddings, 32 layers of 4096, as PaLM counts them. 23 sequences on 48 H100 in
# 0.25 s are 41 % of 989 TFLOP/s.
SEQUENCE, SEQUENCES = 4096, 23
FLOPS_PER_TOKEN = 6 * 7.505e9 + 12 * 32 * 4096 * SEQUENCE


@dataclass(frozen=True)
class Settings:
    """The demo's settings for the trainer, as JSON in its only argument."""

    run: str
    folder: str
    nodes: tuple[str, ...]
    gpus_per_node: int
    attempt: int = 0

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
        self._random = random.Random(7)
        self._ranks = {place: self._start(settings, rank, *place) for rank, place in enumerate(_places(settings))}
        self._reporting = next(iter(self._ranks.values()))

    def train(self, orders: Orders | None = None) -> None:
        """Train until the process gets SIGTERM, or an order to kill a rank such as ``gpu-003 5``."""
        begin = time.monotonic()
        for number in itertools.count(1):
            if orders is not None and (order := orders.take()):
                node, gpu = order.split()
                self._die(self._ranks[node, int(gpu)])
                return
            slowest, factor = self._hardware.slowest()
            with contextlib.ExitStack() as step:
                for run in self._ranks.values():
                    step.enter_context(run.step())
                self._compute(begin, number)
                self._wait(begin + STEP_SECONDS, spare=set())
                # All but the slowest rank wait for it, in their collective.
                self._wait(begin + STEP_SECONDS * factor, spare={slowest})
                self._wait_for_links()
            # Where others take the CPU a step ends late. The next is the shorter for it, and the pace stays.
            due, now = begin + STEP_SECONDS * factor, time.monotonic()
            begin = due if now - due < STEP_SECONDS / 2 else now

    def _die(self, culprit: pyrometer.Run) -> None:
        """Let a rank crash; the others wait for it until the launcher ends them."""
        culprit.end("RuntimeError")
        with contextlib.ExitStack() as waits:
            for run in self._ranks.values():
                waits.enter_context(run.step())
                waits.enter_context(run.part("wait"))
            time.sleep(REST_SECONDS)
            for run in self._ranks.values():
                run.end("SIGTERM")

    def close(self) -> None:
        """End the run cleanly."""
        for run in self._ranks.values():
            run.close()

    def _start(self, settings: Settings, rank: int, node: str, gpu: int) -> pyrometer.Run:
        world = len(settings.nodes) * settings.gpus_per_node
        return pyrometer.start(
            run=settings.run,
            flops_per_token=FLOPS_PER_TOKEN,
            tokens_per_step=SEQUENCES * SEQUENCE,
            model="llama-3-8b",
            convention="palm",
            dtype="bf16",
            gpu_model=GPU_MODEL,
            rank=rank,
            local_rank=gpu,
            world_size=world,
            attempt=settings.attempt,
            gpu=str(gpu),
            uuid=self._hardware.uuid(node, gpu),
            replica=str(rank),
            global_batch_size=SEQUENCES,
            sequence_length=SEQUENCE,
            recompute="none",
            job_id=str(JOB),
            rings=str(Path(settings.folder) / node / "rings"),
        )

    def _compute(self, begin: float, number: int) -> None:
        for part, end in PARTS:
            with self._reporting.part(part):
                _sleep_until(begin + end * STEP_SECONDS)
        noise = self._random.gauss(1, 0.01)
        self._reporting.record(loss=noise * (1.8 + 9 / number**0.3), grad_norm=noise * (0.4 + 4 / number**0.5))

    def _wait(self, until: float, spare: set[tuple[str, int] | None]) -> None:
        """Pass the time until a moment; it is waiting for all ranks but those spared."""
        with contextlib.ExitStack() as parts:
            for place, run in self._ranks.items():
                if place not in spare:
                    parts.enter_context(run.part("wait"))
            _sleep_until(until)

    def _wait_for_links(self) -> None:
        while not self._hardware.links_up():
            time.sleep(0.02)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _places(settings: Settings) -> Iterator[tuple[str, int]]:
    for node in settings.nodes:
        for gpu in range(settings.gpus_per_node):
            yield node, gpu


def main(argument: str) -> None:
    """Train until SIGTERM, which is the clean end of the run."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = Settings.parse(argument)
    folder = Path(settings.folder)
    hardware, orders = Hardware(folder, settings.nodes, settings.gpus_per_node), Orders(folder, TRAINER)
    for attempt in itertools.count():
        trainer = Trainer(replace(settings, attempt=attempt), hardware)
        try:
            trainer.train(orders)
        finally:
            trainer.close()
        time.sleep(RESTART_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
