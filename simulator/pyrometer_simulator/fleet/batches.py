"""Every batch of the cluster's runs, with its own timestamp."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pyrometer_simulator.fleet.plan import DROP, EPOCH, Plan, Run

# Between two checkpoints.
CHECKPOINT_SECONDS = 1200


def batches(plan: Plan, start: float, end: float) -> Iterator[tuple[str, float, float]]:
    """(series, value, time) of all batches that ended in [start, end)."""
    for number, run in enumerate(plan.runs()):
        target = f'cluster="{plan.cluster}",node="{plan.names()[run.first]}",job="batches",run="{run.name}",attempt="1"'
        until = min(end, plan.stopped(run))
        for step in range(math.ceil((start - EPOCH) / run.step), math.ceil((until - EPOCH) / run.step)):
            if step % (run.line or 1) or (number == 0 and _never_arrives(plan, run, step)):
                continue
            at = EPOCH + step * run.step
            slow = _slowness(run, step, at) * (DROP if _dragged(plan, run, at) else 1)
            yield f"pyrometer_train_batch_mfu_ratio{{{target}}}", round(run.mfu / slow, 5), at
            yield f"pyrometer_train_batch_step_seconds{{{target}}}", round(run.step * slow, 5), at
            yield f"pyrometer_train_batch_step{{{target}}}", step, at
            if run.line:
                yield f"pyrometer_train_batch_steps{{{target}}}", run.line, at
            yield f"pyrometer_train_batch_loss{{{target}}}", round(1.9 + 0.02 * math.sin(step), 5), at
            yield f"pyrometer_train_batch_grad_norm{{{target}}}", round(0.4 + 0.05 * math.sin(step / 7), 5), at
            if int(at) % CHECKPOINT_SECONDS < run.step:
                yield f'pyrometer_train_batch_tag{{{target},tag="checkpoint"}}', 1, at


def _dragged(plan: Plan, run: Run, at: float) -> bool:
    """Whether the run waits for a slow rank."""
    return plan.slowest(run) is not None and at >= plan.faults.since


def _never_arrives(plan: Plan, run: Run, step: int) -> bool:
    every = plan.faults.lost_batch
    return bool(every) and step % max(2, round(every / run.step)) == 0 and EPOCH + step * run.step >= plan.faults.since


def _slowness(run: Run, step: int, at: float) -> float:
    """A little noise; one slow batch a minute in fast runs; a checkpoint now and then."""
    noise = 1 + 0.004 * math.sin(step * 12.9898) + 0.003 * math.sin(step * 78.233)
    if int(at) % CHECKPOINT_SECONDS < max(4, run.step):
        return noise * (20 if run.step < 1 else 1.5)
    return noise * (5.5 if run.step < 1 and step % round(60 / run.step) == 7 else 1)
