"""Letting go of the GPUs on request, so that one can be reset while we run.

A process that holds ``/dev/nvidia*`` keeps ``nvidia-smi --gpu-reset`` and an unload of the driver from working. Who
may write to the state folder (root, this service's user) asks for the GPUs through a file there, which works from a
Slurm prolog, from inside and outside of a container that shares the folder, and across our own restarts; nothing of
it can be reached from the network::

    state=/var/lib/pyrometer                                     # --path.state
    touch $state/gpu-release                                     # "let go"
    timeout 20 sh -c "until [ -e $state/gpu-released ]; do sleep 0.2; done"   # "done"
    nvidia-smi --gpu-reset -i 3
    rm $state/gpu-release                                        # "take them again"

Where the answer doesn't come, a call to the driver hangs, and the log says so: stop the exporter instead (the file
keeps a restarted one from taking the GPUs again), or remove the file, and all GPUs but the hung one go on as before.
A file older than ``--collector.gpu.release-limit`` is forgotten: someone's script died.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from pathlib import Path

from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.node.gpu.driver import Driver

log = logging.getLogger(__name__)

RELEASED = Family(
    "pyrometer_gpu_released",
    "gauge",
    "1 while this exporter has let go of the GPUs because the file gpu-release in its state folder asks for it, "
    "else 0; GPUs are then down with the reason released, or, while a call that hangs keeps it from that, "
    "releasing.",
)
REQUEST, ANSWER = "gpu-release", "gpu-released"
DEFAULT_LIMIT_SECONDS = 1800.0
LOOK_SECONDS = 0.5


class ReleaseWatch:
    """Looks for the request twice a second; without a state folder there is nothing to look for."""

    def __init__(self, driver: Driver, state: Path | None, limit_seconds: float = DEFAULT_LIMIT_SECONDS) -> None:
        self._driver = driver
        self._state = state
        self._limit = limit_seconds
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._overdue = False
        self._waits = False
        self._told = False
        self.released = False
        """Whether the GPUs are let go: nothing of the driver is held."""
        if state is not None:
            with contextlib.suppress(OSError):
                (state / ANSWER).unlink(missing_ok=True)  # of an earlier exporter

    def start(self) -> None:
        """Look once, and begin to look on; no second call does anything."""
        if self._state is not None and self._thread is None:
            self._look_or_tell(0.0)
            self._thread = threading.Thread(target=self._run, name="gpu-release", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            self._look_or_tell(LOOK_SECONDS)

    def _look_or_tell(self, seconds: float) -> None:
        try:
            self._look(seconds)
        except OSError as error:  # a full disk: the answer can't be written now, though the GPUs are let go
            if not self._told:
                log.warning("gpu-release: %s", error)
            self._told = True
        else:
            self._told = False

    def _look(self, seconds: float) -> None:
        with self._lock:
            wanted = self._wanted()
            if wanted and not self.released:
                self._let_go(seconds)
            elif not wanted and self._driver.released:
                self._path(ANSWER).unlink(missing_ok=True)
                self.released = self._waits = False
                self._driver.resume()
                log.info("the GPUs are taken again")

    def _let_go(self, seconds: float) -> None:
        if self._driver.release(seconds):
            self._answer()
            self.released = True
            log.info("the GPUs are let go until %s is removed", self._path(REQUEST))
        elif seconds and not self._waits:
            self._waits = True
            log.warning("a call to the driver hangs: the GPUs can't be let go before it returns; stop this exporter")

    def _wanted(self) -> bool:
        try:
            age = time.time() - self._path(REQUEST).stat().st_mtime
        except OSError:
            self._overdue = False
            return False
        if age > self._limit and not self._overdue:
            log.warning("%s is %.0f s old and forgotten; touch it to ask again", self._path(REQUEST), age)
        self._overdue = age > self._limit
        return not self._overdue

    def _answer(self) -> None:
        # Not through a link that someone laid there.
        descriptor = os.open(self._path(ANSWER), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        try:
            os.write(descriptor, b"The GPU exporter holds no GPU. Remove gpu-release to let it take them again.\n")
        finally:
            os.close(descriptor)

    def _path(self, name: str) -> Path:
        return (self._state or Path()) / name
