"""Who this rank is, from what its launcher put into the environment."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# In order of trust: torchrun (and Kubernetes' training operators), Slurm, Open MPI, PMI (MPICH, Intel MPI), and the
# pods of an indexed Job in Kubernetes.
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JOB_COMPLETION_INDEX")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_WORLD_SIZE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_JOB_ID = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "JOB_NAME")
# torchrun's restarts within one start of the job; nobody allows a thousand.
_RESTARTS_PER_REQUEUE = 1000


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
    """How often the run has been restarted, the same on all ranks and never less than before.

    torchrun begins to count anew when Slurm requeues the job, so both counts make the number: 2001 is the first
    restart after the second requeue. A new job that goes on with the run is the same attempt again, unless the job
    says better in ``PYROMETER_ATTEMPT``.
    """
    requeued = _integer(environ, ("SLURM_RESTART_COUNT",), 0)
    restarted = _integer(environ, ("TORCHELASTIC_RESTART_COUNT",), 0)
    return _integer(environ, ("PYROMETER_ATTEMPT",), requeued * _RESTARTS_PER_REQUEUE + restarted)


def job_id(environ: Mapping[str, str]) -> str:
    """The scheduler's id of the job, or an empty string."""
    # torchrun says "none" where it was given no --rdzv-id.
    return next((environ[name] for name in _JOB_ID if environ.get(name) not in (None, "", "none")), "")


def gpu(environ: Mapping[str, str], local: int) -> tuple[str, str]:
    """Index and UUID of the GPU behind a local rank, each empty where unknown.

    ``CUDA_VISIBLE_DEVICES`` may hold indices (``4,5,6,7``) or UUIDs (``GPU-8f3a...``).
    """
    visible = [name.strip() for name in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if len(visible) == 1:  # as Slurm's --gpus-per-task and Ray do: each rank sees its own GPU only
        name = visible[0]
    else:
        name = visible[local] if local < len(visible) else "" if visible else str(local)
    return ("", name) if name.startswith(("GPU-", "MIG-")) else (name, "")


def describe(given: Mapping[str, Any], warmup_steps: int) -> dict[str, Any]:
    """The run's description as it stands in the ring's header, from start()'s arguments and the environment."""
    env = os.environ
    local = _int(given["local_rank"], local_rank(env))
    index, uuid = gpu(env, local)
    number = _int(given["rank"], rank(env))
    plain = ("model", "convention", "dtype", "stage", "replica", "recompute")
    meta: dict[str, Any] = {key: str(given[key]) for key in plain}
    meta.update(
        run=str(given["run"]),
        rank=number,
        local_rank=local,
        world_size=_int(given["world_size"], world_size(env)),
        attempt=_int(given["attempt"], attempt(env)),
        job_id=_str(given["job_id"], job_id(env)),
        gpu=_str(given["gpu"], index),
        uuid=_str(given["uuid"], uuid),
        gpu_model=_str(given["gpu_model"], _torch_gpu_model()),
        reporting=number == 0,
        first_step=_int(given["first_step"], 0),
        warmup_steps=_int(given["warmup_steps"], warmup_steps),
    )
    for key in ("tokens_per_step", "global_batch_size", "micro_batch_size", "sequence_length"):
        meta[key] = None if given[key] is None else int(given[key])
    for key in ("flops_per_token", "peak_flops", "expected_mfu"):
        meta[key] = None if given[key] is None else float(given[key])
    return meta


def _int(value: int | str | None, default: int) -> int:
    return default if value is None else int(value)


def _str(value: object, default: str) -> str:
    return default if value is None else str(value)


def _torch_gpu_model() -> str:
    """The GPU's name where torch is loaded and has CUDA up already; torch is never imported or woken for it."""
    torch = sys.modules.get("torch")
    try:
        return str(torch.cuda.get_device_name()) if torch and torch.cuda.is_initialized() else ""
    except Exception:  # noqa: BLE001  a stubbed or half-imported torch
        return ""


def _integer(environ: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    for name in names:
        text = environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return default
