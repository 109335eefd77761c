"""A batch as a point of its run's curves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

COLUMNS = (
    "mfu",
    "flops_per_second",
    "seconds",
    "step",
    "loss",
    "grad_norm",
    "steps",
    "reported_mfu",
    "reported_flops_per_second",
)


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
