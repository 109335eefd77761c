"""The families of ``/batches``: one timestamped sample per batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyrometer_exporters.framework.metrics import Family, Series
from pyrometer_exporters.node.train.points import LOSS, PendingPoints, RunKey

_RUN = ("run", "attempt")
MFU = Family(
    "pyrometer_train_batch_mfu_ratio",
    "gauge",
    "Model FLOPs utilisation of each batch, 0-1, timestamped with the batch's end; absent where the peak is unknown.",
    _RUN,
)
FLOPS_PER_SECOND = Family(
    "pyrometer_train_batch_flops_per_second",
    "gauge",
    "Model FLOP/s per GPU of each batch, timestamped; known even where the GPU's peak isn't.",
    _RUN,
)
STEP_SECONDS = Family(
    "pyrometer_train_batch_step_seconds", "gauge", "How long each batch took, timestamped with its end.", _RUN
)
STEP = Family("pyrometer_train_batch_step", "gauge", "Number of the step, timestamped with its end.", _RUN)
LOSSES = Family(
    "pyrometer_train_batch_loss",
    "gauge",
    "Loss that the job recorded for the batch, timestamped. In a pipeline whose rank 0 has none, that of a rank of a "
    "later stage, from its node.",
    _RUN,
)
GRAD_NORM = Family(
    "pyrometer_train_batch_grad_norm", "gauge", "Gradient norm that the job recorded for the batch, timestamped.", _RUN
)
TAG = Family(
    "pyrometer_train_batch_tag",
    "gauge",
    "1 at each batch that was tagged (checkpoint, eval, warmup, ramp, restart, skipped), timestamped; absent at "
    "others.",
    (*_RUN, "tag"),
)
STEPS = Family(
    "pyrometer_train_batch_steps",
    "gauge",
    "How many steps a point is the mean of, timestamped: a log may have a line for ten, and a job that makes more "
    "steps than a reply holds is served means. Absent where it is one step of a job that reports.",
    _RUN,
)
REPORTED_MFU = Family(
    "pyrometer_train_batch_reported_mfu_ratio",
    "gauge",
    "MFU as the trainer's own log has it, 0-1, in its own convention and against its own peak, timestamped.",
    _RUN,
)
REPORTED_FLOPS_PER_SECOND = Family(
    "pyrometer_train_batch_reported_flops_per_second",
    "gauge",
    "FLOP/s per GPU as the trainer's own log has it, in the log's own convention, timestamped.",
    _RUN,
)
VALUE = Family(
    "pyrometer_train_batch_value",
    "gauge",
    "A metric that the job recorded for the batch by a name of its own, timestamped: run.record(lr=1e-4). At most 16.",
    (*_RUN, "metric"),
)
FAMILIES = (
    MFU,
    FLOPS_PER_SECOND,
    STEP_SECONDS,
    STEP,
    LOSSES,
    GRAD_NORM,
    STEPS,
    REPORTED_MFU,
    REPORTED_FLOPS_PER_SECOND,
    TAG,
    VALUE,
)


_BY_NAME = {
    "mfu": MFU, "flops_per_second": FLOPS_PER_SECOND, "seconds": STEP_SECONDS, "step": STEP, "loss": LOSSES,
    "grad_norm": GRAD_NORM, "steps": STEPS, "reported_mfu": REPORTED_MFU,
    "reported_flops_per_second": REPORTED_FLOPS_PER_SECOND,
}  # fmt: skip


# Values that any rank of a step may have; times and MFU are those of the reporting rank.
_JOINED = frozenset((LOSS, "grad_norm"))


def series_of(pending: Mapping[RunKey, PendingPoints]) -> Iterator[Series]:
    """Yield the series of all runs' batches."""
    for key, of_run in pending.items():
        series = of_run.series()
        if key[2:] == (LOSS,):
            reporting = pending.get(key[:2])
            served = {} if reporting is None else reporting.series()
            names = [name for name in series if name in _JOINED or name.startswith("value:")]
            yield from (_series(key[:2], name, series[name]) for name in names if name not in served)
            continue
        for name, points in series.items():
            yield _series(key, name, points)


def _series(key: RunKey, name: str, points: list[tuple[float, int]]) -> Series:
    family = _BY_NAME.get(name)
    if family is not None:
        return Series(family, key, points)
    kind, _, label = name.partition(":")
    return Series(VALUE if kind == "value" else TAG, (*key, label), points)
