"""A folder with the packages that our images need: they are built from it as a site without PyPI builds them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

from pyrometer_simulator.engine.daemon import EngineError

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
DISTRIBUTIONS = ("kit", "client", "exporters", "alerting", "simulator")
EXTRAS = {"pyrometer_alerting": "[postgresql]"}  # of compose/requirements/alerting.txt


def fill(project: Path, folder: Path, python: str) -> None:
    """Fill ``folder`` with wheels for a Python version such as ``3.14``: the project's needs and its build backend.

    Raises:
        EngineError: pip can't fetch them.
    """
    own = folder.with_name(f"{folder.name}-own")
    _pip("wheel", "--no-deps", "--wheel-dir", str(own), *(str(project / name) for name in DISTRIBUTIONS))
    constraints = own / "constraints.txt"
    constraints.write_text("\n".join(pinned(project / "constraints.txt", python)) + "\n")
    _pip(
        "download", "--dest", str(folder), "--only-binary=:all:", "--implementation=cp", f"--python-version={python}",
        *(f"--platform={platform}" for platform in PLATFORMS), f"--constraint={constraints}", "hatchling",
        *(f"{wheel}{EXTRAS.get(wheel.name.partition('-')[0], '')}" for wheel in own.glob("*.whl")),
    )  # fmt: skip
    for path in folder.glob("pyrometer*.whl"):
        path.unlink()  # the image builds its own


def pinned(constraints: Path, python: str) -> list[str]:
    """Return the constraints that apply to a Python version: pip evaluates markers for the Python it runs on."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    lines = constraints.read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return [
        f"{requirement.name}{requirement.specifier}"
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate(environment)
    ]


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines() or ["no output"]
        msg = f"pip {arguments[0]}: {lines[-1]}"
        raise EngineError(msg)
