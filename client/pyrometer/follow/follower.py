"""Follow one log: read its new lines, turn them into steps, and record them into rings."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence

from pyrometer import ring
from pyrometer._ring_file import remove_stale_rings
from pyrometer.follow.recorder import Recorder
from pyrometer.follow.remarks import UnknownLog
from pyrometer.follow.step_reader import StepInterval, StepReader
from pyrometer.follow.tail import Tail


class LogFollower:
    """Connects tail, step reader and recorder.

    Steps of a log that existed before are recorded only when all of it is read: only then their times are known.

    Args:
        tail: Of the log.
        steps: Of the log.
        recorder: Of the run.
        folder: Of the rings.
        first_attempt: Returns the attempt in which a file of the log begins.
    """

    def __init__(
        self, tail: Tail, steps: StepReader, recorder: Recorder, folder: str, first_attempt: Callable[[str], int]
    ) -> None:
        self._tail = tail
        self._steps = steps
        self._recorder = recorder
        self._folder = folder
        self._first_attempt = first_attempt
        self._unknown = UnknownLog(steps.formats)
        self._begun = False
        self._pending: list[StepInterval] = []
        self._caught_up = False
        self._format_reported = False

    @property
    def has_more(self) -> bool:
        """True if the log has more to read at once."""
        return self._tail.has_more

    def read(self, arrived: float) -> bool:
        """Read and record new lines. Return whether there were any.

        Args:
            arrived: The monotonic second at which these lines can have arrived; a log that existed before takes several
                reads, whose times say nothing about its steps.

        Raises:
            OSError: the log can't be read, or a ring can't be made.
        """
        lines = self._tail.lines()
        if lines:
            self._begin(self._tail.identity())
        self._pending += self._steps.read(lines, arrived)
        self._report_format(lines, arrived)
        if self._tail.has_more:
            self._recorder.skip(self._pending[: -ring.CAPACITY])
            self._pending = self._pending[-ring.CAPACITY :]
        else:
            self._record()
        return bool(lines) or self._tail.has_more

    def _begin(self, file: str) -> None:
        if not self._begun:
            self._begun = True
            self._recorder.begin_at(self._first_attempt(file))
        self._recorder.set_file(file)

    def _record(self) -> None:
        # Steps that were in the log before us ended when the file was last written. Later ones end when they arrive:
        # the clock and the caches of a file server make its times useless for them.
        age = 0.0 if self._caught_up else self._tail.age(time.time())
        self._recorder.record(self._pending, time.monotonic_ns(), self._steps.format or "", age)
        if any(interval.restarted for interval in self._pending):
            self._remove_stale_rings()
        self._pending = []
        self._caught_up = True

    def _remove_stale_rings(self) -> None:
        """Remove stale rings with each attempt: a job that crashes in a loop would fill the memory."""
        with contextlib.suppress(OSError):
            remove_stale_rings(self._folder)

    def _report_format(self, lines: Sequence[str], arrived: float) -> None:
        if self._format_reported:
            return
        if self._steps.format:
            self._format_reported = True
            report(f"log format: {self._steps.format}")
            return
        self._unknown.read(lines, arrived)
        if (remark := self._unknown.remark(arrived)) is not None:
            report(remark)


def report(message: str) -> None:
    """Print a line to standard error, for the person who started the command."""
    sys.stderr.write(f"pyrometer-follow: {message}\n")
    sys.stderr.flush()
