"""Runs the commands in a chroot, profile by profile, and keeps what came of each."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from pyrometer_simulator.stack.errors import StackError
from pyrometer_simulator.systems import chroots, inside, seccomp
from pyrometer_simulator.systems.profiles import Profile
from pyrometer_simulator.systems.releases import Release

COMMANDS = {
    "demo": "make demo DEMO_FLAGS=--exit-after-scenario",
    "smoke": "make smoke",
    "test": "make test",
}
LIMIT_SECONDS = 3600.0

# Asked of the chroot's own Python before anything else: does the profile forbid what it should?
_PROBE = """
import ctypes, json, os
try: os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)); log = "readable"
except FileNotFoundError: log = "absent"
except PermissionError: log = "forbidden"
namespaces = ctypes.CDLL(None).unshare(0x10000000) == 0
print(json.dumps({"log": log, "namespaces": namespaces}))
"""


@dataclass(frozen=True)
class Result:
    """The result of one command; ``outcome`` is ``ok``, ``failed`` or ``not run``, with the reason in ``note``."""

    system: str
    user: str
    profile: str
    command: str
    outcome: str
    seconds: float = 0.0
    note: str = ""
    date: str = ""


@dataclass(frozen=True)
class Plan:
    """The commands to run in each chroot."""

    users: Sequence[str]
    profiles: Sequence[Profile]
    commands: Sequence[str]
    reuse: bool = False
    """Set up once per user instead of once per profile: quicker, and no trial of the setting up."""

    def each(self) -> Iterator[tuple[str, Profile]]:
        """Yield each user with each profile."""
        return ((user, profile) for user in self.users for profile in self.profiles)

    def not_run(self, system: str, reason: str) -> Iterator[Result]:
        """Yield a result for everything that could not be run there."""
        for user, profile in self.each():
            for command in self.commands:
                yield Result(system, user, profile.name, command, "not run", note=reason, date=_today())


def run_all(
    release: Release, root: Path, plan: Plan, logs: Path, progress: Callable[[str], object]
) -> Iterator[Result]:
    """Run the plan in a chroot: each user and profile from nothing, that is with a fresh checkout and no cache."""
    set_up: set[str] = set()
    for user, profile in plan.each():
        note = "set up before" if user in set_up and plan.reuse else ""
        if not note:
            chroots.lay_out_project(root, chroots.USERS[user])
        objection = probe(root, profile, user)
        for command in plan.commands:
            label = f"{release.name}, {chroots.USERS[user].name}, {profile.title}: {COMMANDS[command]}"
            if objection:
                result = Result(release.name, user, profile.name, command, "not run", note=objection, date=_today())
            else:
                progress(label)
                log = logs / f"{root.name}-{user}-{profile.name}-{command}.log"
                outcome, seconds, complaint = _run(inside.command(root, profile, user, COMMANDS[command]), log)
                result = Result(
                    release.name, user, profile.name, command, outcome, seconds, complaint or note, _today()
                )
                set_up.add(user)
            progress(f"{label}: {result.outcome} after {result.seconds:.0f} s {result.note}".rstrip())
            yield result
    for user in plan.users:
        shutil.rmtree(root / chroots.USERS[user].home.lstrip("/") / "pyrometer", ignore_errors=True)


def probe(root: Path, profile: Profile, user: str) -> str:
    """Return why the profile can't be brought about on this machine, in one line; empty where it was."""
    if profile.container and not seccomp.SUPPORTED:
        return "no filter of system calls for this architecture"
    asked = inside.command(root, profile, user, f"python3 -c '{_PROBE}'")
    answer = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    try:
        state = json.loads(answer.stdout)
    except ValueError:
        lines = answer.stderr.strip().splitlines()
        return f"cannot enter the chroot: {lines[-1] if lines else 'no output'}"
    if state["log"] != profile.kernel_log:
        return f"the kernel log is {state['log']} and not {profile.kernel_log}"
    if profile.container and state["namespaces"]:
        return "namespaces can still be made"
    return ""


class ResultBook:
    """The results of all trials so far, in a file; a new one takes the place of an earlier one of the same trial."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def add(self, result: Result) -> None:
        """Add a result. Raises StackError where the file is damaged."""
        with self._lock:
            known = {_trial(each): each for each in [*self.load(), result]}
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps([vars(each) for each in known.values()], indent=1), encoding="utf-8")

    def load(self) -> list[Result]:
        """Return the results in the file; none where there is no file.

        Raises:
            StackError: it is damaged.
        """
        try:
            return [Result(**fields) for fields in json.loads(self._path.read_text(encoding="utf-8"))]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError):
            raise StackError(f"{self._path} is damaged: remove it") from None


def _run(command: list[str], log: Path) -> tuple[str, float, str]:
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False, timeout=LIMIT_SECONDS
            )
            status = f"status {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            status = f"no end after {LIMIT_SECONDS:.0f} s"
    seconds = time.monotonic() - started
    return ("failed", seconds, f"{status}: {_complaint(log)}") if status else ("ok", seconds, "")


def _complaint(log: Path) -> str:
    """Return the line that says what went wrong: a verdict or a failed test, else the last one that is not make's."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("FAILED", "ERROR")) or "WRONG:" in line]
    last = [line for line in lines if not line.startswith("make")][-1:]
    return next(iter(telling or last), "no output")


def _trial(result: Result) -> tuple[str, ...]:
    return result.system, result.user, result.profile, result.command


def _today() -> str:
    return datetime.now(timezone.utc).date().isoformat()
