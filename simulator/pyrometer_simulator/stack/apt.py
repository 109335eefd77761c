"""apt beside the system's own: its lists, state, cache, keys and sources in a folder of ours; no root, nothing changed.

The system's apt.conf still counts (proxies, certificates, credentials), its sources, pins and hooks do not. Packages
are only accepted from lists that Debian signed, with a key that the system has or that this project ships.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyrometer_simulator.stack.errors import INSTALL_HINT, StackError

# Ubuntu 22.04's package of Debian's keys is older than the keys that sign testing today, and a fresh Ubuntu has none.
SHIPPED_KEYS = Path(__file__).with_name("debian-archive-keys.asc")
SYSTEM_KEYS = (
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
Dir::Etc::sourcelist "{root}/debian.sources";
Dir::Etc::sourceparts "{root}/none.d/";
Dir::Etc::trusted "{root}/none";
Dir::Etc::trustedparts "{root}/keys.d/";
APT::Get::List-Cleanup "false";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
"""
# apt drops to the user _apt when run as root, who cannot read root's cache folder.
_AS_ROOT = 'APT::Sandbox::User "root";\n'

_SOURCES = """\
Types: deb
URIs: {uri}
Suites: testing
Components: main
Targets: Packages
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
    """apt-get with everything it writes below `root`, an existing folder that the caller removes afterwards.

    Args:
        root: an existing folder.
        uri: a mirror of Debian, from which packages of the testing suite are taken.
        keyrings: files with the keys to trust, `.asc`, `.gpg` or `.pgp`; those that don't exist are passed over.
    """

    def __init__(self, root: Path, uri: str, keyrings: Iterable[Path] = (SHIPPED_KEYS, *SYSTEM_KEYS)) -> None:
        for folder in ("state/lists/partial", "cache/archives/partial", "none.d", "keys.d"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "status").touch()
        text = _CONFIGURATION + (_AS_ROOT if os.geteuid() == 0 else "")
        self._root = root
        self._config = root / "apt.conf"
        self._config.write_text(text.format(root=root), encoding="utf-8")
        (root / "debian.sources").write_text(_SOURCES.format(uri=uri), encoding="utf-8")
        self._trust(keyrings)

    def update(self) -> str:
        """Fetch the package lists; return what was transferred, in apt's words (`10.1 MB`).

        apt ends with 0 when a server did not answer, and only warns: no list at all is an error here.

        Raises:
            StackError: no list arrived, or its signature is missing, unknown or out of date.
        """
        log = self._run("update")
        if not any(self._root.glob("state/lists/*_Packages*")):
            raise StackError(f"apt-get update: {_last_complaint(log)}: {INSTALL_HINT}")
        fetched = re.search(r"^Fetched (\S+ \S+) in", log, re.MULTILINE)
        return fetched[1] if fetched else "0 B"

    def describe(self, package: str) -> Download:
        """Return version and size of the package that the lists offer.

        Raises:
            StackError: the lists don't have it.
        """
        match = re.search(r"^'[^']*' (\S+) (\d+)", self._run("download", "--print-uris", package), re.MULTILINE)
        if match is None:
            raise StackError(f"no package {package} in Debian testing: {INSTALL_HINT}")
        return Download(match[1], int(match[2]))

    def unpack(self, package: str, into: Path) -> None:
        """Download `package`, verify it against the signed lists, unpack it below `into`; its scripts never run.

        Raises:
            StackError: apt-get or dpkg failed.
        """
        debs = self._root / "debs" / package
        debs.mkdir(parents=True, exist_ok=True)
        self._run("download", package, cwd=debs)
        for deb in debs.glob("*.deb"):
            run_quietly(["dpkg", "-x", str(deb), str(into)])
            deb.unlink()

    def _trust(self, keyrings: Iterable[Path]) -> None:
        """Copy keyrings to where this apt looks for keys. It infers their format from the name; `.pgp` is unknown."""
        for number, keyring in enumerate(keyrings):
            if keyring.is_file():
                suffix = keyring.suffix.replace(".pgp", ".gpg")
                shutil.copyfile(keyring, self._root / "keys.d" / f"{number}{suffix}")

    def _run(self, *arguments: str, cwd: Path | None = None) -> str:
        return run_quietly(["apt-get", "-c", str(self._config), *arguments], cwd=cwd or self._root)


def run_quietly(command: Sequence[str], cwd: Path | None = None) -> str:
    """Run `command` and return what it prints.

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
    """Return the first error that apt printed, else its last line; without a password that an address contains.

    About a signature apt warns first, naming the key, and then only calls the repository "not signed".
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    signatures = [line for line in lines if line.startswith("W:") and ("GPG error" in line or "OpenPGP" in line)]
    errors = [line for line in lines if line.startswith(("E:", "W: Failed", "dpkg"))]
    return re.sub(r"//[^/@\s]+@", "//", (signatures or errors or lines[-1:] or ["no message"])[0])
