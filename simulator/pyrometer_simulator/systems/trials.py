"""Runs the commands in containers of a release, profile by profile, with a result for each."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from pyrometer_simulator.engine.daemon import Docker, EngineError
from pyrometer_simulator.systems import images
from pyrometer_simulator.systems.profiles import USERS, Profile, User
from pyrometer_simulator.systems.releases import Release

COMMANDS = {
    "demo": "make demo DEMO_FLAGS=--exit-after-scenario",
    "smoke": "make smoke",
    "test": "make test",
}
LIMIT_SECONDS = 3600.0
# How this machine reaches the registry; PIP_FIND_LINKS is a folder of its own.
_PASSED_ON = (
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_INDEX_URL", "PIP_CERT",
)  # fmt: skip

# Asked of the container's own Python before anything else: does the profile forbid what it should?
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
    """The commands to run on each system."""

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


@dataclass(frozen=True)
class Place:
    """Where trials of a system run: an image of an engine, with a folder of this machine as the user's home.

    Attributes:
        docker: the engine.
        image: of the system.
        folder: for home folders and logs.
    """

    docker: Docker
    image: str
    folder: Path

    def home(self, user: User) -> Path:
        """Return the user's home folder on this machine."""
        return self.folder / "homes" / self.image / user.name

    def command(self, name: str, profile: Profile, user: User, script: str) -> list[str]:
        """Return the command that runs a shell script in a container of this name, in the user's checkout."""
        settings = {"HOME": user.home, "USER": user.name, "LANG": "C.UTF-8", "TERM": "dumb"}
        env = [f"--env={key}={value}" for key, value in settings.items()] + [f"--env={key}" for key in _PASSED_ON]
        place = [f"--volume={self.home(user)}:{user.home}", f"--workdir={user.home}/pyrometer", "--shm-size=4g"]
        run = ["docker", "run", "--rm", "--init", "--network=host", f"--name={name}", *place, *env]
        return [*run, *profile.flags(user), self.image, *profile.command(user, script)]


def run_all(release: Release, place: Place, plan: Plan, progress: Callable[[str], object]) -> Iterator[Result]:
    """Run the plan on a system: each user and profile from nothing, that is with a fresh checkout and no cache."""
    set_up: set[str] = set()
    for key, profile in plan.each():
        user = USERS[key]
        note = "set up before" if key in set_up and plan.reuse else ""
        if not note:
            images.lay_out_project(place.home(user), user)
        objection = probe(place, profile, user)
        for command in plan.commands:
            label = f"{release.name}, {user.name}, {profile.title}: {COMMANDS[command]}"
            if objection:
                result = Result(release.name, key, profile.name, command, "not run", note=objection, date=_today())
            else:
                progress(label)
                outcome, seconds, complaint = _run(place, profile, key, command)
                result = Result(release.name, key, profile.name, command, outcome, seconds, complaint or note, _today())
                set_up.add(key)
            progress(f"{label}: {result.outcome} after {result.seconds:.0f} s {result.note}".rstrip())
            yield result
    for key in plan.users:
        shutil.rmtree(place.home(USERS[key]), ignore_errors=True)


def probe(place: Place, profile: Profile, user: User) -> str:
    """Return why the profile can't be brought about on this machine, in one line; empty where it was."""
    asked = place.command(f"{place.image}-probe", profile, user, f"python3 -c '{_PROBE}'")
    answer = subprocess.run(asked, env=place.docker.env, capture_output=True, text=True, check=False, timeout=60)
    try:
        state = json.loads(answer.stdout)
    except ValueError:
        lines = answer.stderr.strip().splitlines()
        return f"no container: {lines[0] if lines else 'no output'}"
    if state["log"] != profile.kernel_log:
        return f"the kernel log is {state['log']} and not {profile.kernel_log}"
    return "namespaces can still be made" if profile.container and state["namespaces"] else ""


def _run(place: Place, profile: Profile, user: str, command: str) -> tuple[str, float, str]:
    name = f"{place.image}-{user}-{profile.name}-{command}"
    log = place.folder / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                place.command(name, profile, USERS[user], COMMANDS[command]), env=place.docker.env,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False, timeout=LIMIT_SECONDS,
            )  # fmt: skip
            status = f"status {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            status = f"no end after {LIMIT_SECONDS:.0f} s"
            with suppress(EngineError):
                place.docker.run("rm", "--force", name)
    seconds = time.monotonic() - started
    return ("failed", seconds, f"{status}: {_complaint(log)}") if status else ("ok", seconds, "")


def _complaint(log: Path) -> str:
    """Return the line that says what went wrong: a verdict or a failed test, else the last one that is not make's."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("FAILED", "ERROR")) or "WRONG:" in line]
    last = [line for line in lines if not line.startswith("make")][-1:]
    return next(iter(telling or last), "no output")


def _today() -> str:
    return datetime.now(timezone.utc).date().isoformat()
