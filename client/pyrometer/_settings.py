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
else:

    class TypedDict:
        """Stands in for typing's, whose import would be a large part of what `import pyrometer` costs."""

        def __init_subclass__(cls, **_: object) -> None:
            pass


class StartSettings(TypedDict, total=False):
    """The keyword arguments of :func:`pyrometer.start`, which documents them."""

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
    """Those and the run's name."""

    run: str | None


# FLOP/s that a GPU, or a 48th of a slow machine, can have at its peak: below, TFLOP/s were given without their e12.
LEAST_PEAK, MOST_PEAK = 1e7, 1e18
# The first steps compile, tune and fill caches; those who published their MFU leave out the first ten or so.
WARMUP_STEPS = 10
_TEXTS = ("model", "convention", "stage", "replica", "recompute")
_SIZES = ("tokens_per_step", "global_batch_size", "micro_batch_size", "sequence_length")


def describe(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run's description, by the names of its JSON in the ring's header.

    Values are converted, as users pass what they have; missing ones come from the launcher's environment and torch.

    Raises:
        Exception: a value can't be converted; whatever it raises.
    """
    env = os.environ
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    rank, known_local, world_size = ranks_of(given.get("rank"), given.get("local_rank"), given.get("world_size"), env)
    local_rank = rank if known_local is None else known_local
    index, uuid = ("", "") if known_local is None else _environment.gpu(env, local_rank)
    return {
        **{name: str(given.get(name, "")) for name in _TEXTS},
        "dtype": str(given.get("dtype", "")).removeprefix("torch."),
        "run": str(given["run"]) if "run" in given else _environment.run_name(env, sys.argv),
        "clock_offset": _environment.clock_offset(),
        "launcher": os.getppid(),  # tells two jobs of one name apart where no scheduler does
        "rank": rank,
        "local_rank": local_rank,
        "world_size": world_size,
        "attempt": _whole(given.get("attempt", _environment.attempt(env))),
        "job_id": str(given.get("job_id", _environment.job_id(env))),
        "gpu": str(given.get("gpu", index)),
        "uuid": str(given.get("uuid", uuid)),
        "gpu_model": str(given.get("gpu_model", _torch_gpu_model())),
        "reporting": rank == _whole(given.get("reporting_rank", 0)),
        "first_step": _whole(given.get("first_step", 0)),
        "warmup_steps": _whole(given.get("warmup_steps", WARMUP_STEPS)),
        **{name: _whole(given[name]) if name in given else None for name in _SIZES},
        "flops_per_token": float(given["flops_per_token"]) if "flops_per_token" in given else None,
        "peak_flops": _within(LEAST_PEAK, given.get("peak_flops"), MOST_PEAK),
        "expected_mfu": _within(0.0, given.get("expected_mfu"), 1.0),
    }


def slips(settings: RunSettings, description: Mapping[str, Any]) -> list[str]:
    """Return a line for each number in a wrong unit, which the description leaves out, and what to give instead."""
    peak, mfu = settings.get("peak_flops"), settings.get("expected_mfu")
    lines = []
    if peak is not None and description["peak_flops"] is None:
        lines.append(f"peak_flops={peak} is not plausible for a GPU and is ignored: give FLOP/s, such as 989.4e12")
    if mfu is not None and description["expected_mfu"] is None:
        lines.append(f"expected_mfu={mfu} is ignored: give a share from 0 to 1, such as 0.4")
    return lines


def float32_dtype(torch: Any) -> str:  # noqa: ANN401  a module that may not be there
    """Return whose peak products of 32-bit numbers have: fp32's or, where torch may use it, tf32's."""
    return "fp32" if torch is None or torch.get_float32_matmul_precision() == "highest" else "tf32"


def _whole(value: float | str) -> int:
    """Return a whole number, of ``"4e6"`` as well.

    Raises:
        Exception: it is none; whatever it raises.
    """
    try:
        return int(value)
    except ValueError:
        return int(float(value))


def _within(least: float, value: float | str | None, most: float) -> float | None:
    number = least if value is None else float(value)
    return number if least < number <= most else None


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
