"""Xids as NVML tells them: one event set for each GPU, so that one that is lost or hangs keeps no other from telling.

The driver keeps the events until they are fetched, so that each scrape fetches what came since the last: nothing is
lost to that, no thread has to wake up in between, and no call is under way for long that would hold up a GPU reset.
While another call on the GPU hangs nobody fetches: a hung GPU may hold one thread, not two. The kernel's log tells
meanwhile, and the events are still there when the call returns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pyrometer_exporters.node.gpu.nvml import Handle, Nvml, NvmlError
from pyrometer_exporters.node.gpu.xid.lines import XidEvent

XID_EVENT: Final = 0x8  # nvmlEventTypeXidCriticalError; all Xids, despite its name
NO_INSTANCE = 0xFFFFFFFF
WAIT_MILLISECONDS = 1
# A storm of errors doesn't hold up a scrape for ever; the rest comes with the next one.
MOST_EVENTS = 1000
# A GPU that answers all else but refuses this for no reason that it tells may change its mind.
AGAIN_SECONDS = 60.0


Tell = Callable[[list[XidEvent], tuple[float, float]], None]


class _Refused(NamedTuple):
    """What to try again, and when."""

    handle: Handle
    generation: int
    at: float


class _Recording(NamedTuple):
    """An event set in which the driver keeps a GPU's events."""

    event_set: object
    generation: int


class Listener:
    """One GPU's events. For that GPU's own worker alone, which calls it under :meth:`Driver.using`.

    ``tell`` gets what came and between which two moments of CLOCK_MONOTONIC. It is told rather than given back: what
    a call brings that hung for a while must not be lost because nobody waited for it any more.
    """

    def __init__(self, pci: str, nvml: Nvml, tell: Tell, monotonic: Callable[[], float]) -> None:
        self._pci = pci
        self._nvml = nvml
        self._tell = tell
        self._monotonic = monotonic
        self._recording: _Recording | None = None
        self._refused: _Refused | None = None
        self._since = 0.0

    def listen(self, handle: Handle, generation: int) -> None:
        """Begin to record: the GPU was just opened. Events from before can't be had.

        Errors: NvmlError where no call on the GPU will do; else the kernel's log tells, and this is tried again where
        the driver doesn't say that it has no events.
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
        """Tell what came since the last time; nothing where nothing can be had now. Can hang."""
        refused = self._refused
        if refused is not None and refused.generation == generation and self._monotonic() >= refused.at:
            self.listen(refused.handle, generation)
        recording = self._recording
        if recording is None or recording.generation != generation:
            return
        began = self._monotonic()
        # Of a lost GPU NVML tells nothing more; the kernel's log does.
        events = list(self._events(recording.event_set))
        self._tell(events, (self._since, self._monotonic()))
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
