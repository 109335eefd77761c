"""apt beside the system's own: its lists, state, cache and sources in a folder of ours; no root, nothing changed.

The system's apt.conf still counts (proxies, certificates, credentials), its sources, pins and hooks do not.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyrometer_simulator.stack.errors import INSTALL_HINT, StackError

KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
)

# Hooks of the system (docker-clean empties /var/cache/apt, appstream refreshes its cache) would act on the system.
_CONFIGURATION = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::State "{root}/state/";
Dir::State::lists "{root}/state/lists/";
Dir::State::status "{root}/status";
Dir::Cache "{root}/cache/";
Dir::Etc::preferences "{root}/none";
Dir::Etc::preferencesparts "{root}/none.d/";
APT::Get::List-Cleanup "false";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
"""
_OWN_SOURCES = """\
Dir::Etc::sourcelist "{root}/debian.sources";
Dir::Etc::sourceparts "{root}/none.d/";
"""
# apt drops to the user _apt when run as root, who cannot read root's cache folder.
_AS_ROOT = 'APT::Sandbox::User "root";\n'

_SOURCES = """\
Types: deb
URIs: {uri}
Suites: testing
Components: main
Targets: Packages
Signed-By: {keyring}
"""


@dataclass(frozen=True)
class Download:
    """One package as apt would fetch it: file name and size in bytes."""

    file: str
    size: int

    @property
    def version(self) -> str:
        """Debian's version, from `<package>_<version>_<architecture>.deb`, where apt writes an epoch's colon as %3a."""
        return self.file.split("_")[1].replace("%3a", ":")


class Apt:
    """apt-get with everything it writes below `root`, an existing folder that the caller removes afterwards."""

    def __init__(self, root: Path, *, own_sources: bool) -> None:
        for folder in ("state/lists/partial", "cache/archives/partial", "none.d"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "status").touch()
        text = _CONFIGURATION + (_OWN_SOURCES if own_sources else "") + (_AS_ROOT if os.geteuid() == 0 else "")
        self._root = root
        self._config = root / "apt.conf"
        self._config.write_text(text.format(root=root), encoding="utf-8")

    def use_debian_testing(self, uri: str, keyring: Path) -> None:
        """Take packages from Debian's testing suite at `uri`, signed by a key in `keyring`."""
        (self._root / "debian.sources").write_text(_SOURCES.format(uri=uri, keyring=keyring), encoding="utf-8")

    def update(self) -> str:
        """Fetch the package lists; returns what was transferred, in apt's words (`10.1 MB`).

        apt ends with 0 when a server did not answer, and only warns: no list at all is an error here.
        """
        log = self._run("update")
        if not any(self._root.glob("state/lists/*_Packages*")):
            raise StackError(f"apt-get update: {_last_complaint(log)}: {INSTALL_HINT}")
        fetched = re.search(r"^Fetched (\S+ \S+) in", log, re.MULTILINE)
        return fetched[1] if fetched else "0 B"

    def describe(self, package: str) -> Download:
        """Version and size of the package the lists offer."""
        match = re.search(r"^'[^']*' (\S+) (\d+)", self._run("download", "--print-uris", package), re.MULTILINE)
        if match is None:
            raise StackError(f"no package {package} in Debian testing: {INSTALL_HINT}")
        return Download(match[1], int(match[2]))

    def unpack(self, package: str, into: Path) -> None:
        """Download `package`, verify it against the signed lists, unpack it below `into`; its scripts never run."""
        debs = self._root / "debs" / package
        debs.mkdir(parents=True, exist_ok=True)
        self._run("download", package, cwd=debs)
        for deb in debs.glob("*.deb"):
            run_quietly(["dpkg", "-x", str(deb), str(into)])
            deb.unlink()

    def _run(self, *arguments: str, cwd: Path | None = None) -> str:
        return run_quietly(["apt-get", "-c", str(self._config), *arguments], cwd=cwd or self._root)


def run_quietly(command: Sequence[str], cwd: Path | None = None) -> str:
    """What `command` prints.

    Raises:
        StackError: it is not installed, or ended with an error: its last complaint in one line.
    """
    if shutil.which(command[0]) is None:
        raise StackError(f"{command[0]} not found, and this is not Debian or Ubuntu: {INSTALL_HINT}")
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    answer = subprocess.run(
        command, cwd=cwd, env=environment, text=True, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if answer.returncode != 0:
        raise StackError(f"{command[0]}: {_last_complaint(answer.stdout)}: {INSTALL_HINT}")
    return answer.stdout


def _last_complaint(log: str) -> str:
    """The first error apt printed, else its last line; without a password that stood in an address."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "W: Failed", "dpkg"))]
    return re.sub(r"//[^/@\s]+@", "//", (errors or lines[-1:] or ["no message"])[0])
