"""The connection to the NVIDIA driver: made once, made again only when the driver itself went away."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

from pyrometer_exporters.framework.clock import Clock
from pyrometer_exporters.framework.worker import PartError
from pyrometer_exporters.node.gpu.nvml import Nvml, NvmlError

FIRST_RETRY_SECONDS = 1.0
# A driver that is missing for a minute was not forgotten but removed; initialising costs it a round of every GPU.
LONGEST_RETRY_SECONDS = 60.0


@dataclass(frozen=True)
class Link:
    """A connection; GPU handles are valid within one ``generation``."""

    generation: int
    driver: str


class Driver:
    """NVML's state as a whole. :meth:`visit` is for one thread alone; the rest can be read from any."""

    PART: Final = "nvml"

    def __init__(self, nvml: Nvml, clock: Clock) -> None:
        self._nvml = nvml
        self._clock = clock
        self._retry_at = 0.0
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._generation = 0
        self.link: Link | None = None
        self.error: PartError = PartError("no_driver", "not yet initialised")

    def visit(self) -> int:
        """The number of GPUs that the driver presents; connects first where there is no connection.

        Errors: PartError with the reason, without a call to the driver where the next try isn't due yet.
        """
        link = self.link or self._connect()
        try:
            return self._nvml.device_count()
        except NvmlError as error:
            self.failed(error, link)
            raise

    def failed(self, error: PartError, link: Link) -> None:
        """Take note of an error of a call under ``link``; only one that says that the driver is gone ends it.

        A lost GPU never does: to initialise again would take the healthy ones away as well. Nor does a late answer to
        a call that was made before the present connection.
        """
        if isinstance(error, NvmlError) and error.driver_gone and link is self.link:
            self.error = error
            self.link = None

    def _connect(self) -> Link:
        now = self._clock.monotonic()
        if now < self._retry_at:
            raise PartError(self.error.reason, self.error.detail)
        # Set before the call: one that never returns must not be tried twice at once when a new worker takes over.
        self._retry_at = now + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, LONGEST_RETRY_SECONDS)
        if self._generation:
            with contextlib.suppress(NvmlError):  # the library counts how often it was initialised
                self._nvml.shutdown()
        try:
            self._nvml.init()
            version = self._nvml.driver_version()
        except NvmlError as error:
            self.error = error
            raise
        self._generation += 1
        self._retry_seconds = FIRST_RETRY_SECONDS
        self.link = link = Link(self._generation, version)
        return link
