"""Stand-ins for upstream images, from Debian's packages, under the names that the compose files use.

One base: Debian testing by debootstrap with Python and busybox, which is what python:...-slim is to our Dockerfile. The
others are that base with one program, where the upstream image has it. Grafana has no package: it is that of
GRAFANA_HOME, where there is one; the programs of VictoriaMetrics' cluster version are taken from PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pyrometer_simulator.engine.daemon import Docker, EngineError
from pyrometer_simulator.stack.cache import cache_folder, fill, missing
from pyrometer_simulator.stack.sources import debian_uris
from pyrometer_simulator.stack.versions import parse_version, version_line

# Testing moves on; a base older than this is rebuilt.
BASE_SECONDS = 14 * 24 * 3600.0
INCLUDE = ("python3", "python3-venv", "busybox", "ca-certificates")
# Left out by the slim images as well.
NEEDLESS = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/lib/apt/lists",
            "var/cache/apt", "var/cache/debconf", "var/log")  # fmt: skip
BASE = "pyrometer-standin-base"
CLUSTER = ("vmstorage", "vminsert", "vmselect")
GRAFANA = "grafana/grafana"
# The parts of a release's folder that a server needs.
GRAFANA_PARTS = ("bin", "conf", "public")
# The folders, the user and the environment of the upstream image, and what its run.sh does.
GRAFANA_DOCKERFILE = rf"""FROM {BASE}
COPY home /usr/share/grafana
RUN install --directory /etc/grafana && cp /usr/share/grafana/conf/sample.ini /etc/grafana/grafana.ini \
    && install --directory --owner=472 --mode=0777 /var/lib/grafana /var/log/grafana
ENV GF_PATHS_CONFIG=/etc/grafana/grafana.ini GF_PATHS_DATA=/var/lib/grafana GF_PATHS_LOGS=/var/log/grafana \
    GF_PATHS_PLUGINS=/var/lib/grafana/plugins
USER 472
ENTRYPOINT ["sh", "-c", "exec /usr/share/grafana/bin/grafana server --homepath=/usr/share/grafana \
    --config=$GF_PATHS_CONFIG cfg:default.log.mode=console cfg:default.paths.data=$GF_PATHS_DATA \
    cfg:default.paths.logs=$GF_PATHS_LOGS cfg:default.paths.plugins=$GF_PATHS_PLUGINS \
    cfg:default.paths.provisioning=$GF_PATHS_PROVISIONING"]
"""


@dataclass(frozen=True)
class Program:
    """Where a package has a program, and where the upstream image has it; ``state`` is what nobody may write to.

    Without a package ``binary`` is a name on PATH. ``tool`` is a second program, in /bin.
    """

    package: str
    binary: str
    entrypoint: str
    share: str = ""
    state: str = ""
    tool: str = ""

    def path(self) -> Path | None:
        """Return the path of the program on this machine; None where there is none."""
        if self.package:
            return cache_folder() / self.package / self.binary
        found = shutil.which(self.binary)
        return Path(found) if found else None


PROGRAMS = {
    "prom/prometheus": Program("prometheus", "usr/bin/prometheus", "/bin/prometheus", state="/prometheus"),
    "prom/alertmanager": Program(
        "prometheus-alertmanager", "usr/bin/prometheus-alertmanager", "/bin/alertmanager",
        share="usr/share/prometheus", state="/alertmanager", tool="usr/bin/amtool",
    ),
    "prom/node-exporter": Program("prometheus-node-exporter", "usr/bin/prometheus-node-exporter", "/bin/node_exporter"),
    "victoriametrics/victoria-metrics": Program(
        "victoria-metrics", "usr/bin/victoria-metrics", "/victoria-metrics-prod"
    ),
    "victoriametrics/vmagent": Program("victoria-metrics", "usr/bin/vmagent", "/vmagent-prod"),
    "victoriametrics/vmalert": Program("victoria-metrics", "usr/bin/vmalert", "/vmalert-prod"),
    "victoriametrics/vmauth": Program("victoria-metrics", "usr/bin/vmauth", "/vmauth-prod"),
    **{f"victoriametrics/{name}": Program("", name, f"/{name}-prod") for name in CLUSTER},
}  # fmt: skip


def has_cluster() -> bool:
    """Return whether VictoriaMetrics' cluster version is installed here."""
    return all(shutil.which(name) for name in CLUSTER)


def has_grafana() -> bool:
    """Return whether GRAFANA_HOME is the folder of a release."""
    home = os.environ.get("GRAFANA_HOME", "")
    return bool(home) and (Path(home) / "bin/grafana").is_file()


def build(docker: Docker, images: Iterable[str], progress: Callable[[str], object] = print) -> list[str]:
    """Make a stand-in for each image that is not there, by its full name; those that were made, base included.

    Raises:
        EngineError, StackError: with one line: what could not be made, and why.
    """
    wanted = {image: image.rpartition(":")[0] for image in images if not _is_there(docker, image)}
    programs = {image: PROGRAMS[name] for image, name in wanted.items() if name in PROGRAMS}
    base = _base(progress)
    docker.run("import", str(base), BASE)
    for image, name in wanted.items():
        if name == "python":
            docker.run("tag", BASE, image)
    packages = sorted({program.package for program in programs.values() if program.package})
    if absent := missing(cache_folder(), packages):
        fill(cache_folder(), absent, lambda *_: None, progress)
    for image, program in programs.items():
        binary = _image(docker, image, program)
        line = version_line([binary])
        progress(f"stand-in: {image}: {line if parse_version(line) else 'made'}")
    grafanas = [image for image, name in wanted.items() if name == GRAFANA and has_grafana()]
    for image in grafanas:
        _grafana_image(docker, image, Path(os.environ["GRAFANA_HOME"]))
        progress(f"stand-in: {image}: of GRAFANA_HOME")
    return [*programs, *grafanas, *(image for image, name in wanted.items() if name == "python"), BASE]


def _is_there(docker: Docker, image: str) -> bool:
    """On an engine of somebody else's: the real one, which a stand-in must not replace."""
    try:
        docker.run("image", "inspect", image)
    except EngineError:
        return False
    return True


def python_version(progress: Callable[[str], object] = print) -> str:
    """Return the version of the base's Python, such as ``3.14``, before anything is built."""
    return _base(progress).with_suffix(".python").read_text()


def _base(progress: Callable[[str], object]) -> Path:
    tar = cache_folder().with_name("engine") / "base.tar"
    if tar.is_file() and time.time() - tar.stat().st_mtime < BASE_SECONDS:
        return tar
    if shutil.which("debootstrap") is None:
        raise EngineError("debootstrap not found: install it; the stand-in images are made with it")
    tar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".base-", dir=tar.parent) as scratch:
        root = Path(scratch) / "root"
        _bootstrap(root, progress)
        python = _run(["chroot", str(root), "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
        for name in NEEDLESS:
            shutil.rmtree(root / name, ignore_errors=True)
        (root / "usr/bin/wget").symlink_to("busybox")  # as in the upstream images, whose health checks use it
        _run(["tar", "-C", str(root), "--one-file-system", "-cf", f"{scratch}/base.tar", "."])
        tar.with_suffix(".python").write_text(python.strip())
        Path(scratch, "base.tar").rename(tar)
    return tar


def _bootstrap(root: Path, progress: Callable[[str], object]) -> None:
    """From the machine's own mirrors, then Debian's."""
    uris = debian_uris()
    for uri in uris:
        progress(f"stand-in: debootstrap of Debian testing (a minute, kept for {BASE_SECONDS / 86400:.0f} days)")
        try:
            _run(["debootstrap", "--variant=minbase", f"--include={','.join(INCLUDE)}", "testing", str(root), uri])
        except EngineError:
            if uri == uris[-1]:
                raise
            shutil.rmtree(root, ignore_errors=True)
        else:
            return


def _image(docker: Docker, image: str, program: Program) -> Path:
    """Return the path of the program that the image has."""
    unpacked, binary = cache_folder() / program.package, program.path()
    if binary is None:
        raise EngineError(f"{program.binary} is not on PATH, and no package has it")
    lines = [f"FROM {BASE}", f"COPY binary {program.entrypoint}"]
    with tempfile.TemporaryDirectory(prefix="standin-") as context:
        shutil.copy(binary, Path(context) / "binary")
        if program.tool:
            shutil.copy(unpacked / program.tool, Path(context) / "tool")
            lines.append(f"COPY tool /bin/{Path(program.tool).name}")
        if program.share:
            shutil.copytree(unpacked / program.share, Path(context) / "share")
            lines.append(f"COPY share /{program.share}")
        if program.state:
            lines.append(f"RUN install --directory --owner=65534 --group=65534 {program.state}")
            lines.append(f"VOLUME {program.state}")
        lines.append(f'ENTRYPOINT ["{program.entrypoint}"]')
        Path(context, "Dockerfile").write_text("\n".join(lines) + "\n")
        docker.run("build", "--quiet", "--network=none", "--tag", image, context)
    return binary


def _grafana_image(docker: Docker, image: str, home: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="standin-") as context:
        for part in GRAFANA_PARTS:
            shutil.copytree(home / part, Path(context) / "home" / part)
        Path(context, "Dockerfile").write_text(GRAFANA_DOCKERFILE)
        docker.run("build", "--quiet", "--network=none", "--tag", image, context)


def _run(command: list[str]) -> str:
    answer = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if answer.returncode != 0:
        lines = (answer.stderr or answer.stdout).strip().splitlines() or ["no output"]
        msg = f"{command[0]}: {lines[-1]}"
        raise EngineError(msg)
    return answer.stdout
