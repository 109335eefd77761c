"""A handler for torchtitan's structured logger: every step and its parts, with no change of code.

    export TITAN_STRUCT_LOGGER_HANDLERS=pyrometer.torchtitan.handler
    export PYROMETER_RUN=llama-8b PYROMETER_SETTINGS="flops_per_token=57.9e9 tokens_per_step=4194304 dtype=bf16"

torchtitan's own JSON lines go on with its handler named beside ours, after a comma. Loss and gradient norm come from
its metrics: ``metrics_processor.logger.add_logger(pyrometer.torchtitan.metrics())``.
"""

from __future__ import annotations

import logging
import os

from pyrometer._loop import Loop, harmless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LOGGER = "torchtitan.structured_logger"
# torchtitan times forward and backward as one; on the GPU most of it is the backward pass.
_PARTS = {
    "fetching_batch": "data", "fwd_bwd": "backward", "optim": "optimizer", "collect_dist_metrics": "wait",
    "checkpoint_save": "checkpoint", "eval": "eval", "gc_collect": "gc",
}  # fmt: skip


def handler(structured_logger: logging.Logger, rank: int, source: str, **_: Any) -> None:
    """What TITAN_STRUCT_LOGGER_HANDLERS names; torchtitan calls it once per rank."""
    structured_logger.addHandler(StepHandler(rank, source))


def metrics() -> _Metrics:
    """A logger for torchtitan's LoggerContainer, beside TensorBoard and others."""
    return _Metrics()


class StepHandler(logging.Handler):
    """Spans as steps and parts."""

    def __init__(self, rank: int, source: str) -> None:
        super().__init__(logging.INFO)
        self.loop: Loop | None = None
        self._rank = rank
        self._source = source

    def emit(self, record: logging.LogRecord) -> None:
        """See :class:`logging.Handler`."""
        self._take(record)

    @harmless
    def _take(self, record: Any) -> None:
        name, _, event = record.log_type_name.rpartition("_")
        if name == "step":
            self._step(event, record.step)
        elif name in _PARTS and self.loop is not None:
            part = self.loop.run.part(_PARTS[name])
            if event == "start":
                part.__enter__()
            elif event == "end":
                part.__exit__(None, None, None)

    def _step(self, event: str, number: int | None) -> None:
        if self.loop is None:
            self.loop = Loop(_settings(), {"run": self._source, "rank": self._rank, "first_step": number or 0})
        if event == "start":
            self.loop.begin()
        elif event == "error":
            self.loop.drop()
        elif event == "end":
            self.loop.end()


class _Metrics:
    """torchtitan's BaseLogger, by its two methods."""

    @harmless
    def log(self, metrics: dict[str, Any], _step: int) -> None:
        """Numbers of the step under way; torchtitan has waited for them already."""
        for found in logging.getLogger(_LOGGER).handlers:
            if isinstance(found, StepHandler) and found.loop is not None:
                loss, norm = metrics.get("loss_metrics/global_avg_loss"), metrics.get("grad_norm")
                found.loop.run.record(loss=loss, grad_norm=norm)

    def close(self) -> None:
        """The run's end is the process'."""


def _settings() -> dict[str, Any]:
    """Arguments of :func:`pyrometer.start` from the environment."""
    found: dict[str, Any] = dict(
        pair.split("=", 1) for pair in os.environ.get("PYROMETER_SETTINGS", "").split() if "=" in pair
    )
    if os.environ.get("PYROMETER_RUN"):
        found["run"] = os.environ["PYROMETER_RUN"]
    return found
