"""Series of the training runs: every rank's counters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pyrometer_simulator.fleet.plan import EPOCH, HEALTHY, MODEL, PARTS, Faults, Plan, Run
from pyrometer_simulator.fleet.series import Array, Family, absent_where, family, growing, turning

_TOKENS = 4_194_304
_STAGES = 4
_OF_STRAGGLER = {"wait": 0.02, "backward": 0.64}


def ranks(plan: Plan, targets: Sequence[str], dead: int) -> Iterator[Family]:
    """All families of all runs; ``targets`` are the nodes' labels, ``dead`` the node that doesn't answer."""
    for run in plan.runs():
        where = [(run.first + rank // plan.gpus, rank % plan.gpus) for rank in range(run.nodes * plan.gpus)]
        named = [f'{targets[node]},run="{run.name}",attempt="1",rank="{rank}"' for rank, (node, _) in enumerate(where)]
        here = absent_where(np.array([node == dead for node, _ in where]), 1.0)
        yield from _counters(run, named, here)
        yield from _parts(run, named, here, plan.faults if run.first == 0 else HEALTHY)
        yield from _identity(named, where, here)
        yield _configuration(run, targets[run.first], len(where))


def _counters(run: Run, named: list[str], here: Array) -> Iterator[Family]:
    tokens = _TOKENS // len(named)

    def steps(at: float) -> Array:
        return here * float((at - EPOCH) // run.step)

    yield family("pyrometer_train_steps_total", named, steps)
    yield family("pyrometer_train_step_seconds_total", named, growing(here), slow=True)
    yield family("pyrometer_train_tokens_total", named, lambda at: steps(at) * tokens, slow=True)
    yield family("pyrometer_train_last_step_timestamp_seconds", named, lambda at: EPOCH + steps(at) * run.step)
    yield family("pyrometer_train_rank_up", named, here, slow=True)


def _parts(run: Run, named: list[str], here: Array, faults: Faults) -> Iterator[Family]:
    """Where the steps go; the straggler computes longer and waits for nobody."""
    slow = np.arange(len(named)) == (-1 if faults.straggler is None else faults.straggler)
    spread = here * (1 + 0.02 * np.sin(np.arange(len(named))))
    for part, share in PARTS.items():
        before = share * spread
        after = np.where(slow, _OF_STRAGGLER.get(part, share) * here, before)
        labels = [f'{each},part="{part}"' for each in named]
        yield family("pyrometer_train_step_part_seconds_total", labels, turning(before, after, faults.since))
    saving = [f'{each},part="checkpoint"' for each in named]
    yield family("pyrometer_train_step_part_seconds_total", saving, lambda at: here * _saved(at))
    now = [f'{each},part="backward"' for each in named]
    yield family("pyrometer_train_current_part_seconds", now, lambda at: here * round(at % run.step * 0.4, 3))


def _saved(at: float) -> float:
    """Seconds spent on checkpoints: 4 at the begin of every 20 minutes, as the batches are tagged."""
    whole, into = divmod(at - EPOCH + EPOCH % 1200, 1200)
    return 4 * whole + min(4.0, into)


def _identity(named: list[str], where: list[tuple[int, int]], here: Array) -> Iterator[Family]:
    info = [
        f'{each},local_rank="{gpu}",gpu="{gpu}",uuid="GPU-{node:08x}-0000-4000-8000-{gpu:012x}",'
        f'stage="{rank * _STAGES // len(named)}",replica="{rank % _STAGES}"'
        for rank, (each, (node, gpu)) in enumerate(zip(named, where, strict=True))
    ]
    yield family("pyrometer_train_rank_info", info, here, slow=True)


def _configuration(run: Run, target: str, world: int) -> Family:
    told = (
        f'{target},run="{run.name}",attempt="1",world_size="{world}",model="{run.name}",convention="palm",dtype="bf16",'
        f'gpu_model="{MODEL}",global_batch_size="1024",micro_batch_size="1",sequence_length="4096",recompute="none",'
        'job_id="4711"'
    )
    return family("pyrometer_train_run_info", [told], np.ones(1), slow=True)
