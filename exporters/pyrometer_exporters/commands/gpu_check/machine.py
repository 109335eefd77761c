"""The machine that the check runs on, in names and numbers that a page may show: no serial number, host or user."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from pathlib import Path
from typing import Any

import pynvml

from pyrometer_exporters.commands.gpu_check.place import Place, say

_LIMITS = ("memory.max", "cpu.max", "pids.max")
_PACKAGES = ("torch", "transformers", "lightning", "nvidia-ml-py", "prometheus-client", "PyYAML", "bcrypt")


def describe(place: Place) -> None:
    """Report the machine; ``gpu`` is empty where no driver answers, and ``no_gpu`` has the reason."""
    described: dict[str, Any] = {
        "stand_in": place.stand_in,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "gpu": "", "no_gpu": "",
        "cuda": not place.stand_in and place.torch() is not None,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "cgroup": {name: _text(Path("/sys/fs/cgroup") / name) for name in _LIMITS},
        "kernel_log": os.access("/dev/kmsg", os.R_OK),
        "packages": {name: _version(name) for name in _PACKAGES},
    }  # fmt: skip
    try:
        with place.nvml() as handle:
            described.update(_gpu(handle))
    except (pynvml.NVMLError, OSError) as error:
        described["no_gpu"] = str(error)
    say(**described)


def _gpu(handle: Any) -> dict[str, Any]:  # noqa: ANN401  NVML's
    return {
        "gpu": _asked("nvmlDeviceGetName", handle),
        "gpus": _asked("nvmlDeviceGetCount"),
        "driver": _asked("nvmlSystemGetDriverVersion"),
        "library": _asked("nvmlSystemGetNVMLVersion"),
        "vbios": _asked("nvmlDeviceGetVbiosVersion", handle),
        "power_limit_watts": (_asked("nvmlDeviceGetEnforcedPowerLimit", handle) or 0) / 1000,
        "persistence": _asked("nvmlDeviceGetPersistenceMode", handle),
        "mig": _asked("nvmlDeviceGetMigMode", handle),
    }


def _asked(function: str, *arguments: Any) -> Any:  # noqa: ANN401  whatever NVML answers
    try:
        answer = getattr(pynvml, function)(*arguments)
    except (pynvml.NVMLError, AttributeError):
        return None
    return answer.decode() if isinstance(answer, bytes) else answer


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
