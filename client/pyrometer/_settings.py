"""The settings of a run, and its description in the ring's header, where the exporter reads them."""

from __future__ import annotations

import os
import sys

from pyrometer import _environment
from pyrometer._children import parent_process
from pyrometer._ranks import ranks_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypedDict, TypeVar

    T = TypeVar("T")
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
# A sample holds numbers up to the first exactly; the exporter takes FLOPs up to the second. Beyond is garbage.
MOST_COUNT, MOST_AMOUNT = 1 << 53, 1e30
# The first steps compile, tune and fill caches; those who published their MFU leave out the first ten or so.
WARMUP_STEPS = 10
_TEXTS = ("model", "convention", "stage", "replica", "recompute")
_SIZES = ("tokens_per_step", "global_batch_size", "micro_batch_size", "sequence_length")


def describe(settings: Mapping[str, Any], lines: list[str] | None = None) -> dict[str, Any]:
    """Return the run's description, by the names of its JSON in the ring's header.

    Values are converted, as users pass what they have; missing ones come from the launcher's environment and torch.
    One that can't be used is as good as missing.

    Args:
        settings: Those of :func:`pyrometer.start`.
        lines: Takes a line for each that can't be used, which says what to give instead.
    """
    env = os.environ
    given = _Given(settings, [] if lines is None else lines)
    ranks = [given.take(name, _rank, None) for name in ("rank", "local_rank", "world_size")]
    rank, known_local, world_size = ranks_of(ranks[0], ranks[1], ranks[2], env)
    local_rank = rank if known_local is None else known_local
    index, uuid = ("", "") if known_local is None else _environment.gpu(env, local_rank)
    return {
        **{name: given.take(name, str, "") for name in _TEXTS},
        "dtype": given.take("dtype", str, "").removeprefix("torch."),
        "run": given.take("run", str, "") or _environment.run_name(env, sys.argv),
        "clock_offset": _environment.clock_offset(),
        "launcher": parent_process() or os.getppid(),  # tells two jobs of one name apart where no scheduler does
        "rank": rank,
        "local_rank": local_rank,
        "world_size": world_size,
        "attempt": given.take("attempt", _count, _environment.attempt(env)),
        "job_id": given.take("job_id", str, "") or _environment.job_id(env, world_size),
        "gpu": given.take("gpu", str, index),
        "uuid": given.take("uuid", str, uuid),
        "gpu_model": given.take("gpu_model", str, "") or _torch_gpu_model(),
        "reporting": rank == given.take("reporting_rank", _count, 0),
        "first_step": given.take("first_step", _count, 0),
        "warmup_steps": given.take("warmup_steps", _count, WARMUP_STEPS),
        **{name: given.take(name, _count, None) for name in _SIZES},
        "flops_per_token": given.take("flops_per_token", _amount, None),
        "peak_flops": given.take("peak_flops", _peak, None),
        "expected_mfu": given.take("expected_mfu", _share, None),
    }


class _Given:
    """The settings that a job gave, each converted on its own."""

    def __init__(self, settings: Mapping[str, Any], lines: list[str]) -> None:
        self._settings = settings
        self._lines = lines

    def take(self, name: str, convert: Callable[[Any], T], default: T) -> T:
        """Return a setting converted, the default where it is missing or can't be."""
        value = self._settings.get(name)
        if value is None:
            return default
        try:
            return convert(value)
        except _SlipError as slip:
            self._lines.append(f"{name}={slip}")
        except Exception as error:  # noqa: BLE001  whatever the job's object raises
            self._lines.append(f"{name}={_shown(value)} is ignored: {_shown(error, str)}")
        return default


class _SlipError(Exception):
    """Report a number in a wrong unit or out of its range; the message shows it and says what to give instead."""


def float32_dtype(torch: Any) -> str:  # noqa: ANN401  a module that may not be there
    """Return whose peak products of 32-bit numbers have: fp32's or, where torch may use it, tf32's."""
    return "fp32" if torch is None or torch.get_float32_matmul_precision() == "highest" else "tf32"


def _count(value: float | str) -> int:
    """Return a whole number, of ``"4e6"`` as well.

    Raises:
        Exception: it is none; whatever it raises.
    """
    try:
        number = int(value)
    except ValueError:
        number = int(float(value))
    if not 0 <= number <= MOST_COUNT:
        raise _SlipError(f"{_shown(value)} is ignored: give a whole number, such as 4194304")
    return number


def _rank(value: float | str) -> int | None:
    """Return a rank or the number of ranks, None for the -1 with which launchers say that there is one process."""
    return None if int(value) == -1 else _count(value)


def _amount(value: float | str) -> float:
    number = float(value)
    if not 0.0 <= number < MOST_AMOUNT:
        raise _SlipError(f"{_shown(value)} is ignored: give a number, such as 51.47e9")
    return number


def _peak(value: float | str) -> float:
    number = float(value)
    if not LEAST_PEAK < number <= MOST_PEAK:
        raise _SlipError(f"{value} is not plausible for a GPU and is ignored: give FLOP/s, such as 989.4e12")
    return number


def _share(value: float | str) -> float:
    number = float(value)
    if not 0.0 < number <= 1.0:
        raise _SlipError(f"{value} is ignored: give a share from 0 to 1, such as 0.4")
    return number


def _shown(value: object, show: Callable[[object], str] = repr) -> str:
    try:
        return " ".join(show(value)[:80].split())
    except Exception:  # noqa: BLE001  an object that can't be printed
        return "..."


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
