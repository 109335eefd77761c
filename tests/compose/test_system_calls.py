"""Each program, started as its unit starts it, makes no system call that the unit forbids; seen by strace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from pyrometer_simulator.http_call import call
from pyrometer_simulator.ports import free_port

UNITS = Path(__file__).resolve().parents[2] / "compose/systemd"
PROGRAMS = {
    "pyrometer-node-exporter": (["--path.state=STATE"], ["/metrics", "/batches?consumer=a"]),
    "pyrometer-cluster-exporter": (["--path.state=STATE", "--collector.slurm"], ["/metrics"]),
    "pyrometer-alerting": (["--storage.path=STATE"], ["/metrics", "/", "/-/ready"]),
}
NEEDED = ("strace", "systemd-analyze")
# strace ends the program by a signal of its own, and these are made before a unit's filter is in force.
OF_THE_TRACER = {"execve", "restart_syscall"}
# OpenBLAS (numpy) asks where its buffers lie, and does without an answer; it does so on some machines only.
REFUSED = {"mbind"}
# SQLite gives the files that root makes to the owner of the folder; a service is not root.
OF_ROOT = {"fchown"} if os.geteuid() == 0 else set()


@cache
def members(group: str) -> frozenset[str]:
    """The system calls of a group, with those of the groups in it."""
    answer = subprocess.run(["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True)
    words = [line.strip() for line in answer.stdout.splitlines()[1:]]
    found: set[str] = set()
    for word in words:
        if not word.startswith("#"):
            found |= members(word) if word.startswith("@") else {word}
    return frozenset(found)


def allowed(unit: str) -> set[str]:
    """Return the calls that a unit's SystemCallFilter= lines let through."""
    found: set[str] = set()
    for value in re.findall(r"^SystemCallFilter=(.*)$", (UNITS / f"{unit}.service").read_text(), re.MULTILINE):
        calls = {call for word in value.lstrip("~").split() for call in (members(word) if word[0] == "@" else {word})}
        found = found - calls if value.startswith("~") else found | calls
    return found


def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def answer(url: str, process: subprocess.Popen[bytes]) -> int:
    found: list[int] = []

    def asked() -> bool:
        assert process.poll() is None, "the program ended"
        try:
            found.append(call(url, seconds=5).status)
        except OSError:
            return False
        return True

    until(asked)
    return found[0]


def calls_of(program: str, folder: Path) -> set[str]:
    flags, paths = PROGRAMS[program]
    port, log = free_port(), folder / "calls"
    command = [str(Path(sys.executable).with_name(program)), f"--web.listen-address=127.0.0.1:{port}"]
    command += [flag.replace("STATE", str(folder / "state")) for flag in flags]
    # -D: the program is our child, and strace its grandchild, which writes on until the program has ended.
    traced = ["strace", "-D", "-f", "-q", "-o", str(log), *command]
    with subprocess.Popen(traced, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            assert [answer(f"http://127.0.0.1:{port}{path}", process) for path in paths]
        finally:
            process.terminate()
            process.wait(60)
    ended = re.compile(rf"^{process.pid} +\+\+\+ exited", re.MULTILINE)  # short numbers are padded
    until(lambda: ended.search(log.read_text(errors="replace")))
    return set(re.findall(r"^\d+ +(\w+)\(", log.read_text(errors="replace"), re.MULTILINE))


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_program_makes_a_call_that_its_unit_forbids(program: str, tmp_path: Path) -> None:
    for needed in NEEDED:
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not on PATH: its system calls can't be seen")
    made = calls_of(program, tmp_path) - OF_THE_TRACER - OF_ROOT - REFUSED
    assert len(made) > 30
    assert made - allowed(program) == set()


def test_what_is_forbidden_is_what_no_service_needs() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on PATH")
    for unit in PROGRAMS:
        assert allowed(unit).isdisjoint({"mount", "reboot", "init_module", "ptrace", "bpf", "setuid", "chown", "mlock"})
        assert {"openat", "sendto", "pidfd_open", "clone"} <= allowed(unit)
