"""Docker Compose: the machine's own, else Debian testing's package, unpacked beside the other tools."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyrometer_simulator.stack.cache import cache_folder, fill, missing
from pyrometer_simulator.stack.errors import StackError

# 2.24 is the first that knows the tags !reset and !override, which the tests' own override file uses.
OLDEST = (2, 24)
HINT = "install Docker Compose >= 2.24 (Debian: docker-compose of trixie or newer, Docker: docker-compose-plugin)"
PLUGIN_FOLDERS = ("~/.docker/cli-plugins", "/usr/local/lib/docker/cli-plugins", "/usr/local/libexec/docker/cli-plugins",
                  "/usr/lib/docker/cli-plugins", "/usr/libexec/docker/cli-plugins")  # fmt: skip
IN_PACKAGE = "usr/libexec/docker/cli-plugins"


def find_compose(progress: Callable[[str], object] = print) -> Path:
    """Return the plugin's program, which also runs on its own; downloads it (14 MB, once) where there is none.

    Raises:
        StackError: it can't be downloaded; one line says what to install.
    """
    names = [Path(folder).expanduser() / "docker-compose" for folder in PLUGIN_FOLDERS]
    on_path = shutil.which("docker-compose")
    for path in [*names, *([Path(on_path)] if on_path else [])]:
        if path.is_file() and _is_new_enough(path):
            return path
    return from_debian("docker-compose", _check, progress) / "docker-compose"


def from_debian(package: str, check: Callable[[str, Path], None], progress: Callable[[str], object]) -> Path:
    """Return the folder with the plugin of a Debian package, in the cache of tools."""
    folder = cache_folder()
    if missing(folder, [package]):
        fill(folder, [package], check, progress)
    return folder / package / IN_PACKAGE


def version(program: Path) -> tuple[int, int] | None:
    """Return major and minor version; None where it does not start or is Compose 1."""
    try:
        answer = subprocess.run(
            [program, "version", "--short"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"v?(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found and answer.returncode == 0 else None


def _is_new_enough(program: Path) -> bool:
    present = version(program)
    return present is not None and present >= OLDEST


def _check(package: str, unpacked: Path) -> None:
    if not _is_new_enough(unpacked / IN_PACKAGE / "docker-compose"):
        raise StackError(f"{package} of Debian testing does not start on this system: {HINT}")


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
