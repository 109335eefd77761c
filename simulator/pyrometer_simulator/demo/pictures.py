"""Pictures of the demo's boards at a moment of its run, one after the other, while the demo goes on."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyrometer_simulator.demo.processes import Processes

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--window-size=1600,1100",
    # The page's own clock runs on as fast as it can until then: all queries of a board are answered.
    "--virtual-time-budget=20000",
)  # fmt: skip
# A board of Grafana's took 9 s on two busy cores.
_LONGEST_SECONDS = 90.0
_NAME = "pictures"


def find_browser() -> str:
    """Return the path of Chromium or Chrome; empty where there is none."""
    return next((found for name in _BROWSERS if (found := shutil.which(name))), "")


class Pictures:
    """Pictures that are still to be taken; `look` starts the next as soon as one is done."""

    def __init__(self, browser: str, folder: Path, scratch: Path, pages: Mapping[str, str]) -> None:
        self._browser = browser
        self._folder = folder
        self._scratch = scratch
        self._rest = list(pages.items())
        self._files = [folder / f"{name}.png" for name in pages]
        self._running: subprocess.Popen[bytes] | None = None
        self._until = 0.0
        self._said = not pages

    @property
    def left(self) -> bool:
        """True while pictures are still to be taken."""
        return not self._said

    def look(self, processes: Processes, say: Callable[[str], None]) -> None:
        """Go on; say where the pictures are once all are taken."""
        if self._running is not None:
            if self._running.poll() is None and time.monotonic() < self._until:
                return
            processes.end(_NAME)
            self._running = None
        if self._rest:
            self._start(processes, *self._rest.pop(0))
        elif not self._said:
            self._said = True
            taken = sum(file.exists() for file in self._files)
            say(
                f"{taken} pictures of the boards: {self._folder}"
                if taken
                else f"no pictures: {processes.last_line(_NAME)}"
            )

    def _start(self, processes: Processes, name: str, url: str) -> None:
        scratch = self._scratch / "browser"
        scratch.mkdir(exist_ok=True)
        (self._folder / f"{name}.png").unlink(missing_ok=True)  # one of an earlier run is none of this one
        command = [
            self._browser, *_FLAGS, f"--user-data-dir={scratch}", f"--screenshot={self._folder / name}.png", url,
        ]  # fmt: skip
        own = {"HOME": str(scratch), "TMPDIR": str(scratch)}
        self._running = processes.start(_NAME, command, own, dispensable=True)
        self._until = time.monotonic() + _LONGEST_SECONDS
