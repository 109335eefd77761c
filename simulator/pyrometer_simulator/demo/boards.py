"""The demo's boards: in a real Grafana where there is one, else drawn by the demo itself; no other part needs them."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from pyrometer_simulator.demo import grafana
from pyrometer_simulator.demo.addresses import Addresses
from pyrometer_simulator.demo.drawn.server import DrawnBoards
from pyrometer_simulator.demo.processes import DemoError, Processes, answers
from pyrometer_simulator.shipped import project_folder

KINDS = ("auto", "grafana", "drawn", "none")
NAME = "grafana"
# An incident stays on a board for as long as it lasts; the seconds before it show what was normal.
BEFORE_SECONDS = 240
Say = Callable[[str], None]


class Boards:
    """Boards that are being served, or none."""

    def __init__(self, description: str, url: str = "", process: subprocess.Popen[bytes] | None = None) -> None:
        self.description = description
        self._url = url
        self._process = process
        self._said = False

    @property
    def drawn(self) -> bool:
        """True if the demo draws them itself."""
        return bool(self._url) and self._process is None

    def url(self, board: str = "", at: float | None = None) -> str:
        """Return the address of a board, such as `overview`, as it was at a time; empty where there are no boards."""
        if not self._url or not board:
            return self._url
        span = f"?from={(at - BEFORE_SECONDS) * 1000:.0f}&to={at * 1000:.0f}" if at is not None else ""
        return f"{self._url}/d/pyrometer-{board}{span}"

    def look(self, processes: Processes, say: Say) -> None:
        """Say once that Grafana is ready, or that it ended; nothing else of the demo waits for it."""
        if self._process is None or self._said:
            return
        if self._process.poll() is not None:
            self._said = True
            self._url = ""
            say(f"no boards: Grafana ended with status {self._process.returncode}: {processes.last_line(NAME)}")
        elif answers(f"{self._url}/api/health"):
            self._said = True
            say(f"Grafana has the boards: {self._url}")


def find(kind: str, environ: dict[str, str]) -> grafana.Grafana | None:
    """Return the Grafana for this kind of boards. Raises DemoError where one was asked for and is not there."""
    if kind not in ("auto", "grafana"):
        return None
    found = grafana.find(project_folder(), environ)
    if found is None and kind == "grafana":
        raise DemoError(f"--boards=grafana: there is none on PATH, in GRAFANA_HOME or in Docker. For {grafana.HINT}")
    return found


@contextlib.contextmanager
def serving(
    kind: str, found: grafana.Grafana | None, folder: Path, where: Addresses, processes: Processes
) -> Iterator[Boards]:
    """Serve the boards at Grafana's port until the end of the ``with``. Raises DemoError."""
    url, project = where.url(where.grafana), project_folder()
    if found is not None:
        folder.mkdir()
        settings = grafana.settings(project, where.grafana, where.url(where.prometheus), where.url(where.alertmanager))
        command, environment = found.launch(project, folder, settings)
        process = processes.start(NAME, command, environment, dispensable=True)
        try:
            yield Boards(found.description, url, process)
        finally:
            processes.end(NAME)
            found.clean_up()
    elif kind in ("auto", "drawn"):
        with DrawnBoards(project / "dashboards/json", where.url(where.prometheus), where.grafana):
            yield Boards("drawn without Grafana", url)
    else:
        yield Boards("none")
