"""NCCL RAS without sockets and threads: the collector asks when a scrape does, and the job answers at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from pyrometer_exporters.node.nccl.ras_client import NobodyListensError
from pyrometer_kit.flags import Address
from pyrometer_simulator.nccl import report
from pyrometer_simulator.nccl.ras_server import RasJob

_RAS_TIMEOUT_SECONDS = 5.0


class AskedByScrapes:
    """Does the collector's work when it is scraped, in place of threads that wait in real time."""

    def __init__(self) -> None:
        self._works: list[Callable[[], None]] = []

    def begin(self) -> AskedByScrapes:
        """Return itself, as of a new exporter."""
        self._works = []
        return self

    def start(self, name: str, seconds: float, work: Callable[[], None]) -> None:  # noqa: ARG002  as Background's
        """Keep a piece of work."""
        self._works.append(work)

    def now(self) -> None:
        """Do all work once."""
        for work in self._works:
            work()

    def stop(self) -> None:
        """Forget the work."""
        self._works = []


class Connection:
    """A connection to the RAS socket of a job; see :class:`pyrometer_exporters.node.nccl.ras_client.Conversation`."""

    def __init__(self, job: RasJob) -> None:
        self._job = job

    def __enter__(self) -> Connection:  # noqa: PYI034  typing.Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def status(self) -> tuple[str, Iterator[bytes]]:
        """Return the report, in JSON."""
        answer = self._job.answer(_RAS_TIMEOUT_SECONDS)
        return "json", (piece.encode() for piece in report.as_json(answer) if piece)

    def owner(self, _procfs: Path) -> None:
        """Return nobody: no kernel of the world's lists its connections."""


def connection_to(job: Callable[[], RasJob | None]) -> Callable[[Address, float], Connection]:
    """Return how to connect to the job that there is at the time."""

    def connect(_where: Address, _until: float) -> Connection:
        there = job()
        if there is None:
            raise NobodyListensError
        return Connection(there)

    return connect
