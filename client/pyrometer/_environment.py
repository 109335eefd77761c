"""Who this rank is, from what its launcher put into the environment."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# In order of trust: torchrun, Slurm, Open MPI, PMI (MPICH, Intel MPI).
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_WORLD_SIZE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_ATTEMPT = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
_JOB_ID = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "JOB_NAME")


def rank(environ: Mapping[str, str]) -> int:
    """The global rank; 0 where no launcher says."""
    return _integer(environ, _RANK, 0)


def local_rank(environ: Mapping[str, str]) -> int:
    """The rank within the node; 0 where no launcher says."""
    return _integer(environ, _LOCAL_RANK, 0)


def world_size(environ: Mapping[str, str]) -> int:
    """How many ranks there are; 1 where no launcher says."""
    return max(1, _integer(environ, _WORLD_SIZE, 1))


def attempt(environ: Mapping[str, str]) -> int:
    """How often the launcher has restarted the job."""
    return _integer(environ, _ATTEMPT, 0)


def job_id(environ: Mapping[str, str]) -> str:
    """The scheduler's id of the job, or an empty string."""
    return next((environ[name] for name in _JOB_ID if environ.get(name)), "")


def gpu(environ: Mapping[str, str], local: int) -> tuple[str, str]:
    """Index and UUID of the GPU behind a local rank, each empty where unknown.

    ``CUDA_VISIBLE_DEVICES`` may hold indices (``4,5,6,7``) or UUIDs (``GPU-8f3a...``).
    """
    visible = [name.strip() for name in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    name = visible[local] if local < len(visible) else "" if visible else str(local)
    return ("", name) if name.startswith(("GPU-", "MIG-")) else (name, "")


def _integer(environ: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    for name in names:
        text = environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return default
