"""A synchronous training run, step by step: what each rank did in each step, and when the steps ended.

Every rank works for its own time and waits for the slowest: in a tensor-parallel group within the work itself, which
makes the group equally slow, everybody else at the end of the step. Nothing else connects a fault with the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pyrometer_simulator.incidents.cluster import Layout

Floats = npt.NDArray[np.float64]
PARTS = ("data", "forward", "backward", "checkpoint", "eval", "gc", "optimizer", "wait")
DATA, FORWARD, BACKWARD, CHECKPOINT, EVAL, GC, OPTIMIZER, WAIT = range(8)
_COMPUTE = 0.86  # of a healthy step; the rest is below
_DATA, _OPTIMIZER, _COMMUNICATION = 0.015, 0.055, 0.07
WARMUP_STEPS = 3


@dataclass
class Attempt:
    """The steps of one attempt: `ends` by step, `parts` by (step, rank, part) in seconds, `tags` and `work` by step.

    `nodes` are the indexes of its nodes in the order of its ranks. `stopped` is when the last step, which never ended,
    stopped, with the part that each rank is in.
    """

    number: int
    begin: float
    nodes: list[int]
    ends: Floats
    parts: npt.NDArray[np.float32]
    tags: list[str]
    mfu: Floats
    first_step: int
    stopped: float | None = None
    held: dict[int, int] = field(default_factory=dict)
    gone: tuple[int, ...] = ()
    over: float | None = None


Effect = Callable[[float, Floats], Floats]
"""Return seconds by rank that a step starting at a time takes longer, given the ranks' usual compute seconds."""


@dataclass
class Script:
    """The events of a run; times in Unix seconds.

    Attributes:
        compute: effects on the ranks' own work.
        parts: effects booked as the part with this number.
        communication: seconds that everybody waits longer in the step that starts at a time.
        stop: when the run stops, in which part it holds which rank, and which ranks' processes are gone.
        restart: when it starts again after a stop, and on which nodes.
        work: factors on the work of a batch, by the time at which its step starts.
        tags: which batches are tagged: from, to, tag.
        checkpoint_every, checkpoint_seconds: its ordinary checkpoints; 0 for none.
        given: the MFU that the job expects, if it says so.
    """

    compute: list[Effect] = field(default_factory=list)
    parts: list[tuple[int, Effect]] = field(default_factory=list)
    communication: list[Callable[[float], float]] = field(default_factory=list)
    work: list[Callable[[float], float]] = field(default_factory=list)
    tags: list[tuple[float, float, str]] = field(default_factory=list)
    stop: tuple[float, dict[int, int], tuple[int, ...]] | None = None
    restart: tuple[float, list[int]] | None = None
    given: bool = False
    checkpoint_every: float = 0.0
    checkpoint_seconds: float = 0.0


def simulate(layout: Layout, script: Script, begin: float, end: float, random: np.random.Generator) -> list[Attempt]:
    """Return the attempts of a run between two times."""
    first = _attempt(layout, script, _Start(0, list(layout.members), begin, 1000), end, random)
    if script.restart is None or script.stop is None:
        return [first]
    at, nodes = script.restart
    first.over = min(at - 20.0, script.stop[0] + 60.0)
    later = Script(**{**vars(script), "stop": None})
    return [first, _attempt(layout, later, _Start(1, nodes, at, first.first_step + len(first.ends)), end, random)]


@dataclass(frozen=True)
class _Start:
    """The beginning of an attempt: its number, its nodes, when and with which step."""

    number: int
    nodes: list[int]
    begin: float
    step: int


def _attempt(layout: Layout, script: Script, start: _Start, end: float, random: np.random.Generator) -> Attempt:
    ranks = layout.ranks
    bias = 1 + 0.004 * random.standard_normal(ranks)
    bias *= 1 + 0.006 * np.array([layout.stage(rank) for rank in range(ranks)]) / max(layout.stages, 1)
    ends: list[float] = []
    parts: list[Floats] = []
    tags: list[str] = []
    mfu: list[float] = []
    now, save_at = start.begin, start.begin + 0.6 * script.checkpoint_every
    until = min(end, script.stop[0] if script.stop else end)
    while now < until:
        row, work = _step(layout, script, now, bias, random)
        if start.number and len(ends) < WARMUP_STEPS:
            row[:, FORWARD] += layout.step * 2.0 / (len(ends) + 1)
        tag = next((name for start, stop, name in script.tags if start <= now < stop), "")
        if script.checkpoint_every and now >= save_at:
            save_at += script.checkpoint_every
            row[:, CHECKPOINT] += script.checkpoint_seconds
            tag = tag or "checkpoint"
        if start.number and len(ends) < WARMUP_STEPS:
            tag = "restart"
        seconds = float(row[0].sum())
        now += seconds
        ends.append(now)
        parts.append(row)
        tags.append(tag)
        mfu.append(layout.mfu * layout.step * work / seconds)
    attempt = Attempt(
        start.number,
        start.begin,
        start.nodes,
        np.array(ends),
        np.array(parts, np.float32),
        tags,
        np.array(mfu),
        start.step,
    )
    if script.stop is not None:
        _hold(attempt, script.stop)
    return attempt


def _hold(attempt: Attempt, stop: tuple[float, dict[int, int], tuple[int, ...]]) -> None:
    """Let the last step never end."""
    at, attempt.held, attempt.gone = stop
    if len(attempt.ends) and attempt.ends[-1] > at:
        attempt.ends, attempt.parts = attempt.ends[:-1], attempt.parts[:-1]
        attempt.tags, attempt.mfu = attempt.tags[:-1], attempt.mfu[:-1]
    attempt.stopped = at


def _step(
    layout: Layout, script: Script, now: float, bias: Floats, random: np.random.Generator
) -> tuple[Floats, float]:
    """Return the seconds of each rank in each part of one step, and the work of the batch (1: the usual)."""
    ranks = layout.ranks
    work = 1.0
    for factor in script.work:
        work *= factor(now)
    usual = layout.step * _COMPUTE * work * bias
    compute = usual * (1 + 0.006 * random.standard_normal(ranks))
    for effect in script.compute:
        compute = compute + effect(now, usual)
    compute = np.repeat(compute.reshape(-1, layout.tensor).max(axis=1), layout.tensor)
    row = np.zeros((ranks, len(PARTS)))
    row[:, DATA] = layout.step * _DATA * np.abs(1 + 0.2 * random.standard_normal(ranks))
    row[:, OPTIMIZER] = layout.step * _OPTIMIZER
    row[:, FORWARD], row[:, BACKWARD] = compute * 0.34, compute * 0.66
    for part, effect in script.parts:
        row[:, part] += effect(now, usual)
    own = row.sum(axis=1)
    communication = layout.step * _COMMUNICATION * abs(1 + 0.05 * random.standard_normal())
    communication += sum(extra(now) for extra in script.communication)
    row[:, WAIT] = own.max() - own + communication
    return row, work
