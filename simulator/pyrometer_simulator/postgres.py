"""Real PostgreSQL servers in a folder of their own: a primary, a standby that confirms each commit, their failures."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pyrometer_simulator.ports import free_port

if TYPE_CHECKING:
    from typing_extensions import Self

_NOBODY = 65534  # PostgreSQL refuses to run as root
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "50",
    "max_wal_senders": "6",
    "wal_keep_size": "256MB",
    "hot_standby": "on",
    "wal_log_hints": "on",  # pg_rewind
    "shared_buffers": "16MB",
    "logging_collector": "off",
}


def binaries() -> Path | None:
    """Return the folder of PostgreSQL's programs, the newest first; None where there is none that is new enough."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: -_version(path))
    return next((path.parent for path in found if _version(path) >= 14), None)


def missing() -> str:
    """Return why no server can be used here, and what to do about it; empty where one can."""
    if binaries() is None:
        return "PostgreSQL 14 or later is not on this machine: apt-get install postgresql"
    if find_spec("psycopg") is None:
        return "psycopg is not installed: pip install 'pyrometer-alerting[postgresql]'"
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return f"user {os.geteuid()} has no name, and initdb refuses that: run as a user of /etc/passwd"
    return ""


def _version(path: Path) -> int:
    name = path.parents[1].name
    return int(name) if name.isdigit() else 0


class Server:
    """One server; `kill` ends it as a power cut ends the process."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self._programs = folder, programs
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def conninfo(self) -> str:
        """How a standby reaches it."""
        return f"host=127.0.0.1 port={self.port} user=postgres"

    def create(self, *, fsync: bool) -> None:
        """Make a new database cluster."""
        self._run("initdb", "-D", str(self.folder), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = _SETTINGS | {"fsync": "on" if fsync else "off"}
        with (self.folder / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self) -> None:
        """Start it and wait until it answers."""
        # No unix socket: two servers in one folder, and paths of tests are too long for one.
        command = [str(self._programs / "postgres"), "-D", str(self.folder), "-p", str(self.port), "-k", ""]
        with (self.folder.parent / f"{self.folder.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=_user(),
                group=_user(),
                extra_groups=_groups(),
            )
        deadline = time.monotonic() + 60
        while not self.answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError((self.folder.parent / f"{self.folder.name}.log").read_text()[-2000:])
            time.sleep(0.05)

    def answers(self) -> bool:
        """Return whether it takes connections."""
        command = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def kill(self) -> None:
        """End it and its children without a word."""
        if self._process is None:
            return
        self.signal(signal.SIGKILL)
        self._process.wait(30)
        self._process = None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes, such as SIGSTOP."""
        if self._process is None:
            return
        group = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout.split("\n")
        children = [int(line.split()[0]) for line in group[1:] if line.split()[1:] == [str(self._process.pid)]]
        for pid in [self._process.pid, *children]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def ask(self, statement: str, database: str = "postgres") -> str:
        """Run a statement with psql and return its answer."""
        command = ["psql", "-XAtq", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", database, "-c"]
        done = subprocess.run([*command, statement], capture_output=True, text=True, check=True, timeout=30)
        return done.stdout.strip()

    def promote(self) -> None:
        """Make a standby the primary, as an operator or Patroni does."""
        self._run("pg_ctl", "promote", "-D", str(self.folder), "-w", "-t", "30")

    def follow(self, primary: Server) -> None:
        """Become a standby of that one, from a copy of it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._run("pg_basebackup", "-D", str(self.folder), "-d", primary.conninfo, "-X", "stream", "-c", "fast",
                  "--no-sync")  # fmt: skip
        settings = f"primary_conninfo = '{primary.conninfo} application_name=standby'\nsynchronous_standby_names = ''\n"
        with (self.folder / "postgresql.auto.conf").open("w") as file:
            file.write(settings)
        (self.folder / "standby.signal").touch()
        if os.geteuid() == 0:
            os.chown(self.folder / "standby.signal", _NOBODY, _NOBODY)
        self.start()

    def require_standby(self) -> None:
        """Let commits wait for the standby from now on."""
        self.ask("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (standby)'")
        self.ask("SELECT pg_reload_conf()")
        deadline = time.monotonic() + 30
        while self.ask("SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')") == "0":
            if time.monotonic() > deadline:
                raise RuntimeError("the standby does not follow")
            time.sleep(0.05)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd="/",
            user=_user(),
            group=_user(),
            extra_groups=_groups(),
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr[-1000:]}")


def _user() -> int | None:
    return _NOBODY if os.geteuid() == 0 else None


def _groups() -> list[str | int] | None:
    return [] if os.geteuid() == 0 else None


class Pair:
    """A primary, and with `standby` one that must confirm each commit; in a folder that is removed at the end."""

    def __init__(self, *, standby: bool = False, fsync: bool = False) -> None:
        programs = binaries()
        if programs is None:
            raise RuntimeError(missing())
        self.folder = Path(tempfile.mkdtemp(prefix="pyrometer-postgres-"))
        if os.geteuid() == 0:
            os.chown(self.folder, _NOBODY, _NOBODY)
        self.primary = Server(self.folder / "a", programs)
        self.standby = Server(self.folder / "b", programs) if standby else None
        self._fsync = fsync

    def __enter__(self) -> Self:
        try:
            self.primary.create(fsync=self._fsync)
            self.primary.start()
            self.primary.ask("CREATE DATABASE alerting")
            if self.standby is not None:
                self.standby.follow(self.primary)
                self.primary.require_standby()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self.primary, self.standby):
            if server is not None:
                server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """The address for `--storage.url`: of both."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in sorted(one.port for one in self.servers))
        return f"postgresql://postgres@{hosts}/alerting"

    @property
    def servers(self) -> list[Server]:
        """Both, or the one."""
        return [self.primary] if self.standby is None else [self.primary, self.standby]

    def logged(self) -> str:
        """Return the logs of both."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-1500:]}" for log in logs)

    def fail_over(self) -> None:
        """Kill the primary, promote the standby; the old primary becomes a standby of it."""
        if self.standby is None:
            raise RuntimeError("there is no standby")
        self.primary.kill()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def rejoin(self) -> None:
        """Let the killed one follow the new primary."""
        if self.standby is None:
            raise RuntimeError("there is no standby")
        self.standby.follow(self.primary)
        self.primary.require_standby()
