"""A real Grafana with the project's boards, where one is installed or Docker can run it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

from pyrometer_simulator.demo.processes import DemoError
from pyrometer_simulator.ports import free_port, served

# Where compose.yaml mounts them, and the files below compose/grafana name them.
_BOARDS, _PROVISIONING = "/etc/grafana/boards", "/etc/grafana/provisioning"
_DEBIAN_HOME = Path("/usr/share/grafana")
_PROGRAMS = {"grafana": ("server",), "grafana-server": ()}
# `docker info` took 0.1 s on an idle machine; a daemon that hangs must not hold up the demo.
_DOCKER_SECONDS = 5.0

HINT = (
    "a real Grafana: GRAFANA_HOME=<folder of an unpacked grafana-12.x.linux-amd64.tar.gz> make demo, or install the "
    "package grafana, or start Docker"
)


class Grafana(Protocol):
    """A way to run Grafana."""

    @property
    def description(self) -> str:
        """Which one it is."""
        ...

    def launch(self, project: Path, folder: Path, settings: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """Return the command and environment that run it with the project's boards and its data below ``folder``."""
        ...

    def clean_up(self) -> None:
        """Remove what the end of the process may have left."""
        ...


@dataclass(frozen=True)
class Installed:
    """A Grafana on this machine; ``home`` has its conf/ and public/, ``boards`` other boards than the project's."""

    program: Path
    home: Path
    boards: Path | None = None

    @property
    def description(self) -> str:
        """Which one it is."""
        return f"Grafana of {self.home}"

    def launch(self, project: Path, folder: Path, settings: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """Return the command and environment that run it with the project's boards and its data below ``folder``."""
        boards, provisioning = self.boards or project / "dashboards/json", folder / "provisioning"
        shutil.copytree(project / "compose/grafana/provisioning", provisioning)
        for path in provisioning.rglob("*.yaml"):
            path.write_text(path.read_text().replace(_BOARDS, str(boards)))
        paths = {
            "GF_PATHS_DATA": str(folder / "data"), "GF_PATHS_LOGS": str(folder / "log"),
            "GF_PATHS_PLUGINS": str(folder / "plugins"), "GF_PATHS_PROVISIONING": str(provisioning),
            "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": str(boards / "overview.json"),
        }  # fmt: skip
        server = [str(self.program), *_PROGRAMS[self.program.name], "--homepath", str(self.home)]
        return server, {**settings, **paths}

    def clean_up(self) -> None:
        """Do nothing: all of it is in the demo's folder."""


@dataclass(frozen=True)
class InDocker:
    """Grafana's image, as compose.yaml names it; in the host's network, so that loopback is this machine's."""

    image: str
    name: str = field(default_factory=lambda: f"pyrometer-demo-grafana-{os.getpid()}")

    @property
    def description(self) -> str:
        """Which one it is."""
        return f"{self.image} in Docker, which may have to fetch it first"

    def launch(
        self,
        project: Path,
        folder: Path,  # noqa: ARG002  it needs no files
        settings: Mapping[str, str],
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command and environment that run it with the project's boards and its data in memory."""
        within = {
            **settings,
            "GF_PATHS_PROVISIONING": _PROVISIONING,
            "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": f"{_BOARDS}/overview.json",
        }
        command = [
            "docker", "run", "--rm", f"--name={self.name}", "--network=host", f"--user={os.getuid()}:0",
            "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges:true",
            *(f"--tmpfs={path}:mode=1777" for path in ("/var/lib/grafana", "/var/log/grafana", "/tmp")),  # noqa: S108
            f"--volume={project / 'compose/grafana/provisioning'}:{_PROVISIONING}:ro",
            f"--volume={project / 'dashboards/json'}:{_BOARDS}:ro",
            *(f"--env={name}" for name in within),  # its value is the client's: a password is in no list of processes
            self.image,
        ]  # fmt: skip
        return command, within

    def clean_up(self) -> None:
        """Remove the container, which outlives a client that was killed."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(["docker", "rm", "--force", self.name], capture_output=True, timeout=20, check=False)


def find(project: Path, environ: Mapping[str, str], *, docker: bool = True) -> Grafana | None:
    """Return the Grafana of GRAFANA_HOME, else of PATH, else of Docker; None where there is none.

    Raises:
        DemoError: GRAFANA_HOME is set and has no Grafana.
    """
    if home := environ.get("GRAFANA_HOME"):
        found = _at(Path(home).resolve())
        if found is None:
            raise DemoError(
                f"GRAFANA_HOME={home}: no bin/grafana with conf/defaults.ini there; give the unpacked folder"
            )
        return found
    search = environ.get("PATH", os.defpath)
    for name in _PROGRAMS:
        if program := shutil.which(name, path=search):
            for folder in (Path(program).resolve().parents[1], _DEBIAN_HOME):
                if _is_home(folder):
                    return Installed(Path(program), folder)
    return InDocker(_image(project, environ)) if docker and _docker_answers(search) else None


@contextlib.contextmanager
def running(found: Installed, project: Path, folder: Path, prometheus: str) -> Iterator[str]:
    """Yield the address of a Grafana that asks a Prometheus, and no Alertmanager; its log is ``folder``/grafana.log."""

    def start(port: int) -> subprocess.Popen[bytes]:
        own = folder / f"grafana-{port}"
        own.mkdir()
        nobody = f"http://127.0.0.1:{free_port()}"
        command, environment = found.launch(project, own, settings(project, port, prometheus, nobody))
        environment["GF_GRPC_SERVER_ADDRESS"] = f"127.0.0.1:{free_port()}"
        with (folder / "grafana.log").open("ab") as output:
            return subprocess.Popen(command, env={**os.environ, **environment}, stdout=output, stderr=output)

    # Its first start migrates a new database.
    with served(start, "/api/health", seconds=120) as (_, port):
        yield f"http://127.0.0.1:{port}"


def settings(project: Path, port: int, prometheus: str, alertmanager: str) -> dict[str, str]:
    """Return Grafana's settings: compose.yaml's that never vary, on loopback, for anonymous viewers alone."""
    own = {
        "GF_SERVER_HTTP_ADDR": "127.0.0.1", "GF_SERVER_HTTP_PORT": str(port),
        "GF_SERVER_ROOT_URL": f"http://127.0.0.1:{port}", "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_AUTH_DISABLE_LOGIN_FORM": "true",
        # Nobody logs in; but other users of this machine must not either, as admin with the usual password.
        "GF_SECURITY_ADMIN_PASSWORD": secrets.token_urlsafe(24),
        "PYROMETER_PROMETHEUS_URL": prometheus, "PYROMETER_ALERTMANAGER_URL": alertmanager,
    }  # fmt: skip
    return {**dict(_constant(_compose(project).get("environment", {}))), **own}


def _constant(environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in environment.items():
        if name.startswith("GF_") and "$" not in str(value) and not str(value).startswith("/"):
            yield name, str(value)


def _image(project: Path, environ: Mapping[str, str]) -> str:
    if image := environ.get("GRAFANA_IMAGE"):
        return image
    return str(_compose(project)["image"]).removeprefix("${GRAFANA_IMAGE:-").removesuffix("}")


def _compose(project: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((project / "compose/compose.yaml").read_text(encoding="utf-8"))
    service: dict[str, Any] = found["services"]["grafana"]
    return service


def _at(home: Path) -> Installed | None:
    programs = [home / "bin" / name for name in _PROGRAMS if os.access(home / "bin" / name, os.X_OK)]
    return Installed(programs[0], home) if programs and _is_home(home) else None


def _is_home(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return (folder / "conf/defaults.ini").is_file() and (folder / "public").is_dir()
    return False


def _docker_answers(search: str) -> bool:
    docker = shutil.which("docker", path=search)
    if docker is None:
        return False
    try:
        asked = subprocess.run([docker, "info"], capture_output=True, timeout=_DOCKER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0
