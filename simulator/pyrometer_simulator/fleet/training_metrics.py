"""Metrics of the training runs: every rank's counters, and every batch with its own timestamp."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from pyrometer_simulator import vocabulary
from pyrometer_simulator.fleet.plan import DROP, EPOCH, PARTS, Plan, Run
from pyrometer_simulator.fleet.series import Array, Family, Values, counter_with_turn, family, nan_where
from pyrometer_simulator.vocabulary import text

_TOKENS = 4_194_304
_STAGES = 4
CHECKPOINT_SECONDS = 1200  # between two checkpoints
# The parts of a straggler's step; the faster ranks wait for the difference.
_OF_STRAGGLER = {"wait": 0.01, "backward": 0.57}


def rank_families(plan: Plan, targets: Sequence[str], dead: int) -> Iterator[Family]:
    """Yield the families of all runs.

    Args:
        plan: the cluster.
        targets: the nodes' labels.
        dead: the node whose exporter is down; -1 for none.
    """
    for run in plan.runs():
        where = [(run.first + rank // plan.gpus, rank % plan.gpus) for rank in range(run.nodes * plan.gpus)]
        ranks = [text(vocabulary.rank(run.name, 1, rank, run.job)) for rank in range(len(where))]
        named = [f"{targets[node]},{labels}" for (node, _), labels in zip(where, ranks, strict=True)]
        here = nan_where(np.array([node == dead for node, _ in where]), 1.0)
        stopped = plan.stopped(run)
        yield from _counters(run, named, here, stopped)
        yield from _parts(plan, run, named, here)
        yield from _current_part(plan, run, named, here)
        yield from _identity(named, where, here)
        source = "log:torchtitan" if run.line else "client"
        configured = text(vocabulary.run_info(run.name, 1, len(where), run.job, source))
        yield family("pyrometer_train_run_info", [f"{targets[run.first]},{configured}"], np.ones(1), slow=True)
        yield from _elsewhere(run, targets[run.first])
        if run.line:  # a log whose first lines have steps of no time: such batches have no MFU
            reason = f'{targets[run.first]},{run.labels},attempt="1",reason="implausible"'
            yield family("pyrometer_train_mfu_unknown_info", [reason], np.ones(1), slow=True)


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
    """Yield the parts of the step: a straggler computes longer and never waits; a stopped run adds nothing."""
    slowest, stopped = plan.slowest(run), plan.stopped(run)
    slow = np.arange(len(named)) == (-1 if slowest is None else slowest)
    spread = here * (1 + 0.02 * np.sin(np.arange(len(named))))
    for part, share in PARTS.items():
        before = share * spread
        others = before / DROP + (1 - 1 / DROP if part == "wait" else 0.0)
        after = before if slowest is None else np.where(slow, _OF_STRAGGLER.get(part, share) * here, others)
        labels = [f'{each},part="{part}"' for each in named]
        moving = counter_with_turn(before, after, plan.faults.since)
        yield family("pyrometer_train_step_part_seconds_total", labels, _frozen_at(stopped, moving))
    saving = [f'{each},part="checkpoint"' for each in named]
    yield family(
        "pyrometer_train_step_part_seconds_total", saving, lambda at: here * _checkpoint_seconds(min(at, stopped))
    )


def _frozen_at(stopped: float, values: Values) -> Values:
    """Return values that freeze when the run stops."""
    return lambda at: values(min(at, stopped))


def _current_part(plan: Plan, run: Run, named: list[str], here: Array) -> Iterator[Family]:
    """Yield the part that each rank is in: in a stopped run all wait, except the rank that died with its GPU."""
    stopped = plan.stopped(run)
    gone = np.arange(len(named)) == (plan.rank(run, plan.faults.lost) if math.isfinite(stopped) else -1)
    yield family("pyrometer_train_rank_up", named, here * ~gone, slow=True)
    yield family("pyrometer_train_rank_start_timestamp_seconds", named, here * float(EPOCH), slow=True)
    part = "wait" if math.isfinite(stopped) else "backward"
    labels = [f'{each},part="{part}"' for each in named]

    def since(at: float) -> Array:
        return nan_where(gone, here * round(at - stopped if at > stopped else at % run.step * 0.4, 3))

    yield family("pyrometer_train_current_part_seconds", labels, since)


def _checkpoint_seconds(at: float) -> float:
    """Return the seconds spent on checkpoints: 4 at the start of every 20 minutes, as the batches are tagged."""
    whole, into = divmod(at - EPOCH + EPOCH % 1200, 1200)
    return 4 * whole + min(4.0, into)


def _identity(named: list[str], where: list[tuple[int, int]], here: Array) -> Iterator[Family]:
    info = [
        f"{each},{text(vocabulary.rank_place(node, gpu, rank * _STAGES // len(named), rank % _STAGES))}"
        for rank, (each, (node, gpu)) in enumerate(zip(named, where, strict=True))
    ]
    yield family("pyrometer_train_rank_info", info, here, slow=True)


def _elsewhere(run: Run, target: str) -> Iterator[Family]:
    """Yield whose time the batches have, and the run's page in a tracker."""
    if run.line:
        return
    named = f'{target},{run.labels},attempt="1"'
    page = f'name="wandb",url="https://wandb.ai/lab/pretraining/runs/{run.name}"'
    yield family("pyrometer_train_timing_info", [f'{named},timing="device"'], np.ones(1), slow=True)
    yield family("pyrometer_train_run_link_info", [f"{named},{page}"], np.ones(1), slow=True)


def batches(plan: Plan, start: float, end: float) -> Iterator[tuple[str, float, float]]:
    """Yield (series, value, time) of all batches that ended in [start, end), in seconds since the epoch."""
    for number, run in enumerate(plan.runs()):
        target = f'cluster="{plan.cluster}",node="{plan.names()[run.first]}",job="batches",{run.labels},attempt="1"'
        until = min(end, plan.stopped(run))
        for step in range(math.ceil((start - EPOCH) / run.step), math.ceil((until - EPOCH) / run.step)):
            if step % (run.line or 1) or (number == 0 and _is_lost(plan, run, step)):
                continue
            at = EPOCH + step * run.step
            slow = _slowdown(run, step, at) * (DROP if _is_slowed(plan, run, at) else 1)
            yield f"pyrometer_train_batch_mfu_ratio{{{target}}}", round(run.mfu / slow, 5), at
            yield f"pyrometer_train_batch_step_seconds{{{target}}}", round(run.step * slow, 5), at
            yield f"pyrometer_train_batch_step{{{target}}}", step, at
            if run.line:
                yield f"pyrometer_train_batch_steps{{{target}}}", run.line, at
            yield f"pyrometer_train_batch_loss{{{target}}}", round(1.9 + 0.02 * math.sin(step), 5), at
            yield f"pyrometer_train_batch_grad_norm{{{target}}}", round(0.4 + 0.05 * math.sin(step / 7), 5), at
            if int(at) % CHECKPOINT_SECONDS < run.step:
                yield f'pyrometer_train_batch_tag{{{target},tag="checkpoint"}}', 1, at


def _is_slowed(plan: Plan, run: Run, at: float) -> bool:
    """Return whether the run waits for a slow rank."""
    return plan.slowest(run) is not None and at >= plan.faults.since


def _is_lost(plan: Plan, run: Run, step: int) -> bool:
    every = plan.faults.lost_batch
    return bool(every) and step % max(2, round(every / run.step)) == 0 and EPOCH + step * run.step >= plan.faults.since


def _slowdown(run: Run, step: int, at: float) -> float:
    """Return the factor on a step's time: noise, one slow batch a minute in fast runs, and checkpoints."""
    noise = 1 + 0.004 * math.sin(step * 12.9898) + 0.003 * math.sin(step * 78.233)
    if int(at) % CHECKPOINT_SECONDS < max(4, run.step):
        return noise * (20 if run.step < 1 else 1.5)
    return noise * (5.5 if run.step < 1 and step % round(60 / run.step) == 7 else 1)
