"""Docker Compose and Buildx of Debian testing's packages, unpacked beside the other tools."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyrometer_simulator.stack.cache import cache_folder, fill, missing
from pyrometer_simulator.stack.errors import StackError

IN_PACKAGE = "usr/libexec/docker/cli-plugins"


def plugin(package: str, progress: Callable[[str], object] = print) -> Path:
    """Return the program of ``docker-compose`` or ``docker-buildx``, which is downloaded once (14 MB).

    Raises:
        StackError: it can't be downloaded, or does not start here.
    """
    if missing(cache_folder(), [package]):
        fill(cache_folder(), [package], _check, progress)
    return cache_folder() / package / IN_PACKAGE / package


def _check(package: str, unpacked: Path) -> None:
    program = unpacked / IN_PACKAGE / package
    answer = subprocess.run([program, "version"], capture_output=True, timeout=60, check=False)
    if answer.returncode != 0:
        raise StackError(f"{package} of Debian testing does not start on this system")


class ComposeError(Exception):
    """Compose ended with an error; the message is its own."""


class Compose:
    """One project: the files, the profiles and the environment that every command gets."""

    def __init__(
        self, program: Path, folder: Path, files: Sequence[str | Path], *, env: Mapping[str, str],
        project: str = "", profiles: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._folder = folder
        self._env = dict(env)
        self._chosen = {"COMPOSE_FILE": ":".join(map(str, files)), "COMPOSE_PROFILES": ",".join(profiles)}
        if project:
            self._chosen["COMPOSE_PROJECT_NAME"] = project
        self._command = [
            str(program),
            *(["--project-name", project] if project else []),
            *(part for file in files for part in ("--file", str(file))),
            *(part for profile in profiles for part in ("--profile", profile)),
        ]

    def play(self, commands: str, seconds: float = 600.0) -> str:
        """Run shell commands as a person types them in the files' folder, and return what they print.

        Raises:
            ComposeError: one of them failed.
        """
        answer = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands], cwd=self._folder, env=self._env | self._chosen, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False,
        )  # fmt: skip
        if answer.returncode != 0:
            raise ComposeError(f"{commands}\n{answer.stdout[-2000:]}{answer.stderr.strip()[-2000:]}")
        return answer.stdout

    def run(self, *arguments: str, seconds: float = 600.0) -> str:
        """Run a command of Compose and return what it prints. Raises ComposeError."""
        try:
            answer = subprocess.run(
                [*self._command, *arguments], cwd=self._folder, env=self._env, text=True, timeout=seconds, check=False,
                stdin=subprocess.DEVNULL, capture_output=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            msg = f"{' '.join(arguments)}: no end within {seconds:.0f} s"
            raise ComposeError(msg) from None
        if answer.returncode != 0:
            msg = f"{' '.join(arguments)}: {answer.stderr.strip()[-2000:]}"
            raise ComposeError(msg)
        return answer.stdout
