"""The versions of Python that Pyrometer supports, and where this machine has them.

As a program it runs the unit tests on each: ``python tools/pythons.py 3.10 newest -- ARGUMENTS OF PYTEST``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUPPORTED = ("3.10", "3.11", "3.12", "3.13", "3.14")
PARTS = ("kit", "client", "exporters", "alerting", "dashboards", "simulator")
ENVIRONMENTS = ROOT / ".venv-pythons"
NEEDS = ("pyproject.toml", "constraints.txt", "VERSION", *(f"{part}/pyproject.toml" for part in PARTS))


@cache
def find(version: str) -> Path | None:
    """Return the interpreter of a version such as ``3.10``: on PATH, from pyenv or from uv; None if there is none."""
    on_path = [Path(folder) / f"python{version}" for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    uv = Path.home() / ".local/share/uv/python"
    managed = [*_below(pyenv, f"{version}.*/bin/python3"), *_below(uv, f"cpython-{version}.*/bin/python3")]
    for program in (*on_path, *sorted(managed, reverse=True)):
        # pyenv puts a stand-in on PATH for each version that it has, which only works for the chosen one.
        if os.access(program, os.X_OK) and _version(program) == version:  # one below a folder of root's is none
            return program
    return None


def _below(folder: Path, pattern: str) -> list[Path]:
    """Return what a folder has; nothing of another user's, as PYENV_ROOT may be after ``su``."""
    return [*folder.glob(pattern)] if os.access(folder, os.R_OK | os.X_OK) else []


def newest() -> str:
    """Return the newest supported version that this machine has; the newest of all if it has none."""
    return next((version for version in reversed(SUPPORTED) if find(version)), SUPPORTED[-1])


def _version(program: Path) -> str:
    script = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2])"
    answer = subprocess.run([program, "-c", script], capture_output=True, text=True, check=False, cwd="/")
    return answer.stdout.strip()


def main(arguments: Sequence[str]) -> int:
    """Run pytest with the arguments after ``--`` on each version named before it (none: all), then print a table."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    versions = [newest() if each == "newest" else each for each in arguments[:split]] or list(SUPPORTED)
    results = {version: _test(version, arguments[split + 1 :]) for version in versions}
    print("\nPython   result")
    for version, result in results.items():
        print(f"{version:<8} {result}")
    return int(any(result.startswith("FAILED") for result in results.values()))


def _test(version: str, arguments: Sequence[str]) -> str:
    program = find(version)
    if program is None:
        return "NOT TESTED: this machine has no Python of this version with venv and ensurepip"
    print(f">> Python {version}: {program}", flush=True)
    python = ENVIRONMENTS / version / "bin/python"
    start = time.monotonic()
    if not _is_new(ENVIRONMENTS / version) and not _install(program, ENVIRONMENTS / version):
        return "FAILED: pip could not install (see above)"
    status = subprocess.run([python, "-m", "pytest", "-q", *arguments], cwd=ROOT, check=False).returncode
    result = "passed" if status == 0 else f"FAILED: pytest ended with {status}"
    return f"{result} ({time.monotonic() - start:.0f} s)"


def _is_new(folder: Path) -> bool:
    stamp = folder / ".installed"
    return stamp.exists() and all((ROOT / name).stat().st_mtime <= stamp.stat().st_mtime for name in NEEDS)


def _install(program: Path, folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    pip = [folder / "bin/python", "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--constraint"]
    editable = [f"--editable=./{part}" for part in PARTS]
    steps: list[list[str | Path]] = [
        [program, "-m", "venv", folder],
        [*pip, "constraints.txt", "pip>=25.1"],
        [*pip, "constraints.txt", "--group", "dev"],
        [*pip, "constraints.txt", "--no-build-isolation", *editable],
    ]
    if any(subprocess.run(step, cwd=ROOT, check=False).returncode for step in steps):
        return False
    (folder / ".installed").touch()
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
