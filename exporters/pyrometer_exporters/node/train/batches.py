"""A batch as a point of its run's curves, and the families of ``/batches``: one timestamped sample per batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from pyrometer_exporters.framework.metrics import Families, Series
from pyrometer_exporters.node.train.mfu import IMPOSSIBLE_MFU

# fmt: off
FAMILIES = Families("run", "job_id", "attempt")
# By the attribute of a point.
COLUMNS = {
    "mfu": FAMILIES.gauge("pyrometer_train_batch_mfu_ratio",
        "Model FLOPs utilisation of each batch, 0-1, timestamped with the batch's end; absent where the peak is "
        "unknown."),
    "flops_per_second": FAMILIES.gauge("pyrometer_train_batch_flops_per_second",
        "Model FLOP/s per GPU of each batch, timestamped; known even where the GPU's peak isn't."),
    "seconds": FAMILIES.gauge("pyrometer_train_batch_step_seconds",
        "How long each batch took, timestamped with its end."),
    "step": FAMILIES.gauge("pyrometer_train_batch_step", "Number of the step, timestamped with its end."),
    "loss": FAMILIES.gauge("pyrometer_train_batch_loss",
        "Loss that the job recorded for the batch, timestamped. In a pipeline whose rank 0 has none, that of a rank of "
        "a later stage, from its node."),
    "grad_norm": FAMILIES.gauge("pyrometer_train_batch_grad_norm",
        "Gradient norm that the job recorded for the batch, timestamped."),
    "steps": FAMILIES.gauge("pyrometer_train_batch_steps",
        "How many steps a point is the mean of, timestamped: a log may have a line for ten, and a job that makes more "
        "steps than a reply holds is served means. Absent where it is one step of a job that reports."),
    "reported_mfu": FAMILIES.gauge("pyrometer_train_batch_reported_mfu_ratio",
        "MFU as the trainer's own log has it, 0-1, in its own convention and against its own peak, timestamped."),
    "reported_flops_per_second": FAMILIES.gauge("pyrometer_train_batch_reported_flops_per_second",
        "FLOP/s per GPU as the trainer's own log has it, in the log's own convention, timestamped."),
}
TAG = FAMILIES.gauge("pyrometer_train_batch_tag",
    "1 at each batch that was tagged (checkpoint, eval, warmup, ramp, restart, skipped), timestamped; absent at "
    "others.", "tag")
VALUE = FAMILIES.gauge("pyrometer_train_batch_value",
    "A metric that the job recorded for the batch by a name of its own, timestamped: run.record(lr=1e-4). At most 16.",
    "metric")
# fmt: on
RunKey = tuple[str, ...]
"""Run, job and attempt; and LOSS for the batches of a rank of which only the loss is served."""
LOSS = "loss"
# Values that any rank of a step may have; times and MFU are those of the reporting rank.
_JOINED = frozenset((LOSS, "grad_norm"))


@dataclass(slots=True)  # not frozen, as that makes each at twice the cost
class Point:
    """One batch; None is unknown. Never changed.

    ``timestamp`` is the end of the step in milliseconds since the epoch, ``sequence`` its number in the rank's ring
    (``ring`` is that file's name), ``step`` its number in the run; ``steps`` is how many a log's line stands for.
    """

    timestamp: int
    sequence: int
    step: int
    seconds: float
    mfu: float | None
    flops_per_second: float | None
    loss: float | None
    grad_norm: float | None
    tags: tuple[str, ...]
    ring: str = ""
    steps: int | None = None
    reported_mfu: float | None = None
    reported_flops_per_second: float | None = None
    metrics: tuple[tuple[str, float], ...] = ()

    def columns(self) -> Iterator[tuple[str, float]]:
        """Yield the values of this batch by the name of their series.

        A tag is ``tag:checkpoint`` with value 1, a metric of the job's own ``value:lr``.
        """
        for name in COLUMNS:
            value = getattr(self, name)
            if value is not None:
                yield name, value
        for tag in self.tags:
            yield f"tag:{tag}", 1.0
        for name, value in self.metrics:
            yield f"value:{name}", value


@dataclass(frozen=True)
class PendingPoints:
    """The reply to a consumer for one run.

    Attributes:
        points: Those that it hasn't taken, after those that it asked for again.
        again: The newest point of each other series, by its name.
    """

    points: tuple[Point, ...]
    again: Mapping[str, Point]

    def series(self) -> dict[str, list[tuple[float, int]]]:
        """Return values and timestamps in ms, in order of time, by the name of their series."""
        series: dict[str, list[tuple[float, int]]] = {}
        for name, point in self.again.items():
            series[name] = [(dict(point.columns())[name], point.timestamp)]
        for point in self.points:
            for name, value in point.columns():
                series.setdefault(name, []).append((value, point.timestamp))
        return series


def series_of(pending: Mapping[RunKey, PendingPoints]) -> Iterator[Series]:
    """Yield the series of all runs' batches."""
    for key, of_run in pending.items():
        series = of_run.series()
        if key[3:] == (LOSS,):
            reporting = pending.get(key[:3])
            served = {} if reporting is None else reporting.series()
            names = [name for name in series if name in _JOINED or name.startswith("value:")]
            yield from (_series(key[:3], name, series[name]) for name in names if name not in served)
            continue
        for name, points in series.items():
            yield _series(key, name, points)


def _series(key: RunKey, name: str, points: list[tuple[float, int]]) -> Series:
    family = COLUMNS.get(name)
    if family is not None:
        return Series(family, key, points)
    kind, _, label = name.partition(":")
    return Series(VALUE if kind == "value" else TAG, (*key, label), points)


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
    rate_of_judged = _weighted((point.flops_per_second for point, _ in judged), [weight for _, weight in judged])
    if mfu is None or not rate or not rate_of_judged:
        return mfu
    mfu *= rate / rate_of_judged
    return mfu if mfu <= IMPOSSIBLE_MFU else None


def _weighted(values: Iterable[float | None], weights: Sequence[float]) -> float | None:
    pairs = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total > 0 else None


def falls_behind(points: Iterator[Point], since: float, limit: int) -> bool:
    """Return whether more than ``limit`` of the newest points, newest first, ended after ``since`` in ms."""
    for count, point in enumerate(points):
        if point.timestamp <= since:
            return False
        if count >= limit:
            return True
    return False
