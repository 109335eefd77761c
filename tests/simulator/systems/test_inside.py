"""A command in namespaces of its own: nothing of it could be kept when it is ended, and its status is passed on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyrometer_simulator.systems import inside
from pyrometer_simulator.systems.chroots import USERS
from pyrometer_simulator.systems.profiles import PROFILES, Profile

NAMED = {profile.name: profile for profile in PROFILES}


def may_enter() -> bool:
    """True if this user may mount in a namespace and run setpriv there."""
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "setpriv", "true"], capture_output=True, check=False
    )
    return os.geteuid() == 0 and tried.returncode == 0


pytestmark = pytest.mark.skipif(not may_enter(), reason="needs root and namespaces, as make test-systems does")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """This machine's own programs, bound read-only where a chroot has its own."""
    root = tmp_path / "root"
    for folder in ("proc", "sys", "dev", "tmp", "home/newcomer/pyrometer", "root/pyrometer"):
        (root / folder).mkdir(parents=True)
    for path in tmp_path.parents:
        if path.owner() == "root" and str(path) != "/tmp":
            path.chmod(path.stat().st_mode | 0o011)  # the ordinary user has to get here
    return root


def enter(root: Path, profile: Profile, user: str, script: str) -> list[str]:
    """The command, after the programs of this machine are mounted below the root in the same namespace."""
    mounts = "".join(
        f"if [ -L /{name} ]; then ln -s usr/{name} {root}/{name}; "
        f"elif [ -d /{name} ]; then mkdir {root}/{name}; mount --rbind /{name} {root}/{name}; fi; "
        for name in ("usr", "bin", "lib", "lib64", "etc")
    )
    command = inside.command(root, profile, user, script)
    at = command.index(sys.executable)
    return [*command[:at], "sh", "-c", f'{mounts} exec "$@"', "sh", *command[at:]]


def run(root: Path, profile: str, user: str, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        enter(root, NAMED[profile], user, script), capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_a_command_runs_as_its_user_in_the_project_and_its_status_is_passed_on(root: Path, user: str) -> None:
    answer = run(root, "absent", user, "id -u; pwd; exit 7")
    assert (answer.stdout.split(), answer.returncode) == (
        [str(USERS[user].uid), f"{USERS[user].home}/pyrometer"], 7,
    ), answer.stderr  # fmt: skip


@pytest.mark.parametrize(("profile", "there"), [("readable", True), ("forbidden", True), ("absent", False)])
def test_the_kernels_log_is_there_or_not(root: Path, profile: str, there: bool) -> None:
    assert (run(root, profile, "ordinary", "test -e /dev/kmsg").returncode == 0) is there


def test_an_orphan_that_ends_leaves_no_zombie(root: Path) -> None:
    # The subshell ends at once; its child, then an orphan, a moment later.
    script = (
        "(sleep 0.1 & echo $! >/tmp/pid); "
        "for i in $(seq 400); do [ -e /proc/$(cat /tmp/pid) ] || exit 0; sleep 0.05; done; exit 9"
    )
    assert run(root, "absent", "root", script).returncode == 0


def test_nothing_is_left_mounted(root: Path) -> None:
    run(root, "readable", "root", "true")
    assert str(root) not in Path("/proc/self/mounts").read_text()


def test_ending_the_command_ends_whatever_it_started(root: Path) -> None:
    with subprocess.Popen(
        enter(root, NAMED["absent"], "ordinary", "sleep 54321 & echo begun; wait"), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.kill()
    deadline = time.monotonic() + 20
    while subprocess.run(["pgrep", "-f", "sleep 54321"], stdout=subprocess.DEVNULL, check=False).returncode == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
