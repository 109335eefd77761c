r"""A server that speaks the protocol of NCCL's RAS socket and reports on a simulated job.

As NCCL's does: commands in any case, ``\r`` tolerated, the connection closed after a report; a process that was
stopped costs the first report its time-out, is left out at once afterwards, and is dead for good after 60 s.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from pyrometer_simulator.nccl import report
from pyrometer_simulator.nccl.job import COLLECTIVES
from pyrometer_simulator.nccl.job import Job as TrainingJob

DEAD_SECONDS = 60.0
DEFAULT_TIMEOUT_SECONDS = 5.0
_MOST_LINE_BYTES = 1024


class RasJob:
    """A training job with the processes that it runs in, and which of them answer."""

    def __init__(
        self,
        job: TrainingJob,
        hosts: Callable[[int], str] = lambda node: f"10.0.{node // 250}.{node % 250 + 1}",
        version: tuple[int, int, int] = (2, 30, 7),
        *,
        per_node: int = 8,
        first_pid: int = 4000,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.job = job
        self.version = version
        self.processes = [
            report.Process(hosts(rank // per_node), first_pid + rank, rank % per_node)
            for rank in range(job.layout.ranks)
        ]
        self.initialising: dict[str, set[int]] = {}
        self._clock, self._wait = clock, wait
        self._stopped: dict[int, float] = {}
        self._known: set[int] = set()
        self.asked = 0

    def stop(self, rank: int) -> None:
        """Stop or kill a rank's process: it doesn't answer any more."""
        self._stopped[rank] = self._clock()

    def answer(self, timeout: float) -> report.Job:
        """Return the state of the job; the first time after a process stopped it takes the time-out."""
        self.asked += 1
        new = self._stopped.keys() - self._known
        if new:
            self._wait(timeout)
            self._known |= new
        groups = [
            self._communicator(number, name) for number, name in enumerate(self.job.groups) if self._is_known(name)
        ]
        seconds = timeout if new else 0.0
        return report.Job(self.processes, groups, self.version, seconds, len(new))

    def _is_known(self, name: str) -> bool:
        """Return whether RAS knows a communicator: only once all of its ranks have exchanged their addresses."""
        members = self.job.groups[name].members
        return self.initialising.get(name) != set(members) or any(rank in self._stopped for rank in members)

    def _communicator(self, number: int, name: str) -> report.Communicator:
        group = self.job.groups[name]
        found = report.Communicator((number + 1) * 0x9E3779B97F4A7C15 & (1 << 64) - 1, len(group.members), [])
        for place, rank in enumerate(group.members):
            if rank in self._stopped:
                dead = self._clock() - self._stopped[rank] >= DEAD_SECONDS
                found.missing.append(report.Missing(place, self.processes[rank], unresponsive=True, dead=dead))
            else:
                counts = group.kinds.get(rank) or dict.fromkeys(COLLECTIVES, 0)
                state = report.IN_PROGRESS if rank in self.initialising.get(name, ()) else report.READY
                found.ranks.append(report.Member(place, self.processes[rank], counts, state))
        return found


class RasServer:
    """Listens on a port of the loopback interface, as one of the job's processes on a node does."""

    def __init__(self, job: RasJob, host: str = "127.0.0.1", port: int = 0) -> None:
        self._server = _Server((host, port), _Handler)
        self._server.job = job
        self._server.connections = set()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="ras", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Return where it listens."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def __enter__(self) -> RasServer:  # noqa: PYI034  typing.Self needs Python 3.11
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    job: RasJob
    connections: set[Any]


class _Handler(socketserver.StreamRequestHandler):
    """One client."""

    @property
    def _ras(self) -> _Server:
        return cast("_Server", self.server)

    def handle(self) -> None:
        self._ras.connections.add(self.connection)
        self._timeout, self._form = DEFAULT_TIMEOUT_SECONDS, "text"
        try:
            for line in self._lines():
                pieces = self._answer(line)
                if pieces is not None:
                    for piece in pieces:
                        self.wfile.write(piece.encode())
                    return
        except OSError:
            return
        finally:
            self._ras.connections.discard(self.connection)

    def _lines(self) -> Iterator[str]:
        while line := self.rfile.readline(_MOST_LINE_BYTES + 1):
            if len(line) > _MOST_LINE_BYTES:
                return
            yield line.decode(errors="replace").rstrip("\r\n")

    def _answer(self, line: str) -> Iterable[str] | None:
        """Answer a command; return the pieces of a report, after which the connection ends."""
        job, low = self._ras.job, line.lower()
        if low.startswith("client protocol "):
            self._say("SERVER PROTOCOL 2")
        elif low.startswith("timeout "):
            self._set_timeout(line[len("timeout ") :])
        elif low.startswith("set format ") and job.version >= report.JSON_SINCE:
            self._set_form(line[len("set format ") :])
        elif low in ("status", "verbose status"):
            found = job.answer(self._timeout)
            return report.as_json(found) if self._form == "json" else report.as_text(found, verbose=low != "status")
        else:
            self._say(f"ERROR: Unknown command {line}")
        return None

    def _set_timeout(self, text: str) -> None:
        if text.strip().isdigit():
            self._timeout = float(text)
            self._say("OK")
        else:
            self._say(f"ERROR: Invalid timeout value {text}")

    def _set_form(self, text: str) -> None:
        if text.lower() in ("json", "text"):
            self._form = text.lower()
            self._say("OK")
        else:
            self._say(f"ERROR: Invalid format {text}")

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\n".encode())
