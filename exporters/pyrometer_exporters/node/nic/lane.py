"""Who reads the devices: those that answer quickly one after the other in one thread, each slow one in its own.

To wake a thread for each of 14 quick devices costs more than to read them. A device at which the others would have to
wait keeps the thread that it holds up, as its own, and they go on in another: it costs them a few milliseconds once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from pyrometer_exporters.framework.worker import LATE, Worker
from pyrometer_exporters.node.nic.device import Look

# Without a device done, until the one under way is left behind. Twice as long where one was done just before.
PATIENCE_SECONDS = 0.005


class Lane:
    """The thread that quick devices share."""

    def __init__(self) -> None:
        self._worker: Worker[None] = Worker("nic-quick")

    def run(self, looks: Sequence[Look]) -> None:
        """Begin all looks; when this returns, each is over or under way in its device's own thread."""
        for look in looks:
            if look.slow:
                look.device.begin(look)
        shared = [look for look in looks if not look.slow]
        while shared:
            shared = self._in_turn(shared)

    def close(self) -> None:
        """Let the thread end."""
        self._worker.close()

    def _in_turn(self, looks: Sequence[Look]) -> list[Look]:
        """Those that are yet to begin, as one before them takes too long."""
        left = deque(looks)
        job = self._worker.start(lambda: _run(left))
        reason: str | None = LATE
        before = len(left) + 1
        while reason == LATE and len(left) < before:
            before = len(left)
            reason = job.outcome(time.monotonic() + PATIENCE_SECONDS).reason
        if reason is None:
            return []
        rest = _taken_back(left)
        if reason != LATE:  # there was no thread to be had: each device will say so
            for look in rest:
                look.device.begin(look)
            return []
        self._leave(next((look for look in looks if look not in rest and not look.over), None))
        return rest

    def _leave(self, look: Look | None) -> None:
        """Go on in another thread: that of the device which holds this one up, as it has no need of it now."""
        if look is not None:
            self._worker = look.device.swap(self._worker)
        else:  # it was over just now
            self._worker.close()
            self._worker = Worker("nic-quick")


def _run(left: deque[Look]) -> None:
    while left:
        try:
            look = left.popleft()
        except IndexError:  # taken back meanwhile
            return
        if look.task is not None:
            look.task.run()


def _taken_back(left: deque[Look]) -> list[Look]:
    taken = []
    while left:
        try:
            taken.append(left.popleft())
        except IndexError:  # begun meanwhile
            break
    return taken
