"""A training run of a situation: its ranks write real rings through the client, on the virtual time of their nodes."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from pyrometer import _ring_file, _run, _step
from pyrometer._ring_file import create_ring
from pyrometer._run import Run
from pyrometer._settings import describe
from pyrometer_simulator.situations.host import Host

# A model of 8 billion parameters has 6 FLOPs per parameter and token.
FLOPS_PER_TOKEN = 48e9
TOKENS_PER_GPU_SECOND = 9000
RANKS_PER_NODE = 8
# The exporter looks at the rings once a second.
LOOK_SECONDS = 1.0

Loss = Callable[[int], float]
Schedule = Callable[[float, Callable[[], object]], None]


class _NoPauses:
    """Takes the place of the counter of garbage collections: those of the simulator's process are no subject."""

    def __init__(self, _step: object) -> None:
        """Count nothing."""

    def stop(self) -> None:
        """Do nothing."""


class SimulatedRank:
    """One rank: the client's own run object over a ring of its own.

    Attributes:
        node: where it runs.
        number: of the rank.
        alive: whether its process lives.
    """

    def __init__(self, node: Host, settings: Mapping[str, Any]) -> None:
        self.node, self.number, self.alive = node, settings["rank"], True
        description = describe(settings)
        folder = str(node.rings)
        name = f"{settings['run']}.{self.number}.{settings.get('attempt')}.{time.monotonic_ns()}"
        with on_clock_of(node), mock.patch.object(_run, "GcPauseCounter", _NoPauses):
            mapping, fd, path = create_ring(folder, name, json.dumps(description).encode())
            self.run = Run(memoryview(mapping), description, fd, path)

    def die(self, how: str = "") -> None:
        """End the process: by an exception of this name, or by a signal, which leaves it no time."""
        self.alive = False
        if how:
            self.run.crash(how)
        else:
            self.run.abandon("killed")

    def close(self) -> None:
        """End the run well."""
        self.alive = False
        self.run.close()


class SimulatedRun:
    """A run on whole nodes that trains a step every ``step`` seconds until something happens to it.

    Args:
        nodes: that it runs on, eight ranks each.
        after: lets something happen so many seconds later.
        name: of the run.
        step: how long a step takes, in whole seconds.
        attempt: how often it was restarted.
        stages: how many pipeline stages; the ranks of the last one have the loss, else all have it.
        loss: returns the loss of a step.
    """

    def __init__(
        self,
        nodes: Sequence[Host],
        after: Schedule,
        *,
        name: str = "llama-8b",
        step: int = 5,
        attempt: int = 0,
        stages: int = 1,
        loss: Loss = lambda step: 2 + 8 / (1 + step),
    ) -> None:
        self._after, self._loss, self.step_seconds = after, loss, step
        self._last_stage = stages - 1
        self._steps = 0
        self._turn = 0
        self._part: tuple[str, float] | None = None
        world = RANKS_PER_NODE * len(nodes)
        self.ranks = [
            SimulatedRank(
                nodes[rank // RANKS_PER_NODE], _settings(rank, world, stages, step, run=name, attempt=attempt)
            )
            for rank in range(world)
        ]
        self._begin()

    @property
    def living(self) -> list[SimulatedRank]:
        """The ranks whose processes live."""
        return [rank for rank in self.ranks if rank.alive]

    def pause(self, part: str, seconds: float) -> None:
        """Enter a part after the step under way, on all ranks, for so many seconds: a checkpoint, an evaluation."""
        self._part = part, seconds

    def diverge(self) -> None:
        """Let the loss be no number from now on."""
        self._loss = lambda _: math.nan

    def hang(self, culprit: int, part: str = "forward") -> None:
        """Let one rank hang; the others come to the next collective two seconds later, and wait."""
        self._turn += 1
        with on_clock_of(self.ranks[culprit].node):
            self.ranks[culprit].run.part(part).__enter__()
        self._after(2, partial(self._wait, self.ranks[culprit]))

    def kill(self, number: int, how: str = "", *, rest_after: float | None = None) -> None:
        """End one rank; the others wait for it, until the launcher ends them ``rest_after`` seconds later."""
        self._turn += 1
        self.ranks[number].die(how)
        self._look(self.ranks[number].node)
        self._after(2, partial(self._wait, self.ranks[number]))
        if rest_after is not None:
            self._after(rest_after, self.kill_all)

    def kill_all(self, how: str = "") -> None:
        """End all ranks by a signal: nobody knows which unless the kernel reports ``how``."""
        self._turn += 1
        for rank in self.living:
            rank.die(how)
            self._look(rank.node)

    def lose(self, node: Host) -> None:
        """End the ranks of a node that is gone; the others wait for them."""
        self._turn += 1
        for rank in self.living:
            if rank.node is node:
                rank.die()
        self._after(2, partial(self._wait, None))

    def end(self) -> None:
        """End the run well on all ranks."""
        self._turn += 1
        for rank in self.living:
            rank.close()

    def _look(self, node: Host) -> None:
        self._after(LOOK_SECONDS, node.look_at_rings)

    def _wait(self, culprit: SimulatedRank | None) -> None:
        def wait(rank: SimulatedRank) -> None:
            if rank is not culprit:
                rank.run.part("wait").__enter__()

        self._on_all(wait)

    def _begin(self) -> None:
        self._on_all(lambda rank: rank.run.step().__enter__())
        self._after(self.step_seconds, partial(self._end_step, self._turn))

    def _end_step(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._steps += 1
        loss = self._loss(self._steps)

        def end(rank: SimulatedRank) -> None:
            if self._has_loss(rank):
                rank.run.record(loss=loss)
            rank.run.step().__exit__(None, None, None)

        self._on_all(end)
        if self._part is None:
            self._begin()
        else:
            (part, seconds), self._part = self._part, None
            self._on_all(lambda rank: rank.run.part(part).__enter__())
            self._after(seconds, partial(self._leave, part, turn))

    def _has_loss(self, rank: SimulatedRank) -> bool:
        last = len(self.ranks) - len(self.ranks) // (self._last_stage + 1)
        return not self._last_stage or rank.number >= last

    def _leave(self, part: str, turn: int) -> None:
        if turn != self._turn:
            return
        self._on_all(lambda rank: rank.run.part(part).__exit__(None, None, None))
        self._begin()

    def _on_all(self, act: Callable[[SimulatedRank], object]) -> None:
        """Let something happen on all living ranks, each on the clock of its node."""
        for node in dict.fromkeys(rank.node for rank in self.living):
            with on_clock_of(node):
                for rank in self.living:
                    if rank.node is node:
                        act(rank)


@contextmanager
def on_clock_of(node: Host) -> Iterator[None]:
    """Let the client read the clock of a node."""

    def now() -> int:
        return round(node.clock.monotonic() * 1e9)

    clock = SimpleNamespace(monotonic_ns=now, time=time.time)
    with mock.patch.object(_step, "_now", now), mock.patch.object(_ring_file, "time", clock):
        yield


def _settings(rank: int, world: int, stages: int, step: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401  texts
    return dict(
        **more,
        rank=rank,
        local_rank=rank % RANKS_PER_NODE,
        world_size=world,
        stage=str(math.floor(rank * stages / world)) if stages > 1 else "",
        flops_per_token=FLOPS_PER_TOKEN,
        tokens_per_step=TOKENS_PER_GPU_SECOND * world * step,
        model="llama-8b",
        convention="palm",
        dtype="bf16",
        gpu_model="NVIDIA H100 80GB HBM3",
        job_id="77",
        gpu=str(rank % RANKS_PER_NODE),
        uuid=f"GPU-{rank:04d}",
    )
