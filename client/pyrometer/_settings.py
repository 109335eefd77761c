"""The settings of a run, and its description in the ring's header, where the exporter reads them."""

from __future__ import annotations

import os
import sys

from pyrometer import _environment
from pyrometer._ranks import ranks_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypedDict

    class StartSettings(TypedDict, total=False):
        """The settings of :func:`pyrometer.start`, but for the run's name, one by one for type checkers."""

        flops_per_token: float | None
        tokens_per_step: int | None
        peak_flops: float | None
        expected_mfu: float | None
        model: str
        convention: str
        dtype: str
        gpu_model: str | None
        rank: int | None
        local_rank: int | None
        world_size: int | None
        attempt: int | None
        stage: str
        replica: str
        reporting_rank: int
        global_batch_size: int | None
        micro_batch_size: int | None
        sequence_length: int | None
        recompute: str
        job_id: str | None
        gpu: str | None
        uuid: str | None
        first_step: int
        warmup_steps: int
        rings: str | None
        group: str | None
        stacks: object
        links: Mapping[str, str] | None

    class RunSettings(StartSettings, total=False):
        """Add the run's name to the settings."""

        run: str | None


# FLOP/s that a GPU, or a 48th of a slow machine, can have at its peak: below, TFLOP/s were given without their e12.
LEAST_PEAK, MOST_PEAK = 1e7, 1e18
# The first steps compile, tune and fill caches; those who published their MFU leave out the first ten or so.
WARMUP_STEPS = 10


class Settings:
    """The arguments of :func:`pyrometer.start`, which documents them; None where the launcher or torch decides."""

    __slots__ = (
        "attempt", "convention", "dtype", "expected_mfu", "first_step", "flops_per_token", "global_batch_size", "gpu",
        "gpu_model", "group", "job_id", "links", "local_rank", "micro_batch_size", "model", "peak_flops", "rank",
        "recompute", "replica", "reporting_rank", "rings", "run", "sequence_length", "stacks", "stage",
        "tokens_per_step", "uuid", "warmup_steps", "world_size",
    )  # fmt: skip

    def __init__(
        self,
        run: str | None = None,
        *,
        flops_per_token: float | None = None,
        tokens_per_step: int | None = None,
        peak_flops: float | None = None,
        expected_mfu: float | None = None,
        model: str = "",
        convention: str = "",
        dtype: str = "",
        gpu_model: str | None = None,
        rank: int | None = None,
        local_rank: int | None = None,
        world_size: int | None = None,
        attempt: int | None = None,
        stage: str = "",
        replica: str = "",
        reporting_rank: int = 0,
        global_batch_size: int | None = None,
        micro_batch_size: int | None = None,
        sequence_length: int | None = None,
        recompute: str = "",
        job_id: str | None = None,
        gpu: str | None = None,
        uuid: str | None = None,
        first_step: int = 0,
        warmup_steps: int = WARMUP_STEPS,
        rings: str | None = None,
        group: str | None = None,
        stacks: object = None,
        links: Mapping[str, str] | None = None,
    ) -> None:
        self.run = run
        self.flops_per_token = flops_per_token
        self.tokens_per_step = tokens_per_step
        self.peak_flops = peak_flops
        self.expected_mfu = expected_mfu
        self.model = model
        self.convention = convention
        self.dtype = dtype
        self.gpu_model = gpu_model
        self.rank = rank
        self.local_rank = local_rank
        self.world_size = world_size
        self.attempt = attempt
        self.stage = stage
        self.replica = replica
        self.reporting_rank = reporting_rank
        self.global_batch_size = global_batch_size
        self.micro_batch_size = micro_batch_size
        self.sequence_length = sequence_length
        self.recompute = recompute
        self.job_id = job_id
        self.gpu = gpu
        self.uuid = uuid
        self.first_step = first_step
        self.warmup_steps = warmup_steps
        self.rings = rings
        self.group = group
        self.stacks = stacks
        self.links = links


def describe(settings: Settings) -> dict[str, Any]:
    """Return the run's description, by the names of its JSON in the ring's header.

    Values are converted, as users pass what they have; missing ones come from the launcher's environment and torch.

    Raises:
        Exception: a value can't be converted; whatever it raises.
    """
    env = os.environ
    rank, known_local, world_size = ranks_of(settings.rank, settings.local_rank, settings.world_size, env)
    local_rank = rank if known_local is None else known_local
    index, uuid = ("", "") if known_local is None else _environment.gpu(env, local_rank)
    return {
        "model": str(settings.model),
        "convention": str(settings.convention),
        "dtype": str(settings.dtype).removeprefix("torch."),
        "stage": str(settings.stage),
        "replica": str(settings.replica),
        "recompute": str(settings.recompute),
        "run": _environment.run_name(env, sys.argv) if settings.run is None else str(settings.run),
        "clock_offset": _environment.clock_offset(),
        "launcher": os.getppid(),  # tells two jobs of one name apart where no scheduler does
        "rank": rank,
        "local_rank": local_rank,
        "world_size": world_size,
        "attempt": _int(settings.attempt, _environment.attempt(env)),
        "job_id": _str(settings.job_id, _environment.job_id(env)),
        "gpu": _str(settings.gpu, index),
        "uuid": _str(settings.uuid, uuid),
        "gpu_model": _str(settings.gpu_model, _torch_gpu_model()),
        "reporting": rank == _int(settings.reporting_rank, 0),
        "first_step": _int(settings.first_step, 0),
        "warmup_steps": _int(settings.warmup_steps, WARMUP_STEPS),
        "tokens_per_step": _optional_int(settings.tokens_per_step),
        "global_batch_size": _optional_int(settings.global_batch_size),
        "micro_batch_size": _optional_int(settings.micro_batch_size),
        "sequence_length": _optional_int(settings.sequence_length),
        "flops_per_token": _optional_float(settings.flops_per_token),
        "peak_flops": _within(LEAST_PEAK, MOST_PEAK, _optional_float(settings.peak_flops)),
        "expected_mfu": _within(0.0, 1.0, _optional_float(settings.expected_mfu)),
    }


def slips(settings: Settings, description: Mapping[str, Any]) -> list[str]:
    """Return a line for each number in a wrong unit, which the description leaves out, and what to give instead."""
    found = []
    if settings.peak_flops is not None and description["peak_flops"] is None:
        found.append(
            f"peak_flops={settings.peak_flops} is not plausible for a GPU and is ignored: give FLOP/s, such as 989.4e12"
        )
    if settings.expected_mfu is not None and description["expected_mfu"] is None:
        found.append(f"expected_mfu={settings.expected_mfu} is ignored: give a share from 0 to 1, such as 0.4")
    return found


def float32_dtype(torch: Any) -> str:  # noqa: ANN401  a module that may not be there
    """Return whose peak products of 32-bit numbers have: fp32's or, where torch may use it, tf32's."""
    return "fp32" if torch is None or torch.get_float32_matmul_precision() == "highest" else "tf32"


def _int(value: int | str | None, default: int) -> int:
    return default if value is None else _whole(value)


def _whole(value: float | str) -> int:
    """Return a whole number, of ``"4e6"`` as well.

    Raises:
        Exception: it is none; whatever it raises.
    """
    try:
        return int(value)
    except ValueError:
        return int(float(value))


def _str(value: object, default: str) -> str:
    return default if value is None else str(value)


def _optional_int(value: float | str | None) -> int | None:
    return None if value is None else _whole(value)


def _optional_float(value: float | str | None) -> float | None:
    return None if value is None else float(value)


def _within(least: float, most: float, value: float | None) -> float | None:
    return value if value is not None and least < value <= most else None


def _torch_gpu_model() -> str:
    """Return the GPU's name where torch is loaded and has initialised CUDA; neither is done here."""
    torch = sys.modules.get("torch")
    try:
        return str(torch.cuda.get_device_name()) if torch and torch.cuda.is_initialized() else ""
    except Exception:  # noqa: BLE001  a stubbed or half-imported torch
        return ""


def settings_of_environment() -> dict[str, Any]:
    """Return the settings that PYROMETER_SETTINGS and PYROMETER_RUN give, for hooks that no code calls."""
    settings: dict[str, Any] = dict(
        pair.split("=", 1) for pair in os.environ.get("PYROMETER_SETTINGS", "").split() if "=" in pair
    )
    if os.environ.get("PYROMETER_RUN"):
        settings["run"] = os.environ["PYROMETER_RUN"]
    return settings
