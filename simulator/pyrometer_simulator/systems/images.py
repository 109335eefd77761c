"""Builds an image per release with debootstrap, and lays the project out as a fresh checkout of somebody's."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyrometer_simulator.engine.daemon import Docker
from pyrometer_simulator.stack.apt import SYSTEM_KEYS, run_quietly
from pyrometer_simulator.stack.errors import StackError
from pyrometer_simulator.systems.profiles import ORDINARY, User
from pyrometer_simulator.systems.releases import Release, keyring, mirror

PROJECT = Path(__file__).resolve().parents[3]

# Settings of a machine behind a proxy or a frozen mirror; a container on it needs the same.
_APT_SETTINGS = re.compile(r'^Acquire::(?:(?:http|https)::\S*|Check-Valid-Until) "[^"]*";$', re.MULTILINE)
_HOST_FILES = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")


def build(docker: Docker, release: Release, folder: Path, progress: Callable[[str], object]) -> str:
    """Return the image of `release`, whose files are installed below `folder` the first time.

    Raises:
        StackError: debootstrap failed; its last line is in the message.
        EngineError: the engine doesn't take it.
    """
    root = folder / (f"{release.suite}-simulated" if release.debian_keys else release.suite)
    if not root.is_dir():
        progress(f"installing {release.name} with debootstrap (1 to 3 minutes)")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as scratch:
            unfinished = Path(scratch) / "root"
            _debootstrap(release, unfinished, Path(scratch))
            _add_users(unfinished)
            unfinished.rename(root)
    _copy_settings(root)
    if release.debian_keys is not None:
        _replace_debian_keys(root, release.debian_keys)
    image = f"pyrometer-systems-{root.name}"
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
        docker.run("import", "-", image, stdin=tar.stdout)
    return image


def lay_out_project(home: Path, user: User) -> None:
    """Copy the project's own files, and nothing that git ignores, into a new repository in a new home folder."""
    shutil.rmtree(home, ignore_errors=True)
    listed = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=PROJECT, check=True, capture_output=True, text=True).stdout.split("\0"):
        source, target = PROJECT / name, home / "pyrometer" / name
        if name and source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    run_quietly(["git", "init", "--quiet", str(home / "pyrometer")])
    run_quietly(["git", "-C", str(home / "pyrometer"), "add", "--all"])
    run_quietly(["chown", "--recursive", f"{user.uid}:{user.uid}", str(home)])


def _debootstrap(release: Release, root: Path, scratch: Path) -> None:
    keys = keyring(release, scratch)
    command = [
        "debootstrap", "--variant=minbase", f"--include={','.join(release.packages)}",
        f"--components={release.components}", f"--keyring={keys}", release.suite, str(root), mirror(release),
        # The script of all Ubuntus, which an older debootstrap doesn't know by the names of newer ones.
        *(["gutsy"] if release.is_ubuntu else []),
    ]  # fmt: skip
    answer = subprocess.run(command, text=True, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if answer.returncode != 0:
        lines = (answer.stdout + answer.stderr).strip().splitlines()
        raise StackError(f"debootstrap {release.suite}: {lines[-1] if lines else 'no output'}")


def _add_users(root: Path) -> None:
    uid = str(ORDINARY.uid)
    run_quietly(["chroot", str(root), "useradd", "--create-home", "--uid", uid, "--user-group", ORDINARY.name])


def _copy_settings(root: Path) -> None:
    """Take over how this machine reaches its archives and registries."""
    settings = _APT_SETTINGS.findall(run_quietly(["apt-config", "dump"]))
    (root / "etc/apt/apt.conf.d/99-as-outside").write_text("\n".join([*settings, ""]), encoding="utf-8")
    for name in _HOST_FILES:
        if os.path.exists(name):  # noqa: PTH110  not Path, which would follow a broken link into an error
            target = root / name.lstrip("/")
            target.unlink(missing_ok=True)
            shutil.copyfile(name, target)


def _replace_debian_keys(root: Path, armored: Path) -> None:
    """Put the keys of an armored file in the place of the installed keyring, which is binary."""
    body = armored.read_text(encoding="ascii").split("\n\n", 1)[1]
    lines = [line for line in body.splitlines() if line and line[0] not in "=-"]
    keyrings = [root / str(path).lstrip("/") for path in SYSTEM_KEYS]
    for keyring_file in keyrings:
        keyring_file.unlink(missing_ok=True)
    keyrings[-1].with_suffix(".gpg").write_bytes(base64.b64decode("".join(lines)))
