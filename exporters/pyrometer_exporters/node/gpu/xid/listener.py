"""Fetch Xids from NVML: one event set for each GPU, so that a lost or hung one blocks no other.

The driver keeps the events until they are fetched, so each scrape fetches those since the last: none is lost, no
thread has to wake up in between, and no call runs long enough to delay a GPU reset. While another call on the GPU
hangs, its events are not fetched: a hung GPU may hold one thread, not two. The kernel's log reports meanwhile, and the
events are still kept when the call returns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pyrometer_exporters.node.gpu.nvml import Handle, Nvml, NvmlError
from pyrometer_exporters.node.gpu.xid.lines import XidEvent

XID_EVENT: Final = 0x8  # nvmlEventTypeXidCriticalError; all Xids, despite its name
NO_INSTANCE = 0xFFFFFFFF
# The driver has kept them since the last scrape: there is nothing to wait for.
WAIT_MILLISECONDS = 0
# A storm of errors doesn't hold up a scrape for ever; the rest comes with the next one.
MOST_EVENTS = 1000
# A GPU that answers all else but refuses this without a clear reason is asked again.
AGAIN_SECONDS = 60.0


Report = Callable[[list[XidEvent], tuple[float, float]], None]


class _Refused(NamedTuple):
    """A refused registration, and when to try again."""

    handle: Handle
    generation: int
    at: float


class _Recording(NamedTuple):
    """An event set in which the driver keeps a GPU's events."""

    event_set: object
    generation: int


class Listener:
    """One GPU's events. Only that GPU's own thread uses it, under :meth:`Driver.using`.

    ``report`` is called with events, and between which two moments of CLOCK_MONOTONIC they came. They are not returned,
    as the events of a call that hung for a while must not be lost because nobody waited for it any more.
    """

    def __init__(self, pci: str, nvml: Nvml, report: Report, monotonic: Callable[[], float]) -> None:
        self._pci = pci
        self._nvml = nvml
        self._report = report
        self._monotonic = monotonic
        self._recording: _Recording | None = None
        self._refused: _Refused | None = None
        self._since = 0.0

    def listen(self, handle: Handle, generation: int) -> None:
        """Begin to record the events of a GPU that was just opened; earlier ones are unavailable.

        If the driver refuses, the kernel's log is the only source; this is tried again unless the GPU has no events.

        Raises:
            NvmlError: no call on the GPU will do.
        """
        self._refused = None
        self._let_go(generation)
        try:
            event_set = self._nvml.ask("nvmlEventSetCreate")
            try:
                self._nvml.ask("nvmlDeviceRegisterEvents", handle, XID_EVENT, event_set)
            except NvmlError:
                self._free(event_set)  # a GPU in trouble may refuse at every scrape for days
                raise
        except NvmlError as error:
            if error.about_whole_gpu:
                raise
            if not error.about_one_value:
                self._refused = _Refused(handle, generation, self._monotonic() + AGAIN_SECONDS)
        else:
            self._since = self._monotonic()
            self._recording = _Recording(event_set, generation)

    def fetch(self, generation: int) -> None:
        """Report the events since the last call, if they are available now. Can hang."""
        refused = self._refused
        if refused is not None and refused.generation == generation and self._monotonic() >= refused.at:
            self.listen(refused.handle, generation)
        recording = self._recording
        if recording is None or recording.generation != generation:
            return
        began = self._monotonic()
        # NVML reports nothing more about a lost GPU; the kernel's log does.
        events = list(self._events(recording.event_set))
        self._report(events, (self._since, self._monotonic()))
        self._since = began

    def _let_go(self, generation: int) -> None:
        """Fetch the rest and free the event set; that of an earlier connection went with it."""
        self.fetch(generation)
        recording, self._recording = self._recording, None
        if recording is not None and recording.generation == generation:
            self._free(recording.event_set)

    def _free(self, event_set: object) -> None:
        with contextlib.suppress(NvmlError):
            self._nvml.ask("nvmlEventSetFree", event_set)

    def _events(self, event_set: object) -> Iterator[XidEvent]:
        for _ in range(MOST_EVENTS):
            try:
                event = self._nvml.event(event_set, WAIT_MILLISECONDS)
            except NvmlError:  # it was all that can be had
                return
            if event is None:
                return
            if event.eventType & XID_EVENT:
                instances = _instance(event.gpuInstanceId), _instance(event.computeInstanceId)
                yield XidEvent(self._pci, int(event.eventData), "nvml", *instances)


def _instance(number: int) -> str:
    return "" if number == NO_INSTANCE else str(number)
