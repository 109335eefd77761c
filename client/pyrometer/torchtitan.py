"""A handler for torchtitan's structured logger: reports every step and its parts, with no change of code.

    export TITAN_STRUCT_LOGGER_HANDLERS=pyrometer.torchtitan.handler
    export PYROMETER_RUN=llama-8b PYROMETER_SETTINGS="flops_per_token=57.9e9 tokens_per_step=4194304 dtype=bf16"

To keep torchtitan's own JSON lines, name its handler as well, separated by a comma. Loss and gradient norm come from
its metrics: ``metrics_processor.logger.add_logger(pyrometer.torchtitan.metrics())``.
"""

from __future__ import annotations

import logging

from pyrometer._hooks import never_raises
from pyrometer._settings import settings_of_environment
from pyrometer._trainer_loop import TrainerLoop

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
    """Add the handler to torchtitan's logger, which calls this once per rank if TITAN_STRUCT_LOGGER_HANDLERS names it.

    Args:
        structured_logger: torchtitan's logger.
        rank: The global rank.
        source: torchtitan's name of the program; that of the run unless PYROMETER_RUN gives another.
    """
    structured_logger.addHandler(StepHandler(rank, source))


def metrics() -> _MetricsLogger:
    """Return a logger for torchtitan's LoggerContainer, beside TensorBoard and others."""
    return _MetricsLogger()


class StepHandler(logging.Handler):
    """Turns torchtitan's spans into steps and parts."""

    def __init__(self, rank: int, source: str) -> None:
        super().__init__(logging.INFO)
        self.loop: TrainerLoop | None = None
        self._rank = rank
        self._source = source

    def emit(self, record: logging.LogRecord) -> None:
        """See :class:`logging.Handler`."""
        self._report(record)

    @never_raises
    def _report(self, record: Any) -> None:
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
            defaults = {"run": self._source, "rank": self._rank, "first_step": number or 0}
            self.loop = TrainerLoop(settings_of_environment(), defaults)
        if event == "start":
            self.loop.begin()
        elif event == "error":
            self.loop.discard()
        elif event == "end":
            self.loop.end()


class _MetricsLogger:
    """torchtitan's BaseLogger, by its two methods."""

    @never_raises
    def log(self, metrics: dict[str, Any], _step: int) -> None:
        """Record loss and gradient norm of the step under way; torchtitan has waited for them already."""
        for handler in logging.getLogger(_LOGGER).handlers:
            if isinstance(handler, StepHandler) and handler.loop is not None:
                loss, norm = metrics.get("loss_metrics/global_avg_loss"), metrics.get("grad_norm")
                handler.loop.run.record(loss=loss, grad_norm=norm)

    def close(self) -> None:
        """Do nothing: the run ends with the process."""
