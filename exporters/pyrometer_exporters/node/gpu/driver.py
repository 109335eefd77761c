"""The connection to the NVIDIA driver: made once, and again when the driver was unloaded or has taken a GPU.

All NVML calls are made under :meth:`Driver.using`, so that the library is shut down (to reconnect, or to release the
GPUs for a reset) only when no call is under way: NVML promises nothing for calls that are.

While a call hangs, on one GPU or for the driver as a whole:

- Release: no new call is made, so within moments only the hung one is left; when it returns, the library is shut down
  and the release answered. Until then GPUs are down as ``releasing``. If the request is withdrawn before that, the
  connection continues, and with it all GPUs but the hung one.
- Reconnect (the driver says that it was unloaded): not before the hung call returns; until then GPUs are down as
  ``earlier_call_hangs``. The kernel can't unload a driver with a call inside, so this is rare.
- Reconnect for a GPU that the driver has taken since (see ``hotplug.py``): not before the hung call returns; until
  then the connection stays, and with it all GPUs but the hung one.

Where the call never returns, only the end of the process frees the GPUs: stop or restart the exporter.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.gpu.nvml import Nvml, NvmlError
from pyrometer_kit.clock import Clock

FIRST_RETRY_SECONDS = 1.0
# A driver that is missing for a minute was not forgotten but removed; initialising costs it a round of every GPU.
LONGEST_RETRY_SECONDS = 60.0
# Healthy GPUs' calls, under way when the driver went, are over by then.
LAST_CALLS_SECONDS = 0.1
RELEASED: Final = "released"
"""The reason of GPUs that were released on request."""
RELEASING: Final = "releasing"
"""The reason while a call from before the release has not returned."""
CALL_HANGS: Final = "earlier_call_hangs"
"""The reason while an earlier call, which has not returned, prevents reconnecting."""
CONNECTING: Final = "connecting"
"""The reason while a new connection replaces another."""


@dataclass(frozen=True)
class Link:
    """A connection; GPU handles are valid within one ``generation``."""

    generation: int
    driver: str
    count: int
    """GPUs that the driver presents; it lists them only when a connection is made."""
    held: Mapping[str, int] | None = None
    """:attr:`PciBus.held` just before the connection was made."""


class Driver:
    """NVML's state as a whole. :meth:`visit` is for one thread alone; the rest can be used from any."""

    PART: Final = "nvml"

    def __init__(self, nvml: Nvml, clock: Clock) -> None:
        self._nvml = nvml
        self._clock = clock
        self._retry_at = 0.0
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._generation = 0
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._use = _Use(self)
        self._waits = 0
        self._calls = 0
        self._attached = False
        self._accusers: set[object] = set()
        self._before_release: Link | None = None
        self.link: Link | None = None
        self.error: PartError = PartError("no_driver", "not yet initialised")
        self.library = ""
        """The library's own version, such as ``13.590.48.01``; known also where the driver refused it."""
        self.released = False
        self.readers = 0
        """The number of GPUs that are read; 0 for all that the driver presents."""

    def visit(self, held: Mapping[str, int] | None = None, *, reconnect: bool = False) -> int:
        """Return the number of GPUs that the driver presents; connect first where there is no connection.

        Args:
            held: stored in a :class:`Link` that is made now.
            reconnect: make another connection, if no call is under way that would be cut.

        Raises:
            PartError: why there is no connection; without a call to the driver where the next try isn't due yet.
        """
        if reconnect:
            self._give_up()
        if self.link is None and not self.released:
            self._connect(held)
        with self.using() as link:
            try:
                return self._nvml.device_count()
            except NvmlError as error:
                self.failed(error, link)
                raise

    def hurry(self) -> None:
        """Make the next try to connect due now."""
        self._retry_at = 0.0

    def using(self) -> _Use:
        """Return a context in which NVML may be called and won't be shut down: ``with driver.using() as link:``.

        Entering raises PartError with the reason where there is no connection.
        """
        return self._use

    def failed(self, error: PartError, link: Link, accuser: object = None) -> None:
        """Note an error of a call under ``link``; only an error that says that the driver is gone ends the connection.

        A lost GPU never does: initialising again would take the healthy ones away as well. Nor does a late answer to a
        call made before the present connection, nor a single GPU (``accuser``) that calls the driver gone while the
        driver itself still answers, perhaps from memory; only if all GPUs that are read do so.
        """
        if not (isinstance(error, NvmlError) and error.driver_gone) or link is not self.link:
            return
        if accuser is not None and self._still_answers():
            self._accusers.add(accuser)
            if len(self._accusers) < min(link.count, self.readers or link.count):
                return
        self._end(error)

    def works_for(self, accuser: object) -> None:
        """Note that this GPU was read, which shows that the driver is loaded."""
        if self._accusers:
            self._accusers.discard(accuser)

    def release(self, seconds: float) -> bool:
        """Release all GPUs until :meth:`resume`: no new calls, and the library is shut down once none is under way.

        Return whether that is done; False if a call has not returned after ``seconds``: try again.
        """
        with self._lock:
            self.released = True
            self._before_release = self.link or self._before_release
            self.error = PartError(RELEASING, f"{self._calls} calls have not returned, see gpu-release")
            self._unlink()
            if not self._until_idle(seconds):
                return False
            self.error = PartError(RELEASED, "the GPUs were released on request, see gpu-release")
            attached, self._attached, self._before_release = self._attached, False, None
        if attached:
            with contextlib.suppress(NvmlError):  # the driver was gone already: nothing of it is held
                self._nvml.shutdown()
        return True

    def resume(self) -> None:
        """Connect again at the next visit; where the library was not shut down yet, be connected as before."""
        with self._lock:
            self.released = False
            self.error = PartError("no_driver", "not yet initialised")
            self.link, self._before_release = self._before_release, None
        self._retry_at, self._retry_seconds = 0.0, FIRST_RETRY_SECONDS

    def _end(self, error: PartError) -> None:
        with self._lock:
            self.error = error
            self._unlink()

    def _give_up(self) -> None:
        """End the connection, unless a call has not returned."""
        with self._lock:
            if self._until_idle(LAST_CALLS_SECONDS) and self.link is not None:
                self.error = PartError(CONNECTING, "the driver has claimed a GPU: reconnecting")
                self._unlink()
                self.hurry()

    def _unlink(self) -> None:
        self.link = None
        self._accusers.clear()

    def _still_answers(self) -> bool:
        try:
            self._nvml.device_count()
        except NvmlError as error:
            return not error.driver_gone
        return True

    def _until_idle(self, seconds: float) -> bool:
        """Wait, holding the lock, until no call is under way; return whether none is."""
        self._waits += 1
        try:
            return self._idle.wait_for(lambda: not self._calls, seconds)
        finally:
            self._waits -= 1

    def _enter(self) -> Link:
        with self._lock:
            link = self.link
            if link is None:
                raise PartError(self.error.reason, self.error.detail)
            self._calls += 1
            return link

    def _leave(self) -> None:
        with self._lock:
            self._calls -= 1
            if self._waits and not self._calls:  # asked only then: telling nobody costs more than the rest of this
                self._idle.notify_all()

    def _connect(self, held: Mapping[str, int] | None) -> None:
        now = self._clock.monotonic()
        if now < self._retry_at:
            raise PartError(self.error.reason, self.error.detail)
        with self._lock:
            if self.released:  # asked for and answered a moment ago
                raise PartError(self.error.reason, self.error.detail)
            # The library can't be shut down under an earlier call.
            if not self._until_idle(LAST_CALLS_SECONDS):
                if self.error.reason != CALL_HANGS:
                    detail = f"{self.error.reason}; {self._calls} earlier calls have not returned: restart the exporter"
                    self.error = PartError(CALL_HANGS, detail)
                raise PartError(self.error.reason, self.error.detail)
            self._calls += 1
        # Set before the call: one that never returns must not be tried twice at once when a new worker takes over.
        self._retry_at = now + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, LONGEST_RETRY_SECONDS)
        try:
            answers = self._attach()
        except NvmlError as error:
            self.error = error
            raise
        finally:
            self._leave()
        self._begin(*answers, held)

    def _attach(self) -> tuple[str, int]:
        if self._attached:
            self._attached = False
            with contextlib.suppress(NvmlError):  # the library counts how often it was initialised
                self._nvml.shutdown()
        try:
            self._nvml.init()
        finally:
            with contextlib.suppress(NvmlError):
                self.library = self._nvml.library_version()
        self._attached = True
        return self._nvml.driver_version(), self._nvml.device_count()

    def _begin(self, version: str, count: int, held: Mapping[str, int] | None) -> None:
        with self._lock:
            if self.released:  # asked for meanwhile: release() finds the library attached and shuts it down
                return
            self._generation += 1
            self.link = Link(self._generation, version, count, held)
        self._retry_seconds = FIRST_RETRY_SECONDS


class _Use:
    """See :meth:`Driver.using`. A class of one object, as the sampler enters it many times a second."""

    __slots__ = ("_driver",)

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __enter__(self) -> Link:
        return self._driver._enter()  # noqa: SLF001  its own other half

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._driver._leave()  # noqa: SLF001
