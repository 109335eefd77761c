"""Series of the training runs: every rank's counters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from pyrometer_simulator.fleet.plan import DROP, EPOCH, MODEL, PARTS, Plan, Run
from pyrometer_simulator.fleet.series import Array, Family, Values, absent_where, family, turning

_TOKENS = 4_194_304
_STAGES = 4
# Whose steps take as long as all wait for it; the others wait for what they are quicker.
_OF_STRAGGLER = {"wait": 0.01, "backward": 0.57}


def ranks(plan: Plan, targets: Sequence[str], dead: int) -> Iterator[Family]:
    """All families of all runs; ``targets`` are the nodes' labels, ``dead`` the node that doesn't answer."""
    for run in plan.runs():
        where = [(run.first + rank // plan.gpus, rank % plan.gpus) for rank in range(run.nodes * plan.gpus)]
        named = [f'{targets[node]},run="{run.name}",attempt="1",rank="{rank}"' for rank, (node, _) in enumerate(where)]
        here = absent_where(np.array([node == dead for node, _ in where]), 1.0)
        stopped = plan.stopped(run)
        yield from _counters(run, named, here, stopped)
        yield from _parts(plan, run, named, here)
        yield from _now(plan, run, named, here)
        yield from _identity(named, where, here)
        yield _configuration(run, targets[run.first], len(where))


def _counters(run: Run, named: list[str], here: Array, stopped: float) -> Iterator[Family]:
    tokens = _TOKENS // len(named)

    def steps(at: float) -> Array:
        return here * float((min(at, stopped) - EPOCH) // run.step)

    yield family("pyrometer_train_steps_total", named, steps)
    yield family(
        "pyrometer_train_step_seconds_total", named, lambda at: here * round(min(at, stopped) - EPOCH, 3), slow=True
    )
    yield family("pyrometer_train_tokens_total", named, lambda at: steps(at) * tokens, slow=True)
    yield family("pyrometer_train_last_step_timestamp_seconds", named, lambda at: EPOCH + steps(at) * run.step)


def _parts(plan: Plan, run: Run, named: list[str], here: Array) -> Iterator[Family]:
    """Where the steps go; the straggler computes longer and waits for nobody. Who stands still adds nothing."""
    slowest, stopped = plan.slowest(run), plan.stopped(run)
    slow = np.arange(len(named)) == (-1 if slowest is None else slowest)
    spread = here * (1 + 0.02 * np.sin(np.arange(len(named))))
    for part, share in PARTS.items():
        before = share * spread
        others = before / DROP + (1 - 1 / DROP if part == "wait" else 0.0)
        after = before if slowest is None else np.where(slow, _OF_STRAGGLER.get(part, share) * here, others)
        labels = [f'{each},part="{part}"' for each in named]
        moving = turning(before, after, plan.faults.since)
        yield family("pyrometer_train_step_part_seconds_total", labels, _until(stopped, moving))
    saving = [f'{each},part="checkpoint"' for each in named]
    yield family("pyrometer_train_step_part_seconds_total", saving, lambda at: here * _saved(min(at, stopped)))


def _until(stopped: float, values: Values) -> Values:
    """Values that stay what they were at that moment."""
    return lambda at: values(min(at, stopped))


def _now(plan: Plan, run: Run, named: list[str], here: Array) -> Iterator[Family]:
    """Where the ranks are: in a run that stands still all wait, but for the one whose process went with its GPU."""
    stopped = plan.stopped(run)
    gone = np.arange(len(named)) == (plan.rank(run, plan.faults.lost) if math.isfinite(stopped) else -1)
    yield family("pyrometer_train_rank_up", named, here * ~gone, slow=True)
    part = "wait" if math.isfinite(stopped) else "backward"
    labels = [f'{each},part="{part}"' for each in named]

    def since(at: float) -> Array:
        return absent_where(gone, here * round(at - stopped if at > stopped else at % run.step * 0.4, 3))

    yield family("pyrometer_train_current_part_seconds", labels, since)


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
        f'job_id="4711",source="{"log:torchtitan" if run.line else "client"}"'
    )
    return family("pyrometer_train_run_info", [told], np.ones(1), slow=True)
