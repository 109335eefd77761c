"""Who this rank is, from the environment variables that its launcher sets."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# In order of trust: torchrun (and Kubernetes' training operators), Slurm, Open MPI, PMI (MPICH, Intel MPI), and the
# pods of an indexed Job in Kubernetes.
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JOB_COMPLETION_INDEX")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_WORLD_SIZE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_JOB_ID = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "JOB_NAME")
# torchrun's restarts within one start of the job; nobody allows a thousand.
_RESTARTS_PER_REQUEUE = 1000


def rank(environ: Mapping[str, str]) -> int:
    """Return the global rank, 0 where no launcher sets it."""
    return _first_integer(environ, _RANK, 0)


def local_rank(environ: Mapping[str, str]) -> int:
    """Return the rank within the node, 0 where no launcher sets it."""
    return _first_integer(environ, _LOCAL_RANK, 0)


def world_size(environ: Mapping[str, str]) -> int:
    """Return the number of ranks, 1 where no launcher sets it."""
    return max(1, _first_integer(environ, _WORLD_SIZE, 1))


def attempt(environ: Mapping[str, str]) -> int:
    """Return how often the run has been restarted: the same number on all ranks, and it never decreases.

    torchrun counts from 0 again when Slurm requeues the job, so the number is made of both counts: 2001 is the first
    restart after the second requeue. A new job that continues the run has the same attempt again, unless the job sets
    ``PYROMETER_ATTEMPT``.
    """
    requeues = _first_integer(environ, ("SLURM_RESTART_COUNT",), 0)
    restarts = _first_integer(environ, ("TORCHELASTIC_RESTART_COUNT",), 0)
    return _first_integer(environ, ("PYROMETER_ATTEMPT",), requeues * _RESTARTS_PER_REQUEUE + restarts)


def job_id(environ: Mapping[str, str]) -> str:
    """Return the scheduler's id of the job, or an empty string."""
    # torchrun sets "none" where it has no --rdzv-id.
    return next((environ[name] for name in _JOB_ID if environ.get(name) not in (None, "", "none")), "")


def gpu(environ: Mapping[str, str], local: int) -> tuple[str, str]:
    """Return index and UUID of the GPU of a local rank, each empty where unknown.

    ``CUDA_VISIBLE_DEVICES`` may hold indices (``4,5,6,7``) or UUIDs (``GPU-8f3a...``).
    """
    visible = [name.strip() for name in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if len(visible) == 1:  # as Slurm's --gpus-per-task and Ray do: each rank sees its own GPU only
        name = visible[0]
    else:
        name = visible[local] if local < len(visible) else "" if visible else str(local)
    return ("", name) if name.startswith(("GPU-", "MIG-")) else (name, "")


def _first_integer(environ: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    for name in names:
        text = environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return default
