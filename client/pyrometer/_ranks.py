"""Who this rank is: as the job says, else as torch.distributed has it, else by the launcher's environment.

Ranks that ``torch.multiprocessing.spawn`` starts have no environment of their own, or all that of one task of Slurm:
only their process group tells them apart. It may be made after ``start``, so it is asked again at the first step. torch
is looked up in ``sys.modules`` and never imported.
"""

from __future__ import annotations

import os
import sys

from pyrometer import _environment, ring
from pyrometer._cuda import initialized_torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyrometer._run import Run


def ranks_of(
    rank: int | None, local_rank: int | None, world_size: int | None, environ: Mapping[str, str]
) -> tuple[int, int | None, int]:
    """Return global rank, local rank (None where unknown) and number of ranks, given those that the job sets."""
    launched = _environment.rank(environ)
    group = process_group() if rank is None and world_size is None else None
    if group is None:
        local = _environment.local_rank(environ) if local_rank is None else int(local_rank)
        size = _environment.world_size(environ) if world_size is None else int(world_size)
        return launched if rank is None else int(rank), local, size
    if local_rank is not None:
        return group[0], int(local_rank), group[1]
    # Children of one task have all the task's local rank.
    told = group[1] == _environment.world_size(environ) and group[0] == launched
    return group[0], _environment.local_rank(environ) if told else _current_device(), group[1]


def move(run: Run, memory: memoryview, fd: int, path: str) -> None:
    """Have ``run`` go on in another ring, in which all that it recorded is; the one before ends well and is removed.

    To be called at the end of a step, when the step's record is whole but for the count. A run without a ring gets one.

    Raises:
        OSError: the ring can't take the metrics of the job's own.
    """
    before, before_fd, before_path = run.take_ring(memory, fd, path)
    slots = memory.cast("q")
    for first, last in ((ring.STATE_SLOT, ring.META_OFFSET // 8), (ring.PART_NAMES_SLOT, ring.FILE_BYTES // 8)):
        slots[first:last] = before[first:last]
    slots[ring.COUNT_SLOT] = run.steps_finished()
    if before_fd < 0:  # it had no ring until now
        return
    before[ring.STATE_SLOT] = ring.CLOSED
    # Reading leaves a trace in the time of the last access: see _first_steps.Reading.
    os.utime(fd, ns=(os.fstat(before_fd).st_atime_ns, os.fstat(fd).st_mtime_ns))
    os.close(before_fd)
    for old, new in ((before_path, ""), (_stacks(before_path), _stacks(path))):
        try:
            if new:
                os.rename(old, new)
            else:
                os.unlink(old)
        except OSError:
            pass  # no stacks were asked for; removed by somebody else


def _stacks(path: str) -> str:
    return path.removesuffix(ring.SUFFIX) + ring.STACKS_SUFFIX


def process_group() -> tuple[int, int] | None:
    """Return rank and size of PyTorch's default process group, None before it is made."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return None
        return int(distributed.get_rank()), int(distributed.get_world_size())
    except Exception:  # noqa: BLE001  a stubbed or half-imported torch
        return None


def _current_device() -> int | None:
    torch = initialized_torch()
    try:
        return None if torch is None else int(torch.cuda.current_device())
    except Exception:  # noqa: BLE001  an error of CUDA is the job's to report
        return None
