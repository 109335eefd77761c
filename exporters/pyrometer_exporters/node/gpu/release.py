"""Release the GPUs on request, so that one can be reset while this exporter runs.

A process that holds ``/dev/nvidia*`` blocks ``nvidia-smi --gpu-reset`` and unloading the driver. Users who may write to
the state folder (root, this service's user) ask for the GPUs by a file there. That works from a Slurm prolog, from
inside and outside of a container that shares the folder, and across restarts; it can't be reached from the network::

    state=/var/lib/pyrometer                                     # --path.state
    touch $state/gpu-release                                     # "release"
    timeout 20 sh -c "until [ -e $state/gpu-released ]; do sleep 0.2; done"   # "done"
    nvidia-smi --gpu-reset -i 3
    rm $state/gpu-release                                        # "re-attach them"

If there is no answer, a call to the driver hangs, and a warning is logged: stop the exporter instead (while the file
exists, a restarted one doesn't attach the GPUs), or remove the file, and all GPUs but the hung one are read on.
A file older than ``--collector.gpu.release-limit`` is ignored: someone's script died.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path

from pyrometer_exporters.framework.metrics import Families
from pyrometer_exporters.node.gpu.driver import Driver
from pyrometer_kit.clock import FileAge, SystemClock

log = logging.getLogger(__name__)

# fmt: off
RELEASED = Families().gauge("pyrometer_gpu_released",
    "1 while this exporter has released the GPUs because the file gpu-release in its state folder requests it, else "
    "0; GPUs are then down with the reason released, or releasing while a hanging call prevents the release.")
# fmt: on
REQUEST, ANSWER = "gpu-release", "gpu-released"
DEFAULT_LIMIT_SECONDS = 1800.0
LOOK_SECONDS = 1.0


class ReleaseWatch:
    """Checks for the request once a second; does nothing without a state folder."""

    def __init__(self, driver: Driver, state: Path | None, limit_seconds: float = DEFAULT_LIMIT_SECONDS) -> None:
        self._age = FileAge(SystemClock())
        self._driver = driver
        self._state = state
        self._limit = limit_seconds
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._overdue = False
        self._waits = False
        self._logged = False
        self.released = False
        """True while the GPUs are released and nothing of the driver is held."""
        if state is not None:
            with contextlib.suppress(OSError):
                (state / ANSWER).unlink(missing_ok=True)  # of an earlier exporter

    def start(self) -> None:
        """Check once and start checking in a thread; a second call does nothing."""
        if self._state is not None and self._thread is None:
            self._check_and_log(0.0)
            self._thread = threading.Thread(target=self._run, name="gpu-release", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop checking."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            self._check_and_log(LOOK_SECONDS)

    def _check_and_log(self, seconds: float) -> None:
        try:
            self._check(seconds)
        except OSError as error:  # a full disk: the answer can't be written now, though the GPUs are released
            if not self._logged:
                log.warning("gpu-release: %s", error)
            self._logged = True
        else:
            self._logged = False

    def _check(self, seconds: float) -> None:
        with self._lock:
            wanted = self._wanted()
            if wanted and not self.released:
                self._release(seconds)
            elif not wanted and self._driver.released:
                self._path(ANSWER).unlink(missing_ok=True)
                self.released = self._waits = False
                self._driver.resume()
                log.info("GPUs re-attached")

    def _release(self, seconds: float) -> None:
        if self._driver.release(seconds):
            self._answer()
            self.released = True
            log.info("GPUs released; remove %s to re-attach them", self._path(REQUEST))
        elif seconds and not self._waits:
            self._waits = True
            log.warning("a call to the driver hangs: the GPUs can't be released until it returns; stop this exporter")

    def _wanted(self) -> bool:
        try:
            age = self._age.of(self._path(REQUEST).stat().st_mtime)
        except OSError:
            self._overdue = False
            return False
        if age > self._limit and not self._overdue:
            log.warning("%s is %.0f s old and ignored; touch it to request the release again", self._path(REQUEST), age)
        self._overdue = age > self._limit
        return not self._overdue

    def _answer(self) -> None:
        # Not through a link that someone laid there.
        descriptor = os.open(self._path(ANSWER), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        try:
            os.write(descriptor, b"The GPU exporter holds no GPU. Remove gpu-release to re-attach them.\n")
        finally:
            os.close(descriptor)

    def _path(self, name: str) -> Path:
        return (self._state or Path()) / name
