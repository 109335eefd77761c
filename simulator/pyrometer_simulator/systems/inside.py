"""Starts one command inside a chroot: ``python -m pyrometer_simulator.systems.inside`` in namespaces of its own.

It is run by `unshare --mount --pid --fork`, so that whatever it mounts or starts is gone when it ends.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

from pyrometer_simulator.stack.apt import run_quietly
from pyrometer_simulator.systems import seccomp
from pyrometer_simulator.systems.chroots import USERS, User
from pyrometer_simulator.systems.profiles import PROFILES, Profile

_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
_KMSG = (1, 11)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# How this machine reaches the registry; PIP_FIND_LINKS is a folder of its own.
_PASSED_ON = (
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "PIP_INDEX_URL",
    "PIP_CERT",
)


def command(root: Path, profile: Profile, user_key: str, script: str) -> list[str]:
    """Return the argument list that runs a shell script in the project's folder inside `root`."""
    order = json.dumps({"root": str(root), "profile": profile.name, "user": user_key, "script": script})
    module = [sys.executable, "-m", "pyrometer_simulator.systems.inside", order]
    return ["unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", *module]


def main(order: str) -> None:
    """Mount, forbid, enter, run the command and end with its status. Raises StackError, OSError.

    This process stays, as the first one of its namespace: it is ended together with `unshare`, and then the kernel ends
    all others there. The command's own user could not be told so, as a new user id clears that wish.
    """
    fields = json.loads(order)
    root, user = Path(fields["root"]), USERS[fields["user"]]
    (profile,) = (each for each in PROFILES if each.name == fields["profile"])
    _mount(root, profile)
    if profile.container:
        seccomp.install()
    os.chroot(root)
    shell = ["setpriv", *profile.setpriv_flags(user.uid), "sh", "-c", f"{fields['script']}\nexit $?"]
    process = subprocess.Popen(shell, cwd=f"{user.home}/pyrometer", env=_environment(user))
    sys.exit(_wait_as_init(process.pid))


def _wait_as_init(awaited: int) -> int:
    """Reap every process of the namespace, as its first one must, until the awaited one ends; return its status."""
    while True:
        pid, status = os.wait()
        if pid == awaited:
            return os.waitstatus_to_exitcode(status) % 256


def _mount(root: Path, profile: Profile) -> None:
    """Mount what every system has: processes, devices, shared memory; and sysfs, which is this machine's."""
    run_quietly(["mount", "-t", "proc", "proc", str(root / "proc")])
    run_quietly(["mount", "-t", "sysfs", "-o", "ro", "sysfs", str(root / "sys")])
    devices = root / "dev"
    run_quietly(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(devices)])
    for folder, kind, options in (("pts", "devpts", "newinstance,ptmxmode=0666"), ("shm", "tmpfs", "mode=1777")):
        (devices / folder).mkdir()
        run_quietly(["mount", "-t", kind, "-o", options, kind, str(devices / folder)])
    for name, number in _DEVICES.items():
        _make_node(devices / name, number, 0o666)
    for name, target in {
        "ptmx": "pts/ptmx",
        "fd": "/proc/self/fd",
        "stdin": "fd/0",
        "stdout": "fd/1",
        "stderr": "fd/2",
    }.items():
        (devices / name).symlink_to(target)
    if profile.kernel_log != "absent":
        _make_node(devices / "kmsg", _KMSG, 0o644)
    if profile.needs_closed_node:
        run_quietly(["mount", "--bind", str(devices / "kmsg"), str(devices / "kmsg")])
        run_quietly(["mount", "-o", "remount,bind,nodev", str(devices / "kmsg")])


def _make_node(path: Path, number: tuple[int, int], mode: int) -> None:
    os.mknod(path, stat.S_IFCHR | mode, os.makedev(*number))
    path.chmod(mode)  # whatever the umask is


def _environment(user: User) -> dict[str, str]:
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {"PATH": _PATH, "HOME": user.home, "USER": user.name, "LANG": "C.UTF-8", "TERM": "dumb", **passed_on}


if __name__ == "__main__":
    main(sys.argv[1])
