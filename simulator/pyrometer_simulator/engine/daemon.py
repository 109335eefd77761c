"""A Docker engine to work with: the one that runs, else one of our own below a folder, ended and removed afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

START_SECONDS = 60.0
END_SECONDS = 90.0  # it stops its containers first


class EngineError(Exception):
    """No engine can run here; one line says why."""


class Docker:
    """The docker command against one engine; ``ours`` if we started it, and nobody else's images are there."""

    def __init__(self, env: Mapping[str, str], *, ours: bool = False) -> None:
        self.env = dict(env)
        self.ours = ours

    def run(self, *arguments: str, stdin: IO[bytes] | None = None, seconds: float = 300.0) -> str:
        """Run a docker command and return what it prints. Raises EngineError with its complaint."""
        try:
            answer = subprocess.run(
                ["docker", *arguments], env=self.env, stdin=stdin, capture_output=True, timeout=seconds, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            msg = f"docker {' '.join(arguments[:2])}: {error}"
            raise EngineError(msg) from None
        if answer.returncode != 0:
            complaint = answer.stderr.decode(errors="replace").strip()[-1000:]
            msg = f"docker {' '.join(arguments[:2])}: {complaint}"
            raise EngineError(msg)
        return answer.stdout.decode(errors="replace")

    def answers(self) -> bool:
        """Return whether an engine answers."""
        try:
            self.run("version", "--format", "{{.Server.Version}}", seconds=20.0)
        except EngineError:
            return False
        return True


def check() -> None:
    """Raise EngineError where no engine runs or can be started, before minutes are spent on preparing for one."""
    if shutil.which("docker") is None:
        raise EngineError("docker not found: install docker.io (and docker-cli, where it is a package of its own)")
    if Docker(os.environ).answers():
        return
    if shutil.which("dockerd") is None:
        raise EngineError("no engine runs and dockerd is not there: install docker.io")
    if os.geteuid() != 0:
        raise EngineError("no engine runs, and only root can start one")


@contextmanager
def engine(
    folder: Path, plugins: Sequence[Path], progress: Callable[[str], object] = print, *, bridge: bool = True
) -> Iterator[Docker]:
    """Yield an engine with these client plugins.

    Args:
        folder: a short-lived one with a short name (a socket's path has 107 characters at most).
        plugins: programs such as docker-buildx, by the name that the docker command looks for.
        progress: called with one line per stage.
        bridge: whether containers need networks of their own; without, one of our own leaves the machine's as it is.

    Raises:
        EngineError: none runs and none can be started here.
    """
    config = folder / "client"
    (config / "cli-plugins").mkdir(parents=True)
    for plugin in plugins:
        (config / "cli-plugins" / plugin.name).symlink_to(plugin)
    env = {**os.environ, "DOCKER_CONFIG": str(config)}
    running = Docker(env)
    if running.answers():
        progress("engine: using the one that runs")
        yield running
        return
    check()
    own = Docker({**env, "DOCKER_HOST": f"unix://{folder}/docker.sock"}, ours=True)
    with _daemon(folder, own, [] if bridge else ["--bridge=none", "--iptables=false"]):
        progress("engine: none ran; started one of our own")
        yield own


@contextmanager
def _daemon(folder: Path, docker: Docker, flags: Sequence[str]) -> Iterator[None]:
    bridge_was_there = Path("/sys/class/net/docker0").exists()
    log = folder / "dockerd.log"
    command = ["dockerd", f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid",
               f"--host=unix://{folder}/docker.sock", *flags]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _wait(process, docker, log)
        yield
    finally:
        _end(process, folder)
        if not bridge_was_there and shutil.which("ip") is not None:  # a bare system has no iproute2
            subprocess.run(["ip", "link", "delete", "docker0"], capture_output=True, check=False)


def _wait(process: subprocess.Popen[bytes], docker: Docker, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not docker.answers():
        if process.poll() is not None or time.monotonic() > deadline:
            lines = log.read_text(errors="replace").strip().splitlines() or ["no output"]
            msg = f"dockerd does not start on this machine: {lines[-1][-400:]}"
            raise EngineError(msg)
        time.sleep(0.5)


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for point in sorted((point for point in mounted if point.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)
    for name in ("data", "exec"):
        shutil.rmtree(folder / name, ignore_errors=True)
