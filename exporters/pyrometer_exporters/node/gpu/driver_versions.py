"""The versions of driver and library: after an upgrade without a reboot they differ, and NVML refuses to start.

Source: ``<procfs>/driver/nvidia/version``, whose first line is ``NVRM version: NVIDIA UNIX x86_64 Kernel Module
550.54.15  Tue Mar  5 22:23:56 UTC 2024`` or ``NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  590.48.01
Release Build ...``; NVML's nvmlSystemGetNVMLVersion, ``13.590.48.01``: CUDA's major number before the driver's; and the
file that a new process would load, ``libnvidia-ml.so.1`` beside the one in ``<procfs>/self/maps``: packages that are
exchanged leave the old library in the memory of those who have it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from pyrometer_exporters.framework.metrics import Families, Sample
from pyrometer_exporters.node.gpu.clock_events import version_numbers
from pyrometer_exporters.node.gpu.driver import Driver

# fmt: off
_ROWS = Families()
DRIVER_INFO = _ROWS.gauge("pyrometer_gpu_driver_info",
    "1; versions of the driver as NVML reports it, of the installed NVML library (the loaded one where that can't be "
    "seen), and of the loaded kernel module (from /proc/driver/nvidia/version); empty where unknown.",
    "driver", "library", "kernel_module")
DRIVER_MISMATCH = _ROWS.gauge("pyrometer_gpu_driver_mismatch",
    "1 if library and kernel module are of different drivers, else 0: the node needs a driver reload or a reboot, "
    "though running jobs go on; absent where one of the two is unknown.")
# fmt: on
FAMILIES = tuple(_ROWS)

_MODULE = re.compile(r"^NVRM version:.*?Kernel Module\b.*?\s(\d+(?:\.\d+)+)\s", re.MULTILINE)
_MAPPED = re.compile(r"\s(/.*)/libnvidia-ml\.so\.[\d.]+(?: \(deleted\))?$", re.MULTILINE)
_SONAME = "libnvidia-ml.so.1"


def kernel_module_version(procfs: Path) -> str:
    """Return the loaded kernel module's version; empty if there is none or it can't be read."""
    try:
        text = (procfs / "driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    version = _MODULE.search(text)
    return version.group(1) if version else ""


def library_folder(procfs: Path) -> Path | None:
    """Return the folder that this process has loaded the NVML library from; None where that can't be seen."""
    try:
        text = (procfs / "self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    folder = _MAPPED.search(text)
    return Path(folder.group(1)) if folder else None


def installed_library(folder: Path) -> str:
    """Return the version of the library that a new process would load; empty where the file's name doesn't say it."""
    version = os.path.realpath(folder / _SONAME).rpartition(".so.")[2]
    return version if len(version_numbers(version)) > 1 else ""


def differ(library: str, kernel_module: str) -> bool | None:
    """Return whether the two are of different drivers; None if one is unknown.

    >>> differ("13.590.48.01", "590.48.01"), differ("12.550.54", "550.54.15"), differ("13.590.48.01", "580.82.07")
    (False, False, True)
    """
    ours, loaded = version_numbers(library), version_numbers(kernel_module)
    if not ours or not loaded:
        return None
    if ours[0] < 100:  # CUDA's major number; drivers are in the hundreds
        ours = ours[1:]
    shared = min(len(ours), len(loaded))  # some releases leave out the last part
    return ours[:shared] != loaded[:shared]


class Versions:
    """The samples of both families; module and folder are looked up again whenever the connection changed."""

    def __init__(self, driver: Driver, procfs: Path) -> None:
        self._driver = driver
        self._procfs = procfs
        self._module = ""
        self._folder: Path | None = None
        self._as_of: object = self  # nothing is as of now

    def samples(self) -> Iterable[Sample]:
        """Return the samples of now."""
        link = self._driver.link
        if link is None or link is not self._as_of:
            self._module, self._as_of = kernel_module_version(self._procfs), link
            self._folder = library_folder(self._procfs)
        library = installed_library(self._folder) if self._folder else ""
        library = library or self._driver.library
        if library or self._module:
            yield DRIVER_INFO.sample(1, link.driver if link else "", library, self._module)
        mismatch = differ(library, self._module)
        if self._driver.error.reason == "driver_version_mismatch" and link is None:
            mismatch = True
        if mismatch is not None:
            yield DRIVER_MISMATCH.sample(int(mismatch))
