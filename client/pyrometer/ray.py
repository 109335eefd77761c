"""Report from Ray Train's workers, by wrapping the loop that each of them runs.

    import pyrometer.ray

    trainer = TorchTrainer(pyrometer.ray.watch(train_loop_per_worker, tokens_per_step=4_194_304), ...)

Ray ends its workers by a signal: without the wrapper a run that ended well looks killed.
"""

from __future__ import annotations

import os
import sys

from pyrometer._auto import auto
from pyrometer._environment import scheduled_job_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from typing_extensions import Unpack

    from pyrometer._settings import RunSettings


def watch(loop: Callable[..., Any], **settings: Unpack[RunSettings]) -> Callable[..., Any]:
    """Return ``train_loop_per_worker`` with every step of PyTorch's optimizer reported. It raises what the loop raises.

    The run ends with the loop: well where it returns, crashed where it raises. The callbacks for Hugging Face and
    Lightning do the same on their own: use them without this.

    Args:
        loop: Called by each worker, with or without a configuration.
        settings: Those of :func:`pyrometer.start`; the run's name defaults to that of Ray's experiment, the job's id
            and the ranks to Ray's.
    """
    import functools  # noqa: PLC0415  would add to what `import pyrometer` costs

    @functools.wraps(loop)  # Ray looks at the number of arguments
    def reported(*arguments: Any, **named: Any) -> Any:
        merged: dict[str, Any] = {**_context(), **settings}
        with auto(**merged):
            return loop(*arguments, **named)

    return reported


def _context() -> dict[str, Any]:
    """Return what Ray knows about this worker; nothing outside Ray, or in a version that has it elsewhere."""
    try:
        context = sys.modules["ray.train"].get_context()
        return {
            "run": context.get_experiment_name(),
            "rank": context.get_world_rank(),
            "local_rank": context.get_local_rank(),
            "world_size": context.get_world_size(),
            "job_id": _job_id(sys.modules["ray"].get_runtime_context()),
        }
    except Exception:  # noqa: BLE001  no worker of Ray Train: the environment says who this is
        return {}


def _job_id(context: Any) -> str:
    """Return the scheduler's job, else Ray's: it counts from 1 in each of its clusters, so with the head's address."""
    return scheduled_job_id(os.environ) or f"{context.get_job_id()}@{getattr(context, 'gcs_address', '')}"
