"""Folds batches into means where there are more than a consumer can take, so that none is lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from pyrometer_exporters.node.train.batches import Point
from pyrometer_exporters.node.train.mfu import IMPOSSIBLE_MFU


def fold(points: Sequence[Point], limit: int) -> tuple[Point, ...]:
    """Return at most ``limit`` points, each the mean of steps that follow each other, with their number.

    Groups begin at multiples of a power of two in the ring, so that a reply that is asked for twice is the same.
    Batches with tags stay apart from those without; where that leaves too many groups the later ones follow later.
    """
    size = 1
    while len(points) > limit * size:
        size *= 2
    groups = groupby(points, key=lambda point: (point.ring, point.tags, point.sequence // size))
    return tuple(mean(list(group)) for _, group in groups)[:limit]


def mean(points: Sequence[Point]) -> Point:
    """Return the mean of steps that follow each other, with their number; a single one as it is."""
    last = points[-1]
    if len(points) == 1:
        return last
    weights = [point.steps or 1 for point in points]
    seconds = [point.seconds * weight for point, weight in zip(points, weights, strict=True)]
    metrics = dict(pair for point in points for pair in point.metrics)
    # FLOPs of all steps over the seconds of all steps.
    rate = _weighted((point.flops_per_second for point in points), seconds)
    return replace(
        last,
        seconds=sum(seconds) / sum(weights),
        mfu=_mfu(points, seconds, rate),
        flops_per_second=rate,
        loss=_weighted((point.loss for point in points), weights),
        grad_norm=_weighted((point.grad_norm for point in points), weights),
        steps=sum(weights),
        metrics=tuple(metrics.items()),
    )


def _mfu(points: Sequence[Point], seconds: Sequence[float], rate: float | None) -> float | None:
    """Return the MFU of all steps, of those too that are so short that their own can't be true and was left out."""
    judged = [(point, weight) for point, weight in zip(points, seconds, strict=True) if point.mfu is not None]
    mfu = _weighted((point.mfu for point, _ in judged), [weight for _, weight in judged])
    known = _weighted((point.flops_per_second for point, _ in judged), [weight for _, weight in judged])
    if mfu is None or not rate or not known:
        return mfu
    mfu *= rate / known
    return mfu if mfu <= IMPOSSIBLE_MFU else None


def _weighted(values: Iterable[float | None], weights: Sequence[float]) -> float | None:
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total > 0 else None


def falls_behind(points: Iterator[Point], since: float, limit: int) -> bool:
    """Return whether more than ``limit`` of the newest points, newest first, ended after ``since`` in ms."""
    for count, point in enumerate(points):
        if point.timestamp <= since:
            return False
        if count >= limit:
            return True
    return False
