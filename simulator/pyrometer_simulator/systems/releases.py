"""The systems that the commands are tried on, and where each is installed from."""

from __future__ import annotations

import shutil
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from pyrometer_simulator.stack.apt import SYSTEM_KEYS, Apt
from pyrometer_simulator.stack.errors import StackError
from pyrometer_simulator.stack.sources import debian_uris

UBUNTU = "http://archive.ubuntu.com/ubuntu"
OLD_DEBIAN_KEYS = Path(__file__).with_name("debian-keys-of-2021.asc")

# Required by the README, and present on a person's machine anyway.
_PACKAGES = ("ca-certificates", "git", "make", "procps", "python3", "python3-venv")


@dataclass(frozen=True)
class Release:
    """A release of Debian or Ubuntu."""

    name: str
    suite: str
    components: str = "main"
    packages: tuple[str, ...] = _PACKAGES
    debian_keys: Path | None = None
    """A keyring that takes the place of the installed keys of Debian's archive."""

    @property
    def is_ubuntu(self) -> bool:
        """True if it comes from Ubuntu's archive."""
        return "universe" in self.components


_DEBIAN_12 = Release("Debian 12", "bookworm")
_UBUNTU_22 = Release("Ubuntu 22.04", "jammy", "main,universe", (*_PACKAGES, "debian-archive-keyring"))
RELEASES = (
    _DEBIAN_12,
    Release("Debian 13", "trixie"),
    _UBUNTU_22,
    Release("Ubuntu 24.04", "noble", "main,universe"),
)

# Where Ubuntu's archive is out of reach: what is known to differ, on a system that can be installed.
SIMULATED = {
    _UBUNTU_22.name: Release(
        "Debian 12 with Ubuntu 22.04's Debian keys (simulated)", "bookworm", debian_keys=OLD_DEBIAN_KEYS
    )
}


def mirror(release: Release) -> str:
    """Return the address that `release` is installed from: of Debian, the machine's own mirror."""
    return UBUNTU if release.is_ubuntu else debian_uris()[0]


def is_reachable(release: Release) -> bool:
    """Return whether the archive answers for `release`."""
    url = f"{mirror(release)}/dists/{release.suite}/Release"
    try:
        with urllib.request.urlopen(url, timeout=20):  # noqa: S310  an archive's address
            return True
    except OSError:
        return False


def keyring(release: Release, scratch: Path) -> Path:
    """Return the keys that sign `release`: the system's, or for Ubuntu those in Debian's package of them.

    Args:
        release: what is to be installed.
        scratch: an existing folder, which must outlive the use of the keys.

    Raises:
        StackError: there are none.
    """
    if release.is_ubuntu:
        apt = Apt(scratch, debian_uris()[0])
        apt.update()
        apt.unpack("ubuntu-keyring", scratch / "ubuntu")
        apt.unpack("ubuntu-archive-keyring", scratch / "ubuntu")
        return scratch / "ubuntu/usr/share/keyrings/ubuntu-archive-keyring.gpg"
    for path in SYSTEM_KEYS:
        if path.is_file():
            return path
    raise StackError("no keys of Debian's archive on this system: apt-get install debian-archive-keyring")


def require_tools() -> None:
    """Raise StackError, naming the package, unless debootstrap is installed."""
    if shutil.which("debootstrap") is None:
        raise StackError("debootstrap not found: apt-get install debootstrap")
