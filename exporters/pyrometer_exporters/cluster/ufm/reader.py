"""Count the events of the log, and save counts and position together, so that a crash can't separate them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from datetime import tzinfo
from pathlib import Path
from typing import Any

from pyrometer_exporters.cluster.ufm.event_counts import EventCounts, decoded
from pyrometer_exporters.cluster.ufm.lines import Event, begins, event
from pyrometer_exporters.cluster.ufm.logfile import LogFile, LogPosition
from pyrometer_kit.statefile import StateFile

# For links, an exporter that is new to the log reads its end, at most this much.
LEARNED_BYTES = 64 << 20


class Reader:
    """Follows the log. :meth:`turn` is called from one thread; the rest may be read from any, under ``lock``."""

    def __init__(self, path: Path, zone: tzinfo | None, state: StateFile) -> None:
        self._log = LogFile(path)
        self._zone = zone
        self._state = state
        self._place: LogPosition | None = None
        self._began = False
        self._open: Event | None = None  # an event whose further lines may still come
        self._open_place: LogPosition | None = None
        self._open_more = 0
        self._changed = False
        self.lock = threading.Lock()
        self.counts = EventCounts()
        self.lines: Counter[str] = Counter()
        self.gaps = 0
        self.state_error: OSError | None = None
        """Why the latest counts could not be saved."""
        self.kept = state.load(self._decode) or False
        """True if the counts continue from before a restart."""

    @property
    def unread(self) -> int:
        """The bytes that are still to be read."""
        return self._log.unread

    def turn(self) -> None:
        """Count the events written since.

        Raises:
            OSError: The log can't be read.
        """
        if not self._began:
            self._begin()
        quiet = True
        for line in self._log.lines():
            quiet = False
            self._take(line)
        if quiet:
            self._finish()  # an event without further lines is complete
        with self.lock:
            self.gaps += self._log.gaps
            self._log.gaps = 0
        self._save()

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def _begin(self) -> None:
        if self._place is not None:
            self._log.resume(self._place)
        else:
            # Events before our start may have been counted before a restart whose state was lost: don't count them.
            self._log.begin(LEARNED_BYTES)
            for old_event in self._old_events():
                with self.lock:
                    self.counts.learn(old_event, self._zone)
            self._changed = True
        self._began = True

    def _old_events(self) -> Iterator[Event]:
        while True:
            for line in self._log.lines():
                old_event = event(line)
                if old_event is not None:
                    yield old_event
            if not self._log.unread:
                return

    def _take(self, line: str) -> None:
        new_event = event(line)
        if new_event is not None:
            self._finish()
            self._open, self._open_place, self._open_more = new_event, self._log.line_place, 0
        elif self._open is not None and not begins(line):
            self._open, self._open_more = self._open.and_more(line), self._open_more + 1
        else:
            self._finish()
            # Without an open event, an indented or empty line is a late continuation.
            late = not begins(line) and (not line.strip() or line[0] in " \t")
            self._count_line("continuation" if late else "unparsed")

    def _count_line(self, result: str, count: int = 1) -> None:
        with self.lock:
            self.lines[result] += count
        self._changed = True

    def _finish(self) -> None:
        """Count the event that was open, with all its lines."""
        if self._open is None:
            return
        with self.lock:
            self.counts.count(self._open, self._zone)
        self._count_line("event")
        if self._open_more:
            self._count_line("continuation", self._open_more)
        self._open = None

    def _save(self) -> None:
        """Save counts and position together; an event that is still open is read again after a restart."""
        place = self._log.place() if self._open is None else self._open_place
        if place is None or not (self._changed or place != self._place):
            return
        with self.lock:
            data = {
                "place": astuple(place), "lines": dict(self.lines), "gaps": self.gaps, "tally": self.counts.encoded(),
            }  # fmt: skip
        try:
            self._state.save(data)
        except OSError as error:
            self.state_error = error
        else:
            self._place, self._changed, self.state_error = place, False, None

    def _decode(self, data: Mapping[str, Any]) -> bool:
        inode, offset, marked, mark = data["place"]
        place = LogPosition(int(inode), int(offset), int(marked), str(mark))
        lines, gaps = Counter({str(k): int(v) for k, v in data["lines"].items()}), int(data["gaps"])
        self.counts, self.lines, self.gaps, self._place = decoded(data["tally"]), lines, gaps, place
        return True
