"""One log, from its lines to its rings, a reading at a time."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable

from pyrometer import _writer, ring
from pyrometer.follow.recorder import Recorder
from pyrometer.follow.steps import Steps, Timed
from pyrometer.follow.tail import Tail


class Following:
    """What was there before us is recorded when all of it is read: only then it is known when it ended.

    Args:
        folder: of the rings.
        first_attempt: in which a file of the log begins.
    """

    def __init__(
        self, tail: Tail, steps: Steps, recorder: Recorder, folder: str, first_attempt: Callable[[str], int]
    ) -> None:
        self._tail = tail
        self._steps = steps
        self._recorder = recorder
        self._folder = folder
        self._first_attempt = first_attempt
        self._begun = False
        self._waiting: list[Timed] = []
        self._caught_up = False
        self._told = False

    @property
    def behind(self) -> bool:
        """Whether there is more to read at once."""
        return self._tail.behind

    def read(self, arrived: float) -> bool:
        """Read on; whether there was anything. ``arrived``: the monotonic second at which these lines can have come.

        A log that was there before us comes in many readings, which is no measure of its steps.
        """
        lines = self._tail.lines()
        if lines:
            self._begin(self._tail.identity())
        self._waiting += self._steps.read(lines, arrived)
        self._tell_format()
        if self._tail.behind:
            self._recorder.pass_over(self._waiting[: -ring.CAPACITY])
            self._waiting = self._waiting[-ring.CAPACITY :]
        else:
            self._record()
        return bool(lines) or self._tail.behind

    def _begin(self, file: str) -> None:
        if not self._begun:
            self._begun = True
            self._recorder.begin_at(self._first_attempt(file))
        self._recorder.read_from(file)

    def _record(self) -> None:
        # What was there before us ended when the file was last written. What comes now ends now: the clock and the
        # caches of a file server are no measure of it.
        age = 0.0 if self._caught_up else self._tail.age(time.time())
        self._recorder.take(self._waiting, time.monotonic_ns(), self._steps.format or "", age)
        if any(timed.restarted for timed in self._waiting):
            self._sweep()
        self._waiting = []
        self._caught_up = True

    def _sweep(self) -> None:
        """With each attempt, remove what ended long ago: a job that crashes in a loop would fill the memory."""
        with contextlib.suppress(OSError):
            _writer.sweep(self._folder)

    def _tell_format(self) -> None:
        if self._steps.format and not self._told:
            self._told = True
            say(f"the log is {self._steps.format}'s")


def say(text: str) -> None:
    """A line for the person who started us."""
    sys.stderr.write(f"pyrometer-follow: {text}\n")
    sys.stderr.flush()
