"""A monitoring host and the simulated cluster in containers: this checkout's own compose files, no registry needed.

The checkout is copied, so that neither its .env nor its secrets are touched and what is built is what is committed.
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pyrometer_simulator.engine import standins, wheelhouse
from pyrometer_simulator.engine.compose import Compose, ComposeError, plugin
from pyrometer_simulator.engine.daemon import Docker, EngineError, check, engine
from pyrometer_simulator.ports import free_port

COPIED = ("client", "kit", "exporters", "alerting", "dashboards", "simulator", "alert_rules", "compose", "docs")
FILES = ("compose.yaml", "compose.demo.yaml", "compose.test.yaml")
PORTS = ("PROMETHEUS", "ALERTMANAGER", "ALERTING", "GRAFANA", "VICTORIA", "SLACK", "VMAUTH",
         "VMSELECT", "VMINSERT", "VMSELECT_1", "VMINSERT_1",
         *(f"VMSTORAGE_{number}_{what}" for number in (0, 1, 2) for what in ("INSERT", "SELECT")))  # fmt: skip
# Debian has no package of Grafana: without GRAFANA_HOME its service is only checked for being well described.
NOT_STARTED = "no-image"
# The director plays the scenario once: whoever starts everything again does not start him.
ONCE = "once"
VICTORIA_URLS = ("http://victoria:8428/api/v1/write", "http://vminsert:8480/insert/0/prometheus/api/v1/write")
OUTBOX_BYTES = 24 << 20
PYTHON = "python:3.13-slim-trixie"
# Under names of their own: an engine of somebody else's may have the real ones.
OUR_IMAGES = {
    f"PYROMETER_{name.upper()}_IMAGE": f"pyrometer-test-{name}:0.2.0" for name in ("exporters", "alerting", "demo")
}


@dataclass
class Site:
    """The running site."""

    docker: Docker
    compose: Compose
    person: Compose  # as who starts everything again with `docker compose up`
    node: Compose
    node_url: str
    ports: dict[str, int]
    services: list[str]
    outbox: Path
    folder: Path
    has_cluster: bool
    has_grafana: bool
    grafana_password: str

    def url(self, program: str) -> str:
        """Return where a program is published, by the name of its port's setting."""
        return f"http://127.0.0.1:{self.ports[program]}"

    def container(self, service: str) -> str:
        """Return the id of a service's container, running or not."""
        return self.compose.run("ps", "--all", "--quiet", service).strip()

    def inspect(self, service: str) -> dict[str, Any]:
        """Return what the engine knows of a service's container."""
        found: list[dict[str, Any]] = json.loads(self.docker.run("inspect", self.container(service)))
        return found[0]

    def inside(self, service: str, *command: str) -> str:
        """Run a command in a service's container and return what it prints. Raises ComposeError if it fails."""
        return self.compose.run("exec", "-T", service, *command, seconds=60.0)


@contextmanager
def site(project: Path, folder: Path, progress: Callable[[str], object] = print) -> Iterator[Site]:
    """Bring up everything, Grafana where GRAFANA_HOME is one; take all of it down afterwards, with volumes and engine.

    Args:
        project: the checkout.
        folder: a short-lived one with a short name.
        progress: called with one line per stage.

    Raises:
        EngineError, StackError: it can't run on this machine; one line says why.
        ComposeError: the compose files are at fault.
    """
    check()
    program, buildx = plugin("docker-compose", progress), plugin("docker-buildx", progress)
    copy = folder / "site"
    _copy(project, copy)
    wheelhouse.fill(copy, copy / "wheelhouse", standins.python_version(progress))
    with engine(folder, [program, buildx], progress) as docker, _outbox(folder) as outbox:
        found = _site(docker, program, copy, outbox)
        config = yaml.safe_load(found.compose.run("config"))
        images = [service["image"] for service in config["services"].values() if "build" not in service]
        found.services = list(config["services"])
        made = standins.build(docker, [*images, *([PYTHON] if docker.ours else [])], progress)
        try:
            progress("site: building our images from a wheelhouse, without PyPI")
            found.compose.run("build", *[name for name in found.services if "build" in config["services"][name]])
            progress("site: starting")
            found.compose.run("up", "--detach", "--no-build", *found.services)
            yield found
        finally:
            progress("site: taking everything down")
            for each in (found.node, found.compose):
                _down(each, goes_anyway=docker.ours)
            if not docker.ours:
                docker.run("image", "rm", "--force", *made, *OUR_IMAGES.values())


def _site(docker: Docker, program: Path, copy: Path, outbox: Path) -> Site:
    ports = {name: free_port() for name in PORTS}
    has_cluster = standins.has_cluster()
    profiles = ("scale", *(("scale-cluster",) if has_cluster else ()))
    settings = {
        "DEMO_FLAGS": "--exit-after-scenario", "PYROMETER_CLUSTER": "simulated", "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "/src/wheelhouse", **{f"{name}_PORT": str(port) for name, port in ports.items()},
        # Both versions at once, so that what they keep can be compared.
        "VICTORIA_WRITE_URL": ",".join(VICTORIA_URLS if has_cluster else VICTORIA_URLS[:1]),
        "VICTORIA_REPLICATION": "2",
    }  # fmt: skip
    # On an engine of somebody else's the real python may be there, of another version than the wheels.
    env = docker.env | settings | OUR_IMAGES | ({} if docker.ours else {"PYTHON_IMAGE": standins.BASE})
    name = f"pyrometer-test-{copy.parent.name.lower()}"
    _override(copy / "compose/compose.test.yaml", outbox)
    node_port = free_port()
    _node_override(copy / "compose/compose.node.test.yaml", node_port)
    compose, person = (
        Compose(program, copy / "compose", FILES, env=env, project=name, profiles=[*profiles, *more])
        for more in ((ONCE,), ())
    )
    node = Compose(
        program, copy / "compose", ("compose.node.yaml", "compose.node.test.yaml"), env=env, project=f"{name}-node"
    )
    where = f"http://127.0.0.1:{node_port}"
    password = _grafana_password(copy / "compose/secrets")
    grafana = standins.has_grafana()
    return Site(docker, compose, person, node, where, ports, [], outbox, copy, has_cluster, grafana, password)


def _grafana_password(folder: Path) -> str:
    """Write the administrator's password as the first steps do, and return it: Grafana takes it at its first start."""
    folder.mkdir(mode=0o700)
    path = folder / "grafana-admin-password"
    path.write_text(password := secrets.token_urlsafe(18))
    path.chmod(0o440)
    return password


def _override(path: Path, outbox: Path) -> None:
    """Write what the test needs otherwise: a director who plays once, and an outbox on a small disk of its own."""
    propagation = subprocess.run(
        ["findmnt", "--noheadings", "--output=PROPAGATION", "/"], capture_output=True, text=True, check=False
    )
    services: dict[str, Any] = {"director": {"restart": "no", "profiles": [ONCE]}}
    if not standins.has_grafana():
        services["grafana"] = {"profiles": [NOT_STARTED]}
    if "private" in propagation.stdout:  # without systemd: the engine refuses rslave
        services["host"] = {"volumes": ["/:/host:ro"]}
    volume = {"driver_opts": {"type": "none", "o": "bind", "device": str(outbox)}}
    path.write_text(yaml.safe_dump({"services": services, "volumes": {"alerting": volume}}))


def _node_override(path: Path, port: int) -> None:
    """Write an override without GPUs, as the engine would refuse to start the node with them."""
    path.write_text(
        f"""services:
  node:
    deploy: !reset null
    environment:
      PYROMETER_HEALTH_URL: http://127.0.0.1:{port}/-/ready
    command: [--web.listen-address=127.0.0.1:{port}, --path.state=/var/lib/pyrometer, --path.rings=/host/shm/pyrometer]
"""
    )


def _down(compose: Compose, *, goes_anyway: bool) -> None:
    """Take a project down, with retries: the network may still have an endpoint of a container just removed.

    Raises nothing with `goes_anyway`, where the engine and all that it holds are removed next.
    """
    for last in (False, False, True):
        try:
            compose.run("down", "--volumes", "--timeout", "5", "--remove-orphans")
        except ComposeError:
            if last and not goes_anyway:
                raise
            time.sleep(2.0)
        else:
            return


def _copy(project: Path, copy: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", ".env", "secrets", "*.egg-info")
    for name in COPIED:
        shutil.copytree(project / name, copy / name, ignore=ignored)
    for name in ("VERSION", "constraints.txt", ".dockerignore"):
        shutil.copy(project / name, copy / name)


@contextmanager
def _outbox(folder: Path) -> Iterator[Path]:
    """Mount a small disk that can be filled, with the image's user as its owner."""
    outbox = folder / "outbox"
    outbox.mkdir()
    options = f"size={OUTBOX_BYTES},uid=10935,gid=10935,mode=0750"
    _mount("mount", "-t", "tmpfs", "-o", options, "outbox", str(outbox))
    try:
        yield outbox
    finally:
        _mount("umount", str(outbox))


def _mount(*command: str) -> None:
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        msg = f"{command[0]} of a small disk: {answer.stderr.strip()} (it takes root)"
        raise EngineError(msg)
