"""The packages that our images need, in a folder: so that they are built as a site without PyPI builds them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyrometer_simulator.engine.daemon import EngineError

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def fill(project: Path, folder: Path, python: str) -> None:
    """Fill ``folder`` with wheels for a Python version such as ``3.14``: the project's needs and its build backend's.

    Raises:
        EngineError: pip can't fetch them.
    """
    own = folder.with_name(f"{folder.name}-own")
    _pip("wheel", "--no-deps", "--wheel-dir", str(own), str(project))
    (wheel,) = own.glob("pyrometer-*.whl")
    _pip(
        "download", "--dest", str(folder), "--only-binary=:all:", "--implementation=cp", f"--python-version={python}",
        *(f"--platform={platform}" for platform in PLATFORMS), "hatchling", f"{wheel}[exporters,alerting,demo]",
    )  # fmt: skip
    for path in folder.glob("pyrometer-*.whl"):
        path.unlink()  # the image builds its own


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines() or ["no output"]
        msg = f"pip {arguments[0]}: {lines[-1]}"
        raise EngineError(msg)
